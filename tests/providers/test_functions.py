"""Functions and loaded models in place of specs."""

import functools
import pickle
import zlib

import numpy as np
import pytest

import adamab
from adamab import ADAMABClassifier, ClassSpec
from adamab.errors import EmbedderError, FingerprintError, GeneratorError
from adamab.providers.generators.base import Request
from adamab.providers.registry import resolve_embedder, resolve_generator
from adamab.run.run_log import SEGMENT, Journal
from adamab.testing import HashEmbedder, check_embedder, check_generator

TEXTS = ["money back", "a refund please", "lovely work", "great people", "send money", "they are lovely"]
LABELS = ["refund", "refund", "praise", "praise", "refund", "praise"]


def embed(texts, width=32):
    """Which letters pairs a text has, as rows of zeros and ones."""
    rows = np.zeros((len(texts), width))
    for row, text in zip(rows, texts, strict=True):
        row[[zlib.crc32(text[i : i + 2].encode()) % width for i in range(len(text) - 1)]] = 1
    return rows


async def embed_later(texts):
    return embed(texts).tolist()


class Embeds:
    def __call__(self, texts):
        import torch

        return torch.tensor(embed(texts), requires_grad=True)


def write(name, description, examples, n):
    return [f"{name} {description} {len(examples)} {number}" for number in range(n)]


async def write_later(name, description, examples, n):
    return write(name, description, examples, n)


@pytest.mark.parametrize(
    ("embedder", "name"),
    [
        (embed, "embed"),
        (embed_later, "embed_later"),
        (functools.partial(embed, width=16), "embed"),
        (Embeds(), "Embeds"),
    ],
)
def test_a_function_embeds(embedder, name, tmp_path):
    if name == "Embeds":
        pytest.importorskip("torch")
    clf = ADAMABClassifier(embedder, random_state=0).fit(TEXTS, LABELS)
    assert clf.classifier_.fingerprint == f"function:{__name__}.{name}"
    assert pickle.loads(pickle.dumps(clf)).predict(["money refund"])[0] == "refund"
    clf.save(tmp_path / "model")
    message = rf"function or an object \('function:.*{name}'\).* pass it again: adamab\.load\(.*, embedder="
    with pytest.raises(EmbedderError, match=message):
        adamab.load(tmp_path / "model")
    with pytest.raises(FingerprintError, match="fitted with embedder 'passed as an object'"):
        adamab.load(tmp_path / "model", embedder=len)
    loaded = adamab.load(tmp_path / "model", embedder=embedder)
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS))


def test_a_function_keeps_the_contract():
    check_embedder(resolve_embedder(embed))
    request = Request(ClassSpec("refund", "wants money"), 0, 3, ("money back",), ())
    check_generator(lambda: resolve_generator(write), request)


@pytest.mark.parametrize("generator", [write, write_later])
def test_a_function_generates(generator, tmp_path):
    settings = {"generator": generator, "budget": 4, "recipe": {"batch": 2}, "run_dir": tmp_path / "run"}
    clf = ADAMABClassifier(embed, **settings).fit(TEXTS, LABELS, descriptions={"refund": "wants money"})
    assert len(clf.synthetic_) == 4
    assert "refund wants money 3 0" in {sample.text for sample in clf.synthetic_}
    again = ADAMABClassifier(embed, **settings).fit(TEXTS, LABELS, descriptions={"refund": "wants money"})
    assert again.synthetic_ == clf.synthetic_


def edited(width, calls=()):
    seen = list(calls)

    def embed_in(texts):
        seen.append(len(texts))  # what changes as it runs is no edit
        return embed(texts, width)

    return embed_in


@pytest.mark.parametrize("generator", [None, write])
def test_a_run_notices_that_a_function_was_edited(generator, tmp_path):
    budget = None if generator is None else 2

    def fitted(embedder):
        clf = ADAMABClassifier(embedder, generator=generator, budget=budget, run_dir=tmp_path / "run")
        clf.fit(TEXTS, LABELS)
        with Journal(tmp_path / "run") as journal:
            return clf, list(journal.events(SEGMENT))[-1].data["changes"]

    first, _ = fitted(edited(16))
    same, changes = fitted(edited(16, [1, 2]))
    assert (changes, same.synthetic_) == ([], first.synthetic_)
    other, changes = fitted(edited(24))
    assert (changes, other.synthetic_) == (["code of a function changed"], first.synthetic_)
    assert not np.array_equal(other.predict_proba(TEXTS), first.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        (lambda texts: None, "view 'pooled' has shape"),
        (lambda texts: embed(texts)[1:], "vectors for"),
        (lambda texts: embed(texts)[:, 0], "a matrix is needed"),
        (lambda texts: np.full((len(texts), 3), np.nan), "is not finite"),
        (lambda texts: [[1.0] * (1 + number) for number in range(len(texts))], "not numbers of one width"),
        (HashEmbedder, "embedder is the class HashEmbedder; give a spec, a function or an instance"),
        (None, "embedder is of type NoneType; give a spec"),
    ],
)
def test_what_embeds_nothing_is_one_line(embedder, message):
    with pytest.raises(EmbedderError, match=message):
        ADAMABClassifier(embedder).fit(TEXTS, LABELS)


@pytest.mark.parametrize("answer", ["one text", None, [1, 2], {"a": 1}])
def test_what_writes_no_texts_is_one_line(answer):
    clf = ADAMABClassifier(embed, generator=lambda *_: answer, budget=2)
    with pytest.raises(GeneratorError, match=r"<lambda> returned .*; return a list of texts$"):
        clf.fit(TEXTS, LABELS)


def test_a_class_for_which_nothing_is_written_is_closed():
    assert ADAMABClassifier(embed, generator=lambda *_: [], budget=4).fit(TEXTS, LABELS).synthetic_ == ()


def test_an_error_of_the_function_stays_what_it_is():
    with pytest.raises(ZeroDivisionError):
        ADAMABClassifier(lambda texts: 1 / 0).fit(TEXTS, LABELS)


def test_a_loaded_model_gives_what_its_files_give(tiny_model, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(tiny_model), device="cpu")
    clf = ADAMABClassifier(model, random_state=0).fit(TEXTS, LABELS)
    from_files = ADAMABClassifier(f"st:{tiny_model}", random_state=0, cache=False).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(clf.predict_proba(TEXTS), from_files.predict_proba(TEXTS))
    assert clf.classifier_.views == from_files.classifier_.views
    assert model.transformers_model.config.output_hidden_states is False
    clf.save(tmp_path / "model")
    with pytest.raises(EmbedderError, match="pass it again"):
        adamab.load(tmp_path / "model")
    again = library.SentenceTransformer(str(tiny_model), device="cpu")
    loaded = adamab.load(tmp_path / "model", embedder=again)
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    next(again.parameters()).data += 1
    with pytest.raises(FingerprintError):
        adamab.load(tmp_path / "model", embedder=again)
    with pytest.raises(
        EmbedderError, match=r"embedder is of type Transformer; .* give a SentenceTransformer"
    ):
        ADAMABClassifier(model[0]).fit(TEXTS, LABELS)

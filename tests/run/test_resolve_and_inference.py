from __future__ import annotations

import numpy as np
import pytest

from adamab.classifier import Classifier, Head, save
from adamab.errors import EmbedderError, RecipeError
from adamab.providers.cache import CachedEmbedder
from adamab.providers.embedders.npz import NpzEmbedder
from adamab.run import resolve
from adamab.run.inference import Inference
from adamab.run.resolve import embedder_key, embedder_name, open_embedder, parse_budget
from adamab.task import Prompts, Sample, Vocabulary
from adamab.testing import HashEmbedder


@pytest.fixture
def npz(tmp_path):
    np.savez(tmp_path / "v.npz", **{"ids": np.array(["7"]), "view/pooled": np.ones((1, 2), np.float32)})
    return f"npz:{tmp_path / 'v.npz'}"


def test_what_is_cached(monkeypatch, npz, tmp_path):
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(resolve, "resolve_embedder", lambda spec, **options: HashEmbedder())
    assert isinstance(open_embedder("toy"), CachedEmbedder)
    assert isinstance(open_embedder("toy", cache=False), HashEmbedder)
    monkeypatch.undo()
    assert isinstance(open_embedder(npz), NpzEmbedder)
    own = HashEmbedder()
    assert open_embedder(own) is own


def test_the_treatment_of_long_texts_is_part_of_the_name(monkeypatch):
    asked = []
    monkeypatch.setattr(resolve, "resolve_embedder", lambda *a, **o: asked.append((a, o)) or HashEmbedder())
    name = embedder_name("local", "average")
    open_embedder(name, cache=False)
    open_embedder("local", long_texts="average", cache=False)
    open_embedder("local", cache=False)
    assert asked[0] == asked[1] == (("local",), {"long_texts": "average"})
    assert asked[2] == (("local",), {"long_texts": None})
    assert embedder_name(name, "cut") == "local?long_texts=cut"


def test_ids_are_for_looking_up_only(npz):
    prompts, row = Prompts(query="Q: {text}"), Sample("hello", "a", id="7")
    assert embedder_key(row, HashEmbedder(), prompts) == "Q: hello"
    assert embedder_key(row, open_embedder(npz), prompts) == "7"
    assert embedder_key(Sample("hello", "a"), open_embedder(npz), prompts) == "Q: hello"


@pytest.mark.parametrize(("text", "samples"), [("120 samples", 120), ("1", 1), (" 1_000 Samples ", 1000)])
def test_budgets(text, samples):
    assert parse_budget(text) == samples


@pytest.mark.parametrize(
    "text", ["", "many", "-3", "0", "1.5 samples", "3, 4", "2 usd", "9 samples, 3 calls"]
)
def test_bad_budgets(text):
    with pytest.raises(RecipeError, match="budget"):
        parse_budget(text)


def test_long_texts_are_counted():
    embedder = HashEmbedder(width=2, max_words=2)
    model = Classifier(
        classes=("no", "yes"),
        heads=(Head(view="pooled", linear=np.eye(2, dtype=np.float32)),),
        fingerprint=embedder.fingerprint,
    )
    inference = Inference(model, embedder)
    rows = [Sample("a b c", "no"), Sample("a", "no")]
    assert inference.predict_proba(rows).shape == (2, 2)
    assert inference.overlong == 1


def test_a_view_that_the_embedder_lacks():
    model = Classifier(
        classes=("no", "yes"),
        heads=(Head(view="layers", linear=np.eye(2, dtype=np.float32)),),
        fingerprint=HashEmbedder().fingerprint,
    )
    with pytest.raises(EmbedderError, match="no view 'layers', which the model needs"):
        Inference(model, HashEmbedder())


def test_words_alone_need_no_embedder(tmp_path):
    vocabulary = Vocabulary.fit(["alpha", "beta"])
    head = Head(view="words", linear=np.eye(2, len(vocabulary.terms), dtype=np.float32))
    model = Classifier(
        classes=("no", "yes"), heads=(head,), vocabulary=vocabulary, embedder_spec="npz:gone.npz"
    )
    save(model, tmp_path)
    indices, _ = Inference.open(tmp_path).top_k([Sample("beta", "?")], 1)
    assert indices.tolist() == [[1]]

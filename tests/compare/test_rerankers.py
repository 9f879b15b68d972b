"""Rerankers over real sockets and on disk: scores, errors, what is kept and what is paid for."""

import base64
import io
import pickle
from decimal import Decimal

import numpy as np
import pytest

from adamab.compare.methods import TrainingData, make_baseline
from adamab.compare.remote import CrossEncoderBaseline, RerankBaseline, metered, rerank_from_spec
from adamab.errors import ApiError, EmbedderError, ProviderError, TaskError
from adamab.providers.cache import CachedReplies
from adamab.providers.judges import SEARCH, CrossEncoder
from adamab.providers.metering import CallContext, Price
from adamab.task.image_folders import image_at
from adamab.task.prompts import Prompts
from adamab.task.spec import ClassSpec
from adamab.testing import Fault

MODELS = {"cohere": "rerank-v3.5", "jina": "jina-reranker-m0", "voyage": "rerank-2.5"}
PLACES = {"cohere": "/cohere", "jina": "/jina/v1", "voyage": "/voyage/v1"}
SPECS = (
    ClassSpec("refund", "wants money back"),
    ClassSpec("crash", "the app stops or freezes"),
    ClassSpec("praise"),
)
LABELS = ["refund", "crash", "praise"]
EXAMPLES = ["give me my dollars", "it hangs on start", "lovely work"]
TEXTS = ["money back now", "app freezes", "praise for everyone", "app freezes"]
WANTED = ["refund", "crash", "praise", "crash"]


@pytest.fixture
def make(server):
    def made(service="cohere", *, shots=False, **options):
        options = {"base_url": server.url + PLACES[service], "first_wait": 0.01, **options}
        model = options.pop("model", MODELS[service])
        baseline = rerank_from_spec(f"{service}:{model}", **options)
        assert isinstance(baseline, RerankBaseline)
        return baseline.fit(data(shots=shots))

    return made


def data(*, shots=False):
    classes = tuple(spec.name for spec in SPECS)
    prompts = Prompts(with_examples=shots)
    return TrainingData({}, LABELS, classes, texts=EXAMPLES, specs=SPECS, prompts=prompts)


@pytest.mark.parametrize("service", MODELS)
class TestEachService:
    def test_the_text_is_the_query_and_the_wordings_are_the_documents(self, server, make, service):
        baseline = make(service, concurrency=1)
        probabilities = baseline.predict_proba({}, TEXTS)
        assert probabilities.sum(axis=1) == pytest.approx(np.ones(4))
        assert baseline.predict({}, TEXTS) == WANTED
        assert server.count() == server.billed("/rerank") == 3  # one a text, the repeated one once
        body = server.seen[0].body
        assert TEXTS[0] in body["query"]
        documents = [d["text"] if isinstance(d, dict) else d for d in body["documents"]]
        assert documents == [Prompts().rerank_class_text(spec) for spec in SPECS]
        assert baseline.n_parameters_ == 0

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            (Fault("few_vectors", times=None), f"{len(SPECS) - 1} scores for {len(SPECS)} documents"),
            (Fault("nan", times=None), "a score that is not a finite number"),
            (Fault("wrong_index", times=None), "scores whose numbers do not add up"),
            (Fault("status", status=401, times=None), "key"),
            (Fault("status", status=400, times=None), "refuses the request"),
        ],
        ids=lambda value: value.kind if isinstance(value, Fault) else "",
    )
    def test_one_that_stays_bad_ends_it_in_one_line(self, server, make, service, fault, message):
        server.add_fault(fault)
        with pytest.raises(ApiError, match=message) as caught:
            make(service, concurrency=1).predict({}, TEXTS)
        assert str(caught.value).startswith(f"{service}: ")
        assert "\n" not in str(caught.value)
        assert not any(text in str(caught.value) for text in TEXTS)

    def test_more_classes_than_a_request_takes_are_split(self, server, make, service):
        whole = make(service).predict_proba({}, TEXTS)
        before = server.count()
        parts = make(service, batch=2).predict_proba({}, TEXTS)
        assert server.count() - before == 2 * 3
        assert parts == pytest.approx(whole)

    def test_a_second_run_costs_nothing(self, server, make, service):
        for _ in range(2):
            baseline = make(service)
            with metered(baseline, CallContext(replies=CachedReplies())):
                assert baseline.predict({}, TEXTS) == WANTED
                assert baseline.planned(data(), TEXTS) == []
        assert server.count() == 3


def test_a_search_counts_as_a_thousand_tokens(server, make):
    baseline, call_context = make(), CallContext(prices={"rerank-v3.5": Price(Decimal(2))})
    assert [expected.input_tokens for expected, _ in baseline.planned(data(), TEXTS)] == [SEARCH] * 3
    with metered(baseline, call_context):
        baseline.predict({}, TEXTS)
    spent = call_context.spent()["rerank", None]
    assert (spent.input_tokens, spent.nano_usd) == (3 * SEARCH, 3 * 2_000_000)  # 2 usd a thousand searches
    # 120 pairs of more than 500 tokens each: 240 chunks or more are three searches.
    long = ["word " * 400] * 120
    _, most = baseline.judge.usage("query " * 100, long)
    assert most.input_tokens >= 3 * SEARCH


def test_an_image_can_be_the_query_of_one_model(server, make, tmp_path, paint):
    from PIL import Image as Pillow

    names = ("red", "green", "blue")
    images = [image_at(path) for path in paint(tmp_path, dict.fromkeys(names, 1))]
    colours = TrainingData({}, [], names, specs=tuple(ClassSpec(name) for name in names))
    baseline = make("jina", concurrency=1).fit(colours)
    assert baseline.predict({}, images) == list(names)
    assert server.images("/rerank") == 3
    query = server.seen[0].body["query"]
    assert Pillow.open(io.BytesIO(base64.b64decode(query["image"], validate=True))).size == (24, 24)
    expected, most = baseline.judge.usage(images[0], ["a", "b"])
    assert expected.input_tokens < most.input_tokens
    for other in (make("cohere"), make("voyage"), make("jina", model="jina-reranker-v2-base-multilingual")):
        with pytest.raises(ProviderError, match="takes no images; use rerank:jina:jina-reranker-m0"):
            other.fit(colours).predict({}, images)


def test_specs_are_checked():
    for spec in ("rerank:cohere", "rerank:coheer:rerank-v3.5", "rerank:nobody:m"):
        with pytest.raises(TaskError, match="write rerank:SERVICE:MODEL"):
            make_baseline(spec)
    for spec, word in (
        ("rerank:cohere:rerank-v3.5?batch=0", "batch"),
        ("rerank:cohere:rerank-v3.5?batch=x", "batch"),
        ("rerank:cohere:rerank-v3.5?rpmm=3", "rpmm"),
    ):
        with pytest.raises(ProviderError, match=word):
            make_baseline(spec)
    preset = make_baseline("rerank:cohere-rerank-v3.5?rpm=7")
    assert isinstance(preset, RerankBaseline)
    assert (str(preset), preset.api.limits.rpm) == ("rerank:cohere:rerank-v3.5", 7)


def test_specs_of_cross_encoders_are_checked():
    pytest.importorskip("sentence_transformers", reason="the extra 'st' is not installed")
    for name in ("rerank:bge-reranker-v2-m3", "cross-encoder:bge-reranker-v2-m3"):
        assert str(make_baseline(name)) == "cross-encoder:BAAI/bge-reranker-v2-m3"
    with pytest.raises(TaskError, match="batch_size"):
        make_baseline("cross-encoder:org/name?batch_size=x")
    with pytest.raises(ProviderError, match="no model's name"):
        rerank_from_spec("cohere: ")


# Cross-encoders: a tiny one, randomly initialised, saved in the real format.


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("encoder"))


def build(folder, *, labels=1):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    raw = folder / "raw"
    raw.mkdir()
    words = " ".join([*TEXTS, *EXAMPLES, *(f"{s.name} {s.description}" for s in SPECS)]).lower().split()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)]
    (raw / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizer(str(raw / "vocab.txt"), model_max_length=32).save_pretrained(raw)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, initializer_range=0.5, num_labels=labels,
    )  # fmt: skip
    BertForSequenceClassification(config).eval().save_pretrained(raw)
    out = folder / "model"
    library.CrossEncoder(str(raw), device="cpu").save_pretrained(str(out))
    return out


def test_every_pair_of_text_and_wording_is_scored(encoder):
    baseline = make_baseline(f"cross-encoder:{encoder}?batch_size=2").fit(data())
    assert isinstance(baseline, CrossEncoderBaseline)
    probabilities = baseline.predict_proba({}, TEXTS)
    assert probabilities.shape == (4, 3)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(4))
    assert probabilities[1] == pytest.approx(probabilities[3])
    assert not np.allclose(probabilities[0], probabilities[1])
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    own = CrossEncoder(str(encoder), device="cpu")
    query = Prompts().rerank_query_text(TEXTS[0])
    pairs = [(query, Prompts().rerank_class_text(spec)) for spec in SPECS]
    logits = own.predict(pairs, activation_fn=Identity(), show_progress_bar=False)
    assert np.log(probabilities[0] / probabilities[0][0]) == pytest.approx(logits - logits[0], abs=1e-4)
    assert baseline.n_parameters_ == 0
    assert baseline.model_parameters_ == sum(p.numel() for p in own.model.parameters())
    again = pickle.loads(pickle.dumps(baseline))
    assert again.predict_proba({}, TEXTS) == pytest.approx(probabilities)
    assert baseline.predict({}, []) == []


def test_a_cross_encoder_is_known_by_its_files_or_its_revision(encoder, monkeypatch, tmp_path):
    assert CrossEncoder(str(encoder)).fingerprint.startswith("sha256:")
    named = make_baseline("rerank:bge-reranker-v2-m3")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("downloaded"))
    assert named.fingerprint == "BAAI/bge-reranker-v2-m3@none"
    kept = tmp_path / "snapshots" / "abc123" / "config.json"
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(kept))
    assert named.fingerprint == "BAAI/bge-reranker-v2-m3@abc123"


def test_what_cannot_be_a_cross_encoder_is_told_in_one_line(encoder, tmp_path, paint):
    with pytest.raises(EmbedderError, match="no such model directory"):
        make_baseline(f"cross-encoder:{tmp_path}/nothing")
    with pytest.raises(TaskError, match="batch_size"):
        CrossEncoder(str(encoder), batch_size=0)
    several = build(tmp_path, labels=3)
    with pytest.raises(EmbedderError, match="gives 3 scores per pair"):
        CrossEncoderBaseline(CrossEncoder(str(several))).fit(data())
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    for file in encoder.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            (pickled / file.name).write_bytes(file.read_bytes())
    (pickled / "model.safetensors").write_bytes(b"no")
    with pytest.raises(EmbedderError, match="the model cannot be loaded"):
        CrossEncoderBaseline(CrossEncoder(str(pickled))).fit(data())
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(EmbedderError, match="weights are not safetensors"):
        CrossEncoderBaseline(CrossEncoder(str(pickled))).fit(data())
    image = image_at(paint(tmp_path, {"red": 1})[0])
    with pytest.raises(TaskError, match="takes no images"):
        CrossEncoderBaseline(CrossEncoder(str(encoder))).fit(data()).predict({}, [image])

import numpy as np
import pytest

from adamab.errors import EmbedderError, TaskError
from adamab.estimator import load as load_estimator
from adamab.model import Classifier, Confidence, Head, PredictOptions, save
from adamab.model.predictor import Inference
from adamab.providers.registry import open_embedder
from adamab.task import Sample, Vocabulary
from adamab.testing import HashEmbedder, ProviderServer


@pytest.fixture
def npz(tmp_path):
    np.savez(tmp_path / "v.npz", **{"ids": np.array(["7"]), "view/pooled": np.ones((1, 2), np.float32)})
    return f"npz:{tmp_path / 'v.npz'}"


def test_a_view_that_the_embedder_lacks():
    model = Classifier(
        classes=("no", "yes"),
        heads=(Head(view="layers", linear=np.eye(2, dtype=np.float32)),),
        fingerprint=HashEmbedder().fingerprint,
    )
    with pytest.raises(EmbedderError, match="no view 'layers', which the model needs"):
        Inference(model, HashEmbedder())


def test_what_cannot_be_answered_is_refused_before_anything_is_embedded():
    embedder = HashEmbedder()
    model = Classifier(
        classes=("a", "b"),
        heads=(Head(view="pooled", linear=np.ones((2, 64), np.float32)),),
        fingerprint=embedder.fingerprint,
        confidence=Confidence(seen=(1.0, 1.0), n=0, strangeness=(), surprise=()),
    )
    inference, rows = Inference(model, embedder), [Sample("hello", "?")]
    for options in (
        PredictOptions(priors={"c": 0.5}),
        PredictOptions(unknown=0.9),
        PredictOptions(coverage=0.9),
    ):
        with pytest.raises(TaskError):
            inference.answers(rows, options)
    with pytest.raises(TaskError, match="'c', which is no class"):
        inference.predict_proba(rows, priors={"c": 0.5})
    assert embedder.calls == 0
    inference.answers(rows, PredictOptions(priors={"a": 0.5}))
    assert embedder.calls == 1


def test_words_alone_need_no_embedder(tmp_path):
    vocabulary = Vocabulary.learn(["alpha", "beta"])
    head = Head(view="words", linear=np.eye(2, len(vocabulary.terms), dtype=np.float32))
    model = Classifier(
        classes=("no", "yes"), heads=(head,), vocabulary=vocabulary, embedder_spec="npz:gone.npz"
    )
    save(model, tmp_path)
    answers = Inference.open(tmp_path).answers([Sample("beta", "?")], PredictOptions())
    assert answers.indices.tolist() == [[1]]


def saved(folder, spec):
    """A model that somebody made and that remembers `spec`."""
    head = Head(view="pooled", linear=np.eye(2, 16, dtype=np.float32))
    fingerprint = open_embedder(spec, cache=False).fingerprint
    save(
        Classifier(classes=("no", "yes"), heads=(head,), fingerprint=fingerprint, embedder_spec=spec), folder
    )
    return folder


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("openai:m?base_url=https://evil.example/v1", "names a server of its own, 'evil.example'"),
        ("openai:m?base_url=http://127.0.0.1.evil.example/v1", "names a server of its own"),
        ("voyage:m?base_url=https://evil.example/v1&rpm=5", "names a server of its own"),
        (
            "openai:m?key_env=AWS_SECRET_ACCESS_KEY",
            "names an environment variable of its own",
        ),
        ("voyage:m?key_env=OPENAI_API_KEY", "names an environment variable of its own"),
    ],
)
def test_a_model_file_does_not_choose_who_gets_texts_and_keys(tmp_path, spec, message):
    model = saved(tmp_path, spec)
    with pytest.raises(EmbedderError, match=f"{message}.*if you trust it, pass .*--embedder") as e:
        Inference.open(model)
    assert "\n" not in str(e.value)
    with pytest.raises(EmbedderError, match="trust"):
        load_estimator(model)
    assert Inference.open(model, spec, cache=False).classifier.embedder_spec == spec


def test_a_model_file_may_name_this_machine_and_the_provider(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with ProviderServer(width=16) as server:
        spec = f"openai:m?base_url={server.url}/v1&key_env=OPENAI_API_KEY"
        rows = [Sample("hello", "?"), Sample("bye", "?")]
        assert Inference.open(saved(tmp_path / "a", spec)).predict_proba(rows).shape == (2, 2)
    Inference.open(saved(tmp_path / "b", "cohere:m?key_env=CO_API_KEY"))

"""`onnx-text:` on folders as exporters write them, through the real runtime and tokenizer."""

import json
import shutil

import numpy as np
import pytest

from adamab.errors import EmbedderError
from adamab.model import Classifier, Head
from adamab.model.predictor import Inference
from adamab.providers.async_bridge import run_sync
from adamab.providers.embedders.local import LocalEmbedder, bert_graph, find_folder
from adamab.providers.embedders.local_models import VIEWS
from adamab.providers.embedders.text_encoders import OnnxTextEmbedder
from adamab.providers.registry import resolve_embedder
from adamab.publish.onnx import check_script, write_onnx, write_script
from adamab.task.spec import Sample
from adamab.testing import check_embedder

onnx = pytest.importorskip("onnx", reason="the extra 'local' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'local' is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the extra 'local' is not installed")

TEXTS = ["send my money back", "the app crashes", "hello", "good bye world when i open it", ""]
LONG = "money back please hello world refund the app crashes when i open it good bye a hello world please"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(set(LONG.split()))]
WIDTH = 6
TABLE = np.random.default_rng(0).standard_normal((len(WORDS), WIDTH)).astype(np.float32)
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
IDS = ("input_ids", INT64, ("texts", "tokens"))
MASK = ("attention_mask", INT64, ("texts", "tokens"))


def save_tokenizer(folder, *, special=True):
    """A word is a token."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if special:
        tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))


def save_encoder(folder, *, outputs=("last_hidden_state",), inputs=(IDS, MASK), opset=17, special=True):
    """A table of word vectors: layer k is k + 1 times the vector; `sentence_embedding` is that of CLS."""
    folder.mkdir(parents=True, exist_ok=True)
    node, tensor = onnx.helper.make_node, onnx.numpy_helper.from_array
    nodes = [
        node("Gather", ["table", inputs[0][0]], ["hidden_states.0"]),
        node("Add", ["hidden_states.0", "hidden_states.0"], ["hidden_states.1"]),
        node("Add", ["hidden_states.0", "hidden_states.1"], ["last_hidden_state"]),
        node("Identity", ["last_hidden_state"], ["hidden_states.2"]),
        node("Gather", ["last_hidden_state", "zero"], ["sentence_embedding"], axis=1),
        node("Identity", ["last_hidden_state"], ["odd"]),
        node("Cast", [inputs[-1][0]], ["whole_numbers"], to=INT64),
    ]
    ranks = {"sentence_embedding": 2, "whole_numbers": 2}
    results = [
        onnx.helper.make_tensor_value_info(
            name, INT64 if name == "whole_numbers" else FLOAT, ["a", "b", "c"][: ranks.get(name, 3)]
        )
        for name in outputs
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "encoder",
        [onnx.helper.make_tensor_value_info(name, kind, list(shape)) for name, kind, shape in inputs],
        results,
        [tensor(TABLE, "table"), tensor(np.array(0), "zero")],
    )
    version = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=version, ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 16, "pad_token_id": 0}))
    save_tokenizer(folder, special=special)
    return folder


def write_modules(folder, *kinds, pooling=None):
    modules = [
        {"path": f"{n}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {}))


def vectors(text, limit=16):
    """The last layer's tokens by hand."""
    words = ["[CLS]", *text.split()[: limit - 2], "[SEP]"]
    return 3 * TABLE[[WORDS.index(word) if word in WORDS else 1 for word in words]]


def unit(vector):
    return vector / np.linalg.norm(vector)


async def test_mean_and_cls_pooling(tmp_path):
    folder = save_encoder(tmp_path / "m")
    answer = await OnnxTextEmbedder(str(folder), batch_size=2).embed([*TEXTS, LONG])
    expected = [unit(vectors(text).mean(axis=0)) for text in [*TEXTS, LONG]]
    np.testing.assert_allclose(answer.views["pooled"], expected, atol=1e-6)
    assert answer.overlong.tolist() == [False] * 5 + [True]
    check_embedder(OnnxTextEmbedder(str(folder)))
    for pooling in (
        {"pooling_mode": "cls"},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    ):
        write_modules(folder, "Transformer", "Pooling", "Normalize", pooling=pooling)
        answer = await OnnxTextEmbedder(str(folder)).embed(TEXTS)
        np.testing.assert_allclose(answer.views["pooled"], [unit(3 * TABLE[2])] * 5, atol=1e-6)


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 20])
async def test_views_of_inner_outputs(tmp_path, opset):
    layers = ("last_hidden_state", "hidden_states.2", "hidden_states.0", "hidden_states.1")
    embedder = OnnxTextEmbedder(str(save_encoder(tmp_path / "m", outputs=layers, opset=opset)))
    assert embedder.views == ("pooled", *VIEWS)
    answer = await embedder.embed(TEXTS)
    for row, text in enumerate(TEXTS):
        layers_of = np.stack([vectors(text) * scale for scale in (1 / 3, 2 / 3, 1)])
        first = np.zeros((3, 3, WIDTH))
        content = layers_of[:, 1:-1][:, :3]
        first[: content.shape[1]] = content.transpose(1, 0, 2)
        expected = {"layers": layers_of.mean(axis=1), "first": first, "max": layers_of.max(axis=1)}
        for view, values in expected.items():
            np.testing.assert_allclose(answer.views[view][row], values.ravel(), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(answer.views["pooled"][row], unit(vectors(text).mean(axis=0)), atol=1e-6)
    check_embedder(embedder)


async def test_a_graph_that_pools_itself(tmp_path):
    folder = save_encoder(tmp_path / "m", outputs=("hidden_states.1", "sentence_embedding"))
    write_modules(folder, "Transformer", "Pooling", "Dense", pooling={"pooling_mode": "lasttoken"})
    embedder = OnnxTextEmbedder(str(folder))
    assert embedder.views == ("pooled",)
    np.testing.assert_allclose(
        (await embedder.embed(TEXTS)).views["pooled"], [unit(3 * TABLE[2])] * 5, atol=1e-6
    )


async def test_inputs_of_other_exporters(tmp_path):
    int32, shape = onnx.TensorProto.INT32, ("n", "t")
    names = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
    folder = save_encoder(tmp_path / "m", inputs=[(name, int32, shape) for name in names])
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    answer = await OnnxTextEmbedder(str(folder)).embed(TEXTS)
    np.testing.assert_allclose(answer.views["pooled"][0], unit(vectors(TEXTS[0]).mean(axis=0)), atol=1e-6)


async def test_a_text_without_any_token_has_a_vector(tmp_path):
    embedder = OnnxTextEmbedder(str(save_encoder(tmp_path / "m", special=False)))
    pooled = (await embedder.embed(["", "hello"])).views["pooled"]
    np.testing.assert_allclose(pooled, [unit(TABLE[0]), unit(TABLE[WORDS.index("hello")])], atol=1e-6)


async def test_long_texts_are_averaged_over_their_pieces(tmp_path):
    embedder = OnnxTextEmbedder(str(save_encoder(tmp_path / "m")), long_texts="average")
    words = LONG.split()
    answer = await embedder.embed([LONG, " ".join(words[:14]), " ".join(words[14:])])
    assert answer.overlong.tolist() == [True, False, False]
    pooled = answer.views["pooled"]
    expected = 14 * pooled[1] + (len(words) - 14) * pooled[2]
    np.testing.assert_allclose(pooled[0], unit(expected), atol=1e-5)


def inlined(model, weights):
    """The graph with its weights inside, as an exporter writes it."""
    del model.graph.initializer[:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in weights.items())
    content = model.SerializeToString()
    return content


def exported(source, folder, *, heads):
    """A sentence-transformers model with an ONNX file in place of its weights."""
    from safetensors.numpy import load_file

    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "onnx").mkdir()
    content = inlined(*bert_graph(load_file(source / "model.safetensors"), heads=heads, epsilon=1e-12))
    (folder / "onnx" / "model.onnx").write_bytes(content)
    return folder


async def test_an_export_of_the_built_in_model(tmp_path):
    source = find_folder()
    if source is None:
        pytest.skip("the weights of all-MiniLM-L6-v2 are not installed")
    embedder = resolve_embedder(f"onnx-text:{exported(source, tmp_path / 'm', heads=12)}")
    texts = [*TEXTS, "word " * 300]
    answer, expected = await embedder.embed(texts), await LocalEmbedder().embed(texts)
    assert embedder.views == LocalEmbedder.views
    assert answer.overlong.tolist() == expected.overlong.tolist() == [False] * 5 + [True]
    for view, values in expected.views.items():
        np.testing.assert_allclose(answer.views[view], values, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("kind", ["query", "class"])
async def test_prompts_as_in_sentence_transformers(tiny_model, tmp_path, kind, include_prompt):
    source = tmp_path / "source"
    shutil.copytree(tiny_model, source)
    for file, change in (
        ("config_sentence_transformers.json", {"prompts": {"query": "query : ", "document": "class : a "}}),
        ("1_Pooling/config.json", {"include_prompt": include_prompt}),
    ):
        (source / file).write_text(json.dumps({**json.loads((source / file).read_text()), **change}))
    embedder = OnnxTextEmbedder(str(exported(source, tmp_path / "m", heads=2)))
    reference = resolve_embedder(f"st:{source}")
    texts = [*TEXTS, LONG]
    answer, expected = await embedder.embed(texts, kind=kind), await reference.embed(texts, kind=kind)
    assert answer.overlong.tolist() == expected.overlong.tolist()
    for view, values in expected.views.items():
        np.testing.assert_allclose(answer.views[view], values, rtol=1e-3, atol=1e-5, err_msg=view)


def test_the_fingerprint_is_what_decides_the_vectors(tmp_path):
    folder = save_encoder(tmp_path / "m")
    write_modules(folder, "Transformer", "Pooling")
    reference = OnnxTextEmbedder(str(folder)).fingerprint
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    (moved / "README.md").write_text("words")
    assert OnnxTextEmbedder(str(moved), batch_size=3, device="cpu").fingerprint == reference
    prints = {reference, OnnxTextEmbedder(str(folder), long_texts="average").fingerprint}
    for file, content in (
        ("sentence_bert_config.json", {"max_seq_length": 8}),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}),
        ("config_sentence_transformers.json", {"prompts": {"query": "hello "}}),
    ):
        (moved / file).write_text(json.dumps(content))
        prints.add(OnnxTextEmbedder(str(moved)).fingerprint)
    save_tokenizer(moved, special=False)
    prints.add(OnnxTextEmbedder(str(moved)).fingerprint)
    save_encoder(moved, opset=13)
    prints.add(OnnxTextEmbedder(str(moved)).fingerprint)
    assert len(prints) == 7


def put(name, content):
    return lambda folder: (folder / name).write_text(
        content if isinstance(content, str) else json.dumps(content)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "model.onnx").unlink(), "has no model.onnx; export the encoder"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json; save the encoder's"),
        (shutil.rmtree, "no such folder; give one with model.onnx and tokenizer.json"),
        (put("model.onnx", "hello"), "is not an ONNX file, or it is damaged"),
        (put("tokenizer.json", "{}"), "tokenizer.json: the model cannot be loaded"),
        (put("config.json", "{}x"), "config.json: is no JSON object; the model is damaged"),
        (put("config.json", []), "config.json: is no JSON object; the model is damaged"),
        (put("config.json", {}), "does not say how many tokens the encoder takes"),
        (put("modules.json", "{}x"), "not a list of modules; the model is damaged"),
        (lambda f: write_modules(f, "Transformer", "Dense"), "'sentence_transformers.models.Dense' is"),
        (
            lambda f: write_modules(f, "Transformer", "Pooling", pooling={"pooling_mode": ["mean", "max"]}),
            "pools by mean, max; use st:",
        ),
        (
            lambda f: write_modules(f, "Transformer", "Pooling", pooling={"pooling_mode_lasttoken": True}),
            "pools by lasttoken; use st:",
        ),
        (
            lambda f: save_encoder(f, outputs=("odd", "whole_numbers")),
            "none of its outputs (odd, whole_numbers) is named last_hidden_state",
        ),
        (lambda f: save_encoder(f, outputs=("whole_numbers",)), "not a vector per text or per token"),
        (lambda f: save_encoder(f, inputs=[IDS]), "has no input 'attention_mask'"),
        (lambda f: save_encoder(f, inputs=[(*IDS[:2], (1, 16)), MASK]), "'input_ids' has the fixed shape"),
        (lambda f: save_encoder(f, inputs=[IDS, MASK, ("past.0", *IDS[1:])]), "its input 'past.0' is"),
        (lambda f: save_encoder(f, inputs=[IDS, (MASK[0], FLOAT, MASK[2])]), "is tensor(float) of shape"),
    ],
)  # fmt: skip
async def test_folders_that_do_not_fit(tmp_path, change, message):
    folder = save_encoder(tmp_path / "m")
    change(folder)
    with pytest.raises(EmbedderError) as caught:
        await resolve_embedder(f"onnx-text:{folder}").embed(["hello"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("outputs", [("last_hidden_state",), ("hidden_states.0", "hidden_states.1"),
                                     ("sentence_embedding",)])  # fmt: skip
def test_an_exported_classifier_encodes_alike(tmp_path, outputs):
    """Prompt, pooling and every view, in the script that `adamab export` ships."""
    folder = save_encoder(tmp_path / "m", outputs=outputs)
    write_modules(folder, "Transformer", "Pooling", pooling={"include_prompt": False})
    prompts = {"prompts": {"query": "money "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    embedder, rng = OnnxTextEmbedder(str(folder)), np.random.default_rng(0)
    views = run_sync(embedder.embed(["a"])).views
    from adamab.publish.standalone import TextClassifier  # needs onnxruntime to be imported

    heads = tuple(
        Head(view=view, linear=rng.standard_normal((3, rows.shape[1])).astype(np.float32))
        for view, rows in views.items()
    )
    classifier = Classifier(
        classes=("a", "b", "c"), heads=heads, fingerprint=embedder.fingerprint, query_prompt="hello {text}"
    )
    inference = Inference(classifier, embedder)
    write_onnx(classifier, tmp_path)
    assert write_script(classifier, inference, tmp_path)
    texts = [*TEXTS, LONG]
    expected = inference.predict_proba([Sample(text, "") for text in texts])
    np.testing.assert_allclose(TextClassifier(tmp_path).probabilities(texts), expected, atol=1e-5)
    assert check_script(inference, tmp_path) < 1e-5

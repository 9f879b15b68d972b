"""`onnx:` on small networks that the tests write, through the real runtime."""

import numpy as np
import pytest

from adamab.errors import EmbedderError
from adamab.providers.embedders.local_models import Preparation, without_ends
from adamab.providers.embedders.onnx import SCALES, OnnxEmbedder
from adamab.task.images import Image, digest_of
from adamab.testing import check_embedder

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
pillow = pytest.importorskip("PIL.Image", reason="the extra 'onnx' is not installed")

SIDE, CHANNELS, CLASSES = 8, 5, 3
WEIGHTS = np.random.default_rng(0).standard_normal((CHANNELS, 3, 3, 3)).astype(np.float32)
HEAD = np.random.default_rng(1).standard_normal((CHANNELS, CLASSES)).astype(np.float32)


def save_network(path, *, shape=("n", 3, SIDE, SIDE), half=False, outputs=("flat", "logits")):
    """A convolution, pooling and a classifier; NHWC is turned round first, as converters do it."""
    number = np.float16 if half else np.float32
    kind = onnx.TensorProto.FLOAT16 if half else onnx.TensorProto.FLOAT
    node = onnx.helper.make_node
    last = shape[-1] == 3
    nodes = [node("Transpose", ["pixels"], ["turned"], perm=[0, 3, 1, 2])] if last else []
    nodes += [
        node("Conv", ["turned" if last else "pixels", "weights"], ["maps"], strides=[2, 2]),
        node("Transpose", ["maps"], ["maps_last"], perm=[0, 2, 3, 1]),
        node("GlobalAveragePool", ["maps"], ["pool"]),
        node("Flatten", ["pool"], ["flat"]),
        node("Reshape", ["maps_last", "tokens_shape"], ["tokens"]),
        node("MatMul", ["flat", "head"], ["logits"]),
        node("ArgMax", ["logits"], ["best"], axis=1),
    ]
    tensor = onnx.numpy_helper.from_array
    weights = [
        tensor(WEIGHTS.astype(number), "weights"),
        tensor(HEAD.astype(number), "head"),
        tensor(np.array([0, -1, CHANNELS]), "tokens_shape"),
    ]
    inputs = [onnx.helper.make_tensor_value_info("pixels", kind, list(shape))]
    last = [onnx.helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "network", inputs, last, weights)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.fixture
def network(tmp_path):
    return save_network(tmp_path / "network.onnx")


@pytest.fixture
def images(tmp_path):
    """Not so large that decoding shrinks them, which `prepared` does not do."""
    random, images = np.random.default_rng(0), []
    for number, (height, width) in enumerate([(9, 9), (20, 14), (12, 30), (16, 16), (40, 11)]):
        path = tmp_path / f"{number}.png"
        pillow.fromarray(random.integers(0, 256, (height, width, 3), np.uint8)).save(path)
        images.append(Image(digest_of(path.read_bytes()), path))
    return images


def prepared(image, scale="imagenet", resize=9):
    """The same by hand: shorter side to `resize`, the middle, normalised."""
    sample_image = pillow.open(image.path)
    factor = resize / min(sample_image.size)
    width, height = (max(resize, int(side * factor)) for side in sample_image.size)
    sample_image = sample_image.resize((width, height), pillow.Resampling.BICUBIC)
    top, left = round((height - SIDE) / 2), round((width - SIDE) / 2)
    x = np.asarray(sample_image, np.float64)[top : top + SIDE, left : left + SIDE]
    mean, std, unit = SCALES[scale]
    return (x / (255 if unit else 1) - np.array(mean)) / np.array(std)


def expected(images, *, logits=False, **how):
    """The network computed by hand."""
    rows = []
    for image in images:
        x = prepared(image, **how)
        patches = [x[r : r + 3, c : c + 3].transpose(2, 0, 1) for r in (0, 2, 4) for c in (0, 2, 4)]
        maps = np.stack([np.tensordot(WEIGHTS, patch, 3) for patch in patches])
        rows.append(maps.mean(axis=0) @ HEAD if logits else maps.mean(axis=0))
    return np.stack([row / np.linalg.norm(row) for row in rows])


async def test_the_last_output_is_the_default(network, images):
    answer = await OnnxEmbedder(str(network), batch_size=2).embed(images)
    np.testing.assert_allclose(answer.views["pooled"], expected(images, logits=True), atol=1e-5)
    assert not answer.overlong.any()


@pytest.mark.parametrize("output", ["flat", "pool", "maps", "maps_last", "tokens"])
@pytest.mark.parametrize(
    "shape", [("n", 3, SIDE, SIDE), (1, 3, SIDE, SIDE), ("n", SIDE, SIDE, 3), (4, SIDE, SIDE, 3)]
)
async def test_inner_outputs_in_every_layout(tmp_path, images, output, shape):
    file = save_network(tmp_path / "n.onnx", shape=shape)
    answer = await OnnxEmbedder(str(file), output=output, batch_size=2).embed(images)
    np.testing.assert_allclose(answer.views["pooled"], expected(images), atol=1e-5)


async def test_half_precision(tmp_path, images):
    file = save_network(tmp_path / "half.onnx", half=True)
    answer = await OnnxEmbedder(str(file), output="flat").embed(images)
    assert answer.views["pooled"].dtype == np.float32
    np.testing.assert_allclose(answer.views["pooled"], expected(images), atol=1e-2)


async def test_sizes_where_the_file_takes_any(tmp_path, images):
    file = save_network(tmp_path / "any.onnx", shape=("n", "c", "h", "w"))
    for scale in SCALES:
        embedder = OnnxEmbedder(str(file), output="flat", size=SIDE, resize=12, scale=scale)
        vectors = (await embedder.embed(images)).views["pooled"]
        np.testing.assert_allclose(vectors, expected(images, resize=12, scale=scale), atol=1e-5)
    usual = OnnxEmbedder(str(file), output="flat")
    await usual.embed(images[:1])
    assert (usual._loaded.preparation.height, usual._loaded.preparation.cover) == (224, (256, 256))


def test_conformance(network, images):
    embedder = OnnxEmbedder(str(network), output="flat", batch_size=2)
    assert (embedder.views, embedder.modalities) == (("pooled",), {"image"})
    check_embedder(embedder, images=images)


def test_the_fingerprint_is_the_content_and_what_changes_vectors(network, tmp_path):
    reference = OnnxEmbedder(str(network)).fingerprint
    moved = tmp_path / "elsewhere.onnx"
    moved.write_bytes(network.read_bytes())
    assert OnnxEmbedder(str(moved), batch_size=3, device="cpu").fingerprint == reference
    options = [{"output": "flat"}, {"size": 8}, {"resize": 9}, {"scale": "half"}]
    others = [OnnxEmbedder(str(network), **option).fingerprint for option in options]
    data = bytearray(moved.read_bytes())
    data[data.index(WEIGHTS.tobytes())] ^= 1
    moved.write_bytes(data)
    assert len({reference, OnnxEmbedder(str(moved)).fingerprint, *others}) == 6


async def refusal(embedder, images):
    with pytest.raises(EmbedderError) as caught:
        await embedder.embed(images)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_outputs_and_sizes_that_do_not_fit(network, images):
    message = await refusal(OnnxEmbedder(str(network), output="map"), images)
    assert "has no output 'map'; near it: maps, maps_last" in message
    message = await refusal(OnnxEmbedder(str(network), output="????"), images)
    assert "near it: tokens, logits, best" in message
    message = await refusal(OnnxEmbedder(str(network), output="best"), images)
    assert "its output for 5 images is int64 of shape (5, 1), which are no features" in message
    message = await refusal(OnnxEmbedder(str(network), size=16), images)
    assert "size is 16, but the file takes 8 x 8 pixels" in message
    assert "use 8 or more" in await refusal(OnnxEmbedder(str(network), resize=7), images)


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" + bytes(50), b"hello", b"\x08\x08"])
async def test_files_that_are_no_onnx(tmp_path, images, content):
    file = tmp_path / "not.onnx"
    file.write_bytes(content)
    assert "not.onnx: is not an ONNX file, or it is damaged" in await refusal(OnnxEmbedder(str(file)), images)


async def test_a_graph_that_makes_no_sense(network, images):
    model = onnx.load(network)
    del model.graph.initializer[0]
    onnx.save(model, network)
    assert "the model cannot be loaded" in await refusal(OnnxEmbedder(str(network)), images)


@pytest.mark.parametrize(
    ("shape", "more"),
    [(("n", 1, 8, 8), False), (("n", 3), False), (("n", 4, 8, 8), False), (("n", 3, 8, 8), True)],
)
async def test_inputs_that_are_no_images(tmp_path, images, shape, more):
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    names = ["x", "z"] if more else ["x"]
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in names]
    out = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)]
    graph = onnx.helper.make_graph([node], "g", inputs, out)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "odd.onnx")
    message = await refusal(OnnxEmbedder(str(tmp_path / "odd.onnx")), images)
    assert ("has 2 inputs" if more else "not float images in three colours") in message


@pytest.mark.parametrize("inside", ["graph", "node"])
async def test_weights_in_other_files_are_refused(network, images, inside):
    model = onnx.load(network)
    if inside == "graph":
        onnx.external_data_helper.set_external_data(model.graph.initializer[0], "weights.bin")
    else:
        constant = onnx.helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(WEIGHTS))
        onnx.external_data_helper.set_external_data(constant.attribute[0].t, "../../secret")
        model.graph.node.insert(0, constant)
    network.write_bytes(model.SerializeToString())
    assert "keeps weights in files beside it" in await refusal(OnnxEmbedder(str(network)), images)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "torch"}, "scale is 'torch'; use one of: imagenet, half, none, raw"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"size": 0}, "size is 0; use 1 to 4096"),
        ({"resize": 99999}, "resize is 99999; use 1 to 4096"),
        ({"device": "tpu"}, "device is 'tpu'; use 'auto' or 'cpu'"),
    ],
)
def test_bad_options(network, options, message):
    with pytest.raises(EmbedderError, match=message):
        OnnxEmbedder(str(network), **options)
    with pytest.raises(EmbedderError, match="no such file; give the path of an ONNX file"):
        OnnxEmbedder(str(network.parent))


@pytest.mark.parametrize(("height", "width"), [(1, 50_000), (50_000, 1)])
def test_a_line_of_pixels_needs_no_gigabytes(height, width):
    line = pillow.new("RGB", (width, height), (10, 20, 30))
    assert without_ends(line).size in {(4, 1), (1, 4)}
    assert Preparation(224, 224).cropped(line).getpixel((5, 5)) == (10, 20, 30)

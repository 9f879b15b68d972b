"""A classifier as an ONNX graph: one tensor per view in, logits and probabilities out.

Beside the graph of a text classifier lies a script that takes texts, and the encoder where that can be
exported.

The graph says what `Head.add_logits` does, step by step and in the same order, so that both round alike.
The words' view comes in as a dense tensor of TF-IDF values, columns in the order of the vocabulary.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adamab.errors import AdamabError, MissingExtraError, RunError, one_line, short
from adamab.model.classifier import WORDS
from adamab.model.predictor import Inference
from adamab.providers.embedders.local_models import FIRST_TOKENS
from adamab.providers.embedders.text_encoders import TextEncoderEmbedder
from adamab.publish.model_card import public_fingerprint, without_place
from adamab.task import lexical
from adamab.task.spec import Sample
from adamab.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.model import Classifier, Head

    Floats = NDArray[np.float32]

FILE = "model.onnx"
SCRIPT, HELPER, ENCODER, TOKENIZER = "classify.py", "lexical.py", "encoder.onnx", "tokenizer.json"
FILES = (FILE, SCRIPT, HELPER, ENCODER, TOKENIZER)
LOGITS, PROBABILITIES = "logits", "probabilities"
TOLERANCE, TEXT_TOLERANCE = 1e-5, 1e-4
_OPSET, _IR_VERSION = 17, 8  # of 2022; onnxruntime 1.18 reads opset 21 and IR 10
_LARGEST = 2**31 - 2**20  # bytes of weights; a protobuf message ends at 2 GiB
_SMALLEST_NORM = 1e-12  # this and the next as in adamab.model.heads
_ROUNDING = 1e-12
_RANDOM_ROWS, _EMBEDDED_ROWS = 64, 32
_LONGEST = 12  # terms of a random text
_IMPORT = "from adamab.task.lexical import terms"


@dataclass(frozen=True)
class Rows:
    """Inputs of a classifier on which the graph is compared with NumPy."""

    views: Mapping[str, Floats]  # (n, d) each
    texts: list[str] | None  # where there is a vocabulary
    embedded: int = 0  # how many of them, the last ones, an embedder made

    def __str__(self) -> str:
        noun = "sample" if self.embedded == 1 else "samples"
        return f"{_RANDOM_ROWS} random rows" + (
            f" and {self.embedded} embedded {noun}" if self.embedded else ""
        )


def write_onnx(classifier: Classifier, folder: Path) -> None:
    """Write the graph into `folder`."""
    if find_spec("onnx") is None:
        raise MissingExtraError("onnx", "onnx")
    import onnx

    size = sum(array.nbytes for head in classifier.heads for array in head.arrays.values())
    if size > _LARGEST:
        raise RunError(f"the weights have {size} bytes and an ONNX file at most {_LARGEST}; use --format hub")
    library: Any = onnx
    model = onnx_model(classifier)
    library.checker.check_model(model, full_check=True)
    (folder / FILE).write_bytes(model.SerializeToString())


def onnx_model(classifier: Classifier) -> Any:
    """The `onnx.ModelProto`."""
    import onnx

    helper: Any = onnx.helper
    graph = _Graph(helper)
    inputs = [graph.input(view, width) for view, width in input_widths(classifier).items()]
    outputs = [graph.output(name, len(classifier.classes)) for name in (LOGITS, PROBABILITIES)]
    parts = [_head(graph, head) for head in classifier.heads]
    graph.add("Sum", parts, LOGITS)
    graph.add("Softmax", [LOGITS], PROBABILITIES, axis=1)
    made = helper.make_graph(graph.nodes, "adamab", inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    model.producer_name = "adamab"
    texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in metadata(classifier).items()}
    helper.set_model_props(model, texts)
    return model


def input_widths(classifier: Classifier) -> dict[str, int]:
    """The inputs' names and widths."""
    widths = {head.view: head.width for head in classifier.heads}
    for view in widths:
        if view in (LOGITS, PROBABILITIES) or view.startswith("/"):
            raise RunError(f"view {short(view)} has a name that the graph needs itself; use --format hub")
    return widths


def metadata(classifier: Classifier) -> dict[str, Any]:
    """Names and origin of a classifier, without servers and folders of this machine.

    `temperature` is multiplied into the weights already, nobody has to apply it.
    """
    known: dict[str, Any] = {
        "format": "adamab-export",
        "adamab": __version__,
        "classes": list(classifier.classes),
        "views": list(dict.fromkeys(head.view for head in classifier.heads)),
        "modality": classifier.metadata.get("modality", "text"),
        "embedder": without_place(classifier.embedder_spec),
        "fingerprint": public_fingerprint(classifier.fingerprint),
        "query_prompt": classifier.query_prompt,
    }
    if (labels := classifier.metadata.get("labels")) is not None:
        known["labels"] = labels
    if classifier.confidence is not None:
        known["temperature"] = classifier.confidence.temperature
    if classifier.vocabulary is not None:
        known["vocabulary"] = classifier.vocabulary.to_json()
    return known


def check_onnx(classifier: Classifier, folder: Path, rows: Rows) -> tuple[str, float | None]:
    """Compare the written file with NumPy; a `RunError` if they differ.

    Args:
        classifier: What the file was written from.
        folder: Where the file is.
        rows: What both compute probabilities of.

    Returns:
        What was checked, and the largest difference of a probability, None if nothing was run.
    """
    if find_spec("onnxruntime") is None:
        return "onnx.checker; not run, since onnxruntime is not installed", None
    import onnxruntime

    library: Any = onnxruntime
    options = library.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    try:
        session = library.InferenceSession(folder / FILE, options, providers=["CPUExecutionProvider"])
        logits, probabilities = session.run([LOGITS, PROBABILITIES], dense_inputs(classifier, rows))
    except Exception as error:  # onnxruntime has no base class for its errors
        raise RunError(f"onnxruntime cannot run {FILE}: {one_line(error)}") from None
    expected = classifier.logits(rows.views, rows.texts)
    off = float(np.abs(probabilities - classifier.predict_proba(rows.views, rows.texts)).max())
    off_logits = float(np.abs(logits - expected).max())
    # Written so that a value that is no number is refused too.
    if not (off <= TOLERANCE and off_logits <= TOLERANCE * (1 + float(np.abs(expected).max()))):
        raise RunError(
            f"onnxruntime differs from NumPy by {off:.2g} in a probability and {off_logits:.2g} in a logit "
            f"(at most {TOLERANCE:g}); nothing was written, please report it"
        )
    return f"onnx.checker; onnxruntime {library.__version__} against NumPy on {rows}", off


def local_inference(run: Path, embedder: str | None) -> Inference | None:
    """The model in `run` with its embedder, if that is on this machine.

    Args:
        run: Where the model is saved, with the name of its embedder.
        embedder: To use instead of that one; if it cannot be opened, that is an error.
    """
    try:
        inference = Inference.open(run, embedder, cache=False)
    except AdamabError:
        if embedder is not None:  # whoever names one wants to know
            raise
        return None
    return None if inference.remote else inference


def write_script(classifier: Classifier, inference: Inference | None, folder: Path) -> bool:
    """Write what makes texts of the graph's inputs: a script, and the encoder if it can be exported.

    A classifier of texts with neither words nor such an encoder gets none: its inputs are vectors alone.

    Args:
        classifier: A classifier of texts.
        inference: The same with its embedder, if that is on this machine.
        folder: Where the graph is.

    Returns:
        Whether the script needs no vectors from elsewhere.
    """
    embedder = None if inference is None else inference.embedder
    has_encoder = (
        isinstance(embedder, TextEncoderEmbedder)
        and embedder.long_texts == "cut"
        and _write_encoder(embedder, folder)
    )
    script = Path(__file__).with_name("standalone.py").read_text("utf-8")
    if classifier.vocabulary is not None:
        (folder / HELPER).write_bytes(Path(lexical.__file__).read_bytes())
        script = script.replace(_IMPORT, f"from {Path(HELPER).stem} import terms")
    elif has_encoder:
        script = script.replace(_IMPORT, "terms = str.split  # not called: there is no vocabulary")
    else:
        return False
    (folder / SCRIPT).write_text(script, "utf-8")
    return has_encoder or not classifier.views


def _write_encoder(embedder: TextEncoderEmbedder, folder: Path) -> bool:
    """Write graph and tokenizer, if one file can hold the weights."""
    from onnx import helper, numpy_helper

    parts = embedder.take_apart()
    model, settings = parts.model, asdict(parts.settings)
    if model.ByteSize() + sum(weights.nbytes for weights in parts.weights.values()) > _LARGEST:
        return False
    for tensor in model.graph.initializer:
        if tensor.name in parts.weights:
            tensor.CopyFrom(numpy_helper.from_array(parts.weights[tensor.name], tensor.name))
    settings["prompt"] = settings.pop("prompts").get("query", "")
    settings |= {"layers": parts.layers, "first_tokens": FIRST_TOKENS if len(embedder.views) > 1 else 0}
    helper.set_model_props(model, {"settings": json.dumps(settings)})
    (folder / ENCODER).write_bytes(model.SerializeToString())
    (folder / TOKENIZER).write_bytes(parts.tokenizer.read_bytes())
    return True


def check_script(inference: Inference, folder: Path) -> float:
    """Run the script on the classes' names; a `RunError` if it answers otherwise than the classifier.

    Args:
        inference: The classifier with its embedder, if it has one.
        folder: Where the script is.

    Returns:
        The largest difference of a probability.
    """
    names = [one_line(name) for name in inference.classifier.classes[:_EMBEDDED_ROWS]]
    process = subprocess.run(
        [sys.executable, folder / SCRIPT], input="\n".join(names), capture_output=True, encoding="utf-8"
    )
    if process.returncode:
        raise RunError(f"{SCRIPT} failed: {one_line(process.stderr.strip().rpartition(chr(10))[2])}")
    answers = [list(json.loads(line)["probabilities"].values()) for line in process.stdout.splitlines()]
    off = float(np.abs(inference.predict_proba([Sample(name, name) for name in names]) - answers).max())
    if not off <= TEXT_TOLERANCE:
        raise RunError(
            f"{SCRIPT} differs by {off:.2g} in a probability (at most {TEXT_TOLERANCE:g}); nothing was "
            "written, please report it"
        )
    return off


def check_rows(classifier: Classifier, inference: Inference | None) -> Rows:
    """Random rows, and the classes' names if an embedder of this machine knows them: no API is called.

    Args:
        classifier: The model to check.
        inference: The same with its embedder, if that is on this machine.
    """
    random = random_rows(classifier)
    if inference is None or inference.modality == "image":
        return random
    names = list(classifier.classes[:_EMBEDDED_ROWS])
    try:
        embedded = inference.views([Sample(name, name) for name in names])
    except AdamabError:  # vectors that are looked up, and not there: the random ones remain
        return random
    views = {view: np.concatenate([random.views[view], embedded[view]]) for view in classifier.views}
    return Rows(views, None if random.texts is None else [*random.texts, *names], len(names))


def random_rows(classifier: Classifier) -> Rows:
    """Directions at random, and the rows where a norm is zero: nothing at all, and the centre itself."""
    rng = np.random.default_rng(0)
    views = {}
    for head in classifier.heads:
        if head.view != WORDS and head.view not in views:
            rows = rng.standard_normal((_RANDOM_ROWS, head.width)).astype(np.float32)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            rows[0] = 0
            rows[1] = 0 if head.centre is None else head.centre
            views[head.view] = rows
    if classifier.vocabulary is None:
        return Rows(views, None)
    terms = classifier.vocabulary.terms or ("",)
    drawn = (rng.integers(len(terms), size=rng.integers(1, _LONGEST)) for _ in range(_RANDOM_ROWS - 1))
    return Rows(views, ["", *(" ".join(terms[index] for index in indices) for indices in drawn)])


def dense_inputs(classifier: Classifier, rows: Rows) -> dict[str, Floats]:
    """Every view as a matrix, the words as well."""
    inputs = dict(rows.views)
    if classifier.vocabulary is not None and rows.texts is not None:
        inputs[WORDS] = classifier.vocabulary.transform(rows.texts).toarray()
    return inputs


def _head(graph: _Graph, head: Head) -> str:
    """Nodes for one head; returns the name of its logits (n, K)."""
    query, divisors = _query(graph, head)
    first = np.concatenate([head.linear, *head.tower[:1]])
    products = graph.add("MatMul", [query, graph.constant(first.T)])
    if divisors:
        products = graph.add("Div", [products, divisors])
    logits = products if head.hidden is None else graph.columns(products, 0, len(head.linear))
    if head.bias is not None:
        logits = graph.add("Add", [logits, graph.constant(head.bias)])
    if head.hidden is not None:
        units = _activated(graph, graph.columns(products, len(head.linear), len(first)), head.activation)
        for layer in head.tower[1:]:
            units = _activated(graph, graph.add("MatMul", [units, graph.constant(layer.T)]), head.activation)
        logits = graph.add("Add", [logits, graph.add("MatMul", [units, graph.constant(head.hidden.T)])])
    return logits


def _query(graph: _Graph, head: Head) -> tuple[str, str]:
    """Names of q before its division, (n, r), and of what to divide by, (n, 1), if anything."""
    if head.view == WORDS and head.basis is not None:
        query = graph.add("MatMul", [head.view, graph.constant(head.basis)])
        if head.centre is not None:
            query = graph.add("Sub", [query, graph.constant(head.centre @ head.basis)])
        return query, _word_divisors(graph, head.centre) if head.normalise else ""
    z = head.view
    if head.centre is not None:
        z = graph.add("Sub", [z, graph.constant(head.centre)])
    query = z if head.basis is None else graph.add("MatMul", [z, graph.constant(head.basis)])
    return query, _divisors(graph, z) if head.normalise else ""


def _divisors(graph: _Graph, z: str) -> str:
    # An overflow is to be seen in the logits, not to vanish.
    norms = graph.add("Sqrt", [graph.row_sums(graph.add("Mul", [z, z]))])
    at_least = graph.add("Max", [norms, graph.constant(np.float32(_SMALLEST_NORM))])
    return graph.add("Where", [graph.add("IsInf", [at_least]), graph.constant(np.float32(np.nan)), at_least])


def _word_divisors(graph: _Graph, centre: Floats | None) -> str:
    # ‖x - c‖² = ‖x‖² - 2 x·c + ‖c‖² in float64, and 0 where nothing but rounding is left of it.
    x = graph.add("Cast", [WORDS], to=graph.double)
    squares = graph.row_sums(graph.add("Mul", [x, x]))
    norms = graph.add("Sqrt", [squares])
    if centre is not None:
        c = centre.astype(np.float64)
        whole = graph.add("Add", [squares, graph.constant(c @ c)])
        distances = graph.add("Sub", [whole, graph.add("MatMul", [x, graph.constant(2 * c[:, None])])])
        bound = graph.add("Mul", [whole, graph.constant(np.float64(_ROUNDING))])
        is_apart = graph.add("Greater", [distances, bound])
        kept = graph.add("Where", [is_apart, distances, graph.constant(np.float64(np.inf))])
        norms = graph.add("Sqrt", [kept])
    at_least = graph.add("Max", [norms, graph.constant(np.float64(_SMALLEST_NORM))])
    return graph.add("Cast", [at_least], to=graph.float)


def _activated(graph: _Graph, a: str, activation: str) -> str:
    if activation == "gelu":
        erf = graph.add("Erf", [graph.add("Mul", [a, graph.constant(np.float32(math.sqrt(0.5)))])])
        gate = graph.add("Add", [erf, graph.constant(np.float32(1))])
        return graph.add("Mul", [graph.add("Mul", [a, gate]), graph.constant(np.float32(0.5))])
    if activation == "silu":
        return graph.add("Mul", [a, graph.add("Sigmoid", [a])])
    return graph.add({"relu": "Relu", "tanh": "Tanh"}[activation], [a])


class _Graph:
    """Nodes and constants as they gather; names begin with a slash, so that no view has one of them."""

    def __init__(self, helper: Any) -> None:
        import onnx

        kinds: Any = onnx.TensorProto
        self._helper, self.float, self.double = helper, kinds.FLOAT, kinds.DOUBLE
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, width: int) -> Any:
        return self._helper.make_tensor_value_info(name, self.float, ["n", width])

    output = input

    def add(self, operator: str, inputs: list[str], name: str = "", **attributes: Any) -> str:
        output = name or f"/{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"/constant/{len(self.constants)}"
        self.constants.append(
            numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
        )
        return name

    def columns(self, matrix: str, start: int, stop: int) -> str:
        bounds = [self.constant(np.array([bound], np.int64)) for bound in (start, stop, 1)]
        return self.add("Slice", [matrix, *bounds])

    def row_sums(self, matrix: str) -> str:
        return self.add("ReduceSum", [matrix, self.constant(np.array([1], np.int64))], keepdims=1)

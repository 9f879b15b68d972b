"""Classes and probabilities with Spark: every worker process opens model and embedder once.

    python examples/spark_predict.py RUN INPUT OUT

RUN is a run, or the folder of `adamab export --format hub`, at the same path on all machines. INPUT is JSON
lines with `text`, or Parquet with `text` or with `vector`. OUT becomes a folder of Parquet files: the input's
columns and `class`, `probability` and `error`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache

import numpy as np
import pandas as pd

from adamab.errors import TaskError
from adamab.model import Classifier, PredictOptions, load
from adamab.model.predictor import Inference
from adamab.task import Sample
from adamab.task.words import checked

RESULT = "class string, probability double, error string"
ROWS = 512  # a batch: with all views of the local embedder 14,000 numbers a row are in memory


@cache
def opened(folder: str) -> Inference:
    """Model and embedder, once in a process. No vectors are kept: workers would share one SQLite file."""
    return Inference.open(folder, cache=False)


@cache
def opened_classifier(folder: str) -> Classifier:
    """The model alone, once in a process."""
    return load(folder)


def predict_texts(frames: Iterator[pd.DataFrame], folder: str) -> Iterator[pd.DataFrame]:
    """The frames with the classes of `text`; this is what mapInPandas calls."""
    model = opened(folder)
    for frame in frames:
        errors = [text_error(text) for text in frame["text"]]
        good = [Sample(text.strip(), "") for text in frame["text"][no_error(errors)]]
        answers = model.answers(good, PredictOptions())
        indices, probabilities = answers.indices[:, 0], answers.probabilities[:, 0]
        yield with_answers(frame, errors, model.classifier, indices, probabilities)


def predict_vectors(frames: Iterator[pd.DataFrame], folder: str) -> Iterator[pd.DataFrame]:
    """The frames with the classes of `vector`, for a model of the view `pooled` alone."""
    classifier = opened_classifier(folder)
    width = classifier.heads[0].width
    for frame in frames:
        errors = [vector_error(vector, width) for vector in frame["vector"]]
        good = frame["vector"][no_error(errors)]
        pooled = np.array(list(good), np.float32).reshape(-1, width)  # (n, d), also where no row is good
        numbers, shares = classifier.top_k({"pooled": pooled}, 1)
        yield with_answers(frame, errors, classifier, numbers[:, 0], shares[:, 0])


def text_error(text: object) -> str | None:
    """What is wrong with a text: none, an empty one, characters that no file can hold."""
    try:
        checked(text if isinstance(text, str) else "", "row", "text")
    except TaskError as error:
        return str(error)
    return None


def vector_error(vector: object, width: int) -> str | None:
    """What is wrong with a vector: none, another width, a number that is not finite."""
    numbers = np.asarray([] if vector is None else vector)
    if numbers.shape != (width,):
        return f"row: vector has {numbers.size} numbers, the model takes {width}"
    return None if np.isfinite(numbers.astype(float)).all() else "row: vector is not finite"


def no_error(errors: list[str | None]) -> np.ndarray:
    """(n,) which rows are good."""
    return np.array([error is None for error in errors], bool)


def with_answers(
    frame: pd.DataFrame,
    errors: list[str | None],
    classifier: Classifier,
    numbers: np.ndarray,
    shares: np.ndarray,
) -> pd.DataFrame:
    """`frame` with the three columns; answers are those of the rows without error, in their order."""
    good = no_error(errors)
    classes, probabilities = np.full(len(frame), None, object), np.full(len(frame), None, object)
    classes[good] = [classifier.classes[number] for number in numbers]
    probabilities[good] = [float(share) for share in shares]
    return frame.assign(**{"class": classes, "probability": probabilities, "error": errors})


def main(run: str, source: str, output: str) -> None:
    """Predict all rows of `source`."""
    # Imported by name, not sent as code: only a module keeps what `opened` remembers from task to task.
    import spark_predict
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("adamab")
    spark = session.config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS).getOrCreate()
    spark.sparkContext.addPyFile(__file__)
    rows = spark.read.parquet(source) if source.endswith(".parquet") else spark.read.json(source)
    predict = spark_predict.predict_vectors if "vector" in rows.columns else spark_predict.predict_texts
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema)
    predicted = rows.mapInPandas(lambda frames: predict(frames, run), f"{columns}, {RESULT}")
    predicted.write.parquet(output)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

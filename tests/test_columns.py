"""X and y as lists, arrays, Series and tables; what is none of them is one line."""

from collections import UserDict

import numpy as np
import pytest

from adamab import ADAMABClassifier, EmbeddingCalibrator
from adamab.columns import column
from adamab.errors import TaskError
from adamab.testing import HashEmbedder

pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")

TEXTS = ["money back", "a refund please", "lovely work", "great people"]
LABELS = ["refund", "refund", "praise", "praise"]


class Frame(UserDict):
    """As polars: names in `columns`, which are what it is iterated by."""

    columns = property(lambda self: list(self.data))


class Dataset(UserDict):
    """As datasets: names in `column_names`; a method has the name that pandas uses for them."""

    column_names = property(lambda self: list(self.data))


def kinds_of(values):
    yield from (values, tuple(values), iter(values), np.array(values), np.array(values, object))
    yield np.array(values)[:, None]
    yield from (pd.Series(values, index=range(7, 11)), pd.DataFrame({"c": values}), pd.Categorical(values))
    yield from (pa.chunked_array([values[:1], values[1:]]), pa.table({"c": values}), pa.array(values))
    yield from (Frame(c=values), Dataset(c=values))


@pytest.mark.parametrize(("texts", "labels"), [*zip(kinds_of(TEXTS), kinds_of(LABELS), strict=True)])
def test_a_column_of_any_kind_is_taken(texts, labels):
    clf = ADAMABClassifier(HashEmbedder(), random_state=0).fit(texts, labels)
    assert clf.classes_.tolist() == ["praise", "refund"]
    assert clf.predict(pd.Series(["money back"])).tolist() == ["refund"]


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.table, Frame, Dataset])
def test_of_several_columns_none_is_guessed(kind):
    table = kind({"text": TEXTS, "label": LABELS})
    message = r"^X is a table of 2 columns \('text', 'label'\); give one, such as X\['text'\]$"
    for refused in (lambda: column(table, "X"), lambda: ADAMABClassifier(HashEmbedder()).fit(table, LABELS)):
        with pytest.raises(TaskError, match=message):
            refused()
    assert column(table["label"], "y") == LABELS


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "X is of type str; give a list"),
        ({"a": 1}, "X is of type dict"),
        ({"a", "b"}, "X is of type set"),
        (3, "X is of type int"),
        (np.array([TEXTS, TEXTS]), r"X is an array of shape \(2, 4\); give one column"),
        ([*TEXTS[:3], 4], r"X\[3\] is int, not a text"),
        (pd.Series([*TEXTS[:3], None]), r"X\[3\] is missing \((None|nan)\); fill it in or leave the row out"),
        (TEXTS[:3], "3 texts and 4 labels; give one label each"),
    ],
)
def test_what_is_no_column_of_texts_is_one_line(texts, message):
    with pytest.raises(TaskError, match=f"^{message}"):
        ADAMABClassifier(HashEmbedder()).fit(texts, LABELS)


@pytest.mark.parametrize("estimator", [ADAMABClassifier(HashEmbedder()), EmbeddingCalibrator()])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b", "a", None], r"y\[3\] is None; give every sample a label or leave it out"),
        (["a", "b", "a", float("nan")], r"y\[3\] is nan"),
        (pd.Series(["a", "b", "a", pd.NA]), r"y\[3\] is (<NA>|nan)"),
        (
            [["a"], ["b"], ["a", "b"], []],
            r"y\[0\] is of type list; give a string or a number: a sample has one label",
        ),
        ([{"a": 1}, "b", "a", "b"], r"y\[0\] is of type dict; give a string"),
        (np.eye(4), r"y is an array of shape \(4, 4\); give one column: a sample has one label"),
        (pd.get_dummies(LABELS), r"y is a table of 2 columns .*: a sample has one label"),
        ([1, "b", "a", 2], "y has labels of several types, such as 2 and 'a'"),
        (["a", "a", "a", "a"], "a classifier needs at least two classes"),
    ],
)
def test_labels_that_are_none_are_one_line(estimator, labels, message):
    if isinstance(estimator, ADAMABClassifier):
        with pytest.raises(TaskError, match=f"^{message}"):
            estimator.fit(TEXTS, labels)
    else:  # scikit-learn may be the first to see it, and says so in its own words
        with pytest.raises(ValueError, match=r"^\S.*"):
            estimator.fit(np.eye(4), labels)


@pytest.mark.parametrize(
    ("descriptions", "message"),
    [
        (["wants money"], "descriptions is of type list; give a mapping"),
        ({"refnd": "wants money"}, "no sample has the label 'refnd' of descriptions; did you mean 'refund'"),
        ({3: "three"}, "y has labels of several types"),
        ({None: "none"}, "a label in descriptions is None"),
        ({"refund": ""}, "the description of class 'refund' is empty"),
    ],
)
def test_descriptions_are_checked(descriptions, message):
    with pytest.raises(TaskError, match=message):
        ADAMABClassifier(HashEmbedder()).fit(TEXTS, LABELS, descriptions=descriptions)

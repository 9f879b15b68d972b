"""Classify texts with onnxruntime, tokenizers and NumPy.

    python classify.py "a text" "another one"
    python classify.py < texts.txt                one text per line

prints one line of JSON per text, with an error where it is empty. In Python:

    TextClassifier("FOLDER").probabilities(["a text"])         (texts, classes), in the order of `.classes`

`adamab export` ships a copy of this file as classify.py; it needs nothing else of adamab.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from adamab.task.lexical import terms

HALF = 65504  # the largest number of float16


class TextClassifier:
    """An exported classifier.

    Args:
        folder: with model.onnx and, where the encoder is exported too, encoder.onnx and tokenizer.json.

    Attributes:
        classes: names, in the order of the columns of `probabilities`.
    """

    def __init__(self, folder: str | Path) -> None:
        self._heads, about = _session(Path(folder) / "model.onnx")
        self.classes: list[str] = json.loads(about["classes"])
        self._wording = about["query_prompt"]
        words = json.loads(about.get("vocabulary", '{"terms": [], "idf": []}'))
        self._columns = {term: column for column, term in enumerate(words["terms"])}
        self._idf = np.array(words["idf"])
        self._encoder: Any = None
        if (Path(folder) / "encoder.onnx").is_file():
            from tokenizers import Tokenizer

            self._encoder, about = _session(Path(folder) / "encoder.onnx")
            self._settings: dict[str, Any] = json.loads(about["settings"])
            self._tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(self._settings["limit"])

    def probabilities(self, texts: Sequence[str], views: Mapping[str, Any] | None = None) -> Any:
        """(texts, classes), float32.

        Args:
            texts: to classify.
            views: their vectors by view, (texts, columns) each, where encoder.onnx is not there to make them.
        """
        taken = {value.name for value in self._heads.get_inputs()}
        inputs = {view: np.asarray(rows, np.float32) for view, rows in (views or {}).items() if view in taken}
        if "words" in taken:
            inputs["words"] = np.stack([self._word_row(text) for text in texts])
        lacking = sorted(taken - inputs.keys())
        if lacking and self._encoder is None:
            raise ValueError(f"encoder.onnx is not in the folder: pass views={{{lacking[0]!r}: matrix}}")
        if lacking:
            rows = [self._encode(self._wording.replace("{text}", text)) for text in texts]
            inputs |= {view: np.stack([row[view] for row in rows]) for view in lacking}
        return self._heads.run(["probabilities"], inputs)[0]

    def _word_row(self, text: str) -> Any:
        """TF-IDF of the words, of length one."""
        row = np.zeros(len(self._idf))
        for term, count in Counter(terms(text)).items():
            if (column := self._columns.get(term)) is not None:
                row[column] = (1 + np.log(count)) * self._idf[column]
        return _of_length_one(row).astype(np.float32)

    def _encode(self, text: str) -> dict[str, Any]:
        """Every view of one text."""
        settings = self._settings
        before, encoded = (
            self._tokenizer.encode(each.lower() if settings["lower"] else each)
            for each in (settings["prompt"], settings["prompt"] + text)
        )
        ids = np.array([encoded.ids or [settings["pad_id"]]])
        of_prompt = len(before.ids) - sum(before.special_tokens_mask[-1:]) if settings["prompt"] else 0
        present = (np.arange(ids.shape[1]) >= of_prompt)[None]
        everything = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.arange(ids.shape[1])[None],
            "adamab.summary": self._summaries(present, encoded.special_tokens_mask),
            "adamab.present": present[:, :, None],
        }
        kinds = {"tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
        answer = self._encoder.run(
            None,
            {
                value.name: everything[value.name].astype(kinds.get(value.type, np.float32))
                for value in self._encoder.get_inputs()
            },
        )
        if not settings["layers"]:
            return {"pooled": _of_length_one(answer[0][0])}
        sums = answer[0][0]
        views = {"pooled": _of_length_one(sums[0, -(sums.shape[1] // settings["layers"]) :])}
        if len(answer) > 1:
            most = answer[1][0] if present.any() else np.zeros_like(answer[1][0])
            for view, values in (("layers", sums[1]), ("first", sums[2:].ravel()), ("max", most)):
                views[view] = np.clip(values, -HALF, HALF).astype(np.float16).astype(np.float32)
        return views

    def _summaries(self, present: Any, special: Sequence[int]) -> Any:
        """Weights of the tokens in each sum that the encoder gives: pooled, mean, and the first ones."""
        settings, tokens = self._settings, present.shape[1]
        every = np.ones((1, tokens)) if settings["pools_prompt"] else present
        pooled = np.eye(1, tokens) if settings["pooling"] == "cls" else every / max(every.sum(), 1)
        content = present & ~np.array([special or [1]], bool)
        rank = np.cumsum(content, axis=1)
        first = [content & (rank == place + 1) for place in range(settings["first_tokens"])]
        rows = [pooled, present / max(present.sum(), 1), *first] if settings["first_tokens"] else [pooled]
        return np.stack(rows, axis=1)


def _session(file: Path) -> tuple[Any, dict[str, str]]:
    session: Any = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session, session.get_modelmeta().custom_metadata_map


def _of_length_one(vector: Any) -> Any:
    return vector / (float(np.linalg.norm(vector)) or 1)


def _answers(classifier: TextClassifier, texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if not text.strip():
            yield json.dumps({"error": "the text is empty"})
            continue
        (row,) = classifier.probabilities([text])
        names = dict(zip(classifier.classes, map(float, row), strict=True))
        yield json.dumps(
            {"class": max(names, key=lambda name: names[name]), "probabilities": names}, ensure_ascii=False
        )


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        sys.exit()
    given = sys.argv[1:] or (line.rstrip("\r\n") for line in sys.stdin)
    model = TextClassifier(Path(__file__).parent)
    for answer in _answers(model, given):
        print(answer, flush=True)

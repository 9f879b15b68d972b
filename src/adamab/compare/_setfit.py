"""SetFit: the sentence encoder itself is trained, on pairs of samples, and then a linear head."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from adamab.compare._vectors import in_columns
from adamab.compare.methods import Baseline, Floats, TrainingData
from adamab.errors import MissingExtraError, TaskError, short
from adamab.providers.embedders.base import Item, only_texts
from adamab.providers.embedders.local_models import find_model, quiet

LOCAL = "local"


class SetFit(Baseline):
    """The library `setfit` (extra `baselines`) with its own defaults; minutes on real data.

    It reads texts and ignores vectors. `model` is `local`, the MiniLM of the embedder of that name, or
    the folder of a sentence-transformers model; nothing is downloaded, and no checkpoint is written.
    `max_steps` is for a first look: -1, the library's default, trains on every pair. `fit_seconds_` is
    the time that training took, without loading the model.
    """

    name = "SetFit"

    def __init__(self, *, model: str = LOCAL, max_steps: int = -1, random_state: int = 0) -> None:
        self.model = model
        self.max_steps = max_steps
        self.random_state = random_state

    @property
    def fingerprint(self) -> str:
        """The encoder's files and the library's version."""
        try:
            library = metadata.version("setfit")
        except metadata.PackageNotFoundError:
            return ""  # it cannot be run, and a plan needs no more
        return f"{find_model(_path(self.model)).identity}:setfit={library}"

    def _fit(self, data: TrainingData) -> None:
        texts, y = only_texts(data.texts or data.items), data.class_index()
        if len(texts) != len(y):
            raise TaskError(f"{self.name}: it reads texts, {len(texts)} for {len(y)} labels; add them")
        if len(np.unique(y)) < 2:
            raise TaskError(f"{self.name}: samples of at least two classes are needed; add some")
        self.model_ = _untrained(self.model)
        started = time.perf_counter()
        with TemporaryDirectory() as folder:  # the library wants one even if it writes nothing
            self._train(list(texts), y.tolist(), folder)
        self.fit_seconds_ = time.perf_counter() - started
        head, body = self.model_.model_head, self.model_.model_body
        self.n_parameters_ = head.coef_.size + head.intercept_.size
        self.n_parameters_ += sum(weights.numel() for weights in body.parameters() if weights.requires_grad)

    def _train(self, texts: list[str], y: list[int], folder: str) -> None:
        from transformers.trainer_callback import PrinterCallback, ProgressCallback

        datasets, setfit = _library("datasets"), _library("setfit")
        card = _library("setfit.model_card").ModelCardCallback
        arguments = setfit.TrainingArguments(
            output_dir=folder,
            max_steps=self.max_steps,
            seed=self.random_state,
            show_progress_bar=False,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
        )
        with _silent():
            rows = datasets.Dataset.from_dict({"text": texts, "label": y})
            trainer = setfit.Trainer(model=self.model_, args=arguments, train_dataset=rows)
            for callback in (card, ProgressCallback, PrinterCallback):
                trainer.remove_callback(callback)
            trainer.train()

    def _predict_proba(self, views: Mapping[str, Floats], texts: Sequence[Item]) -> NDArray[np.float64]:
        with _silent():
            known = self.model_.predict_proba(list(only_texts(texts)), as_numpy=True, show_progress_bar=False)
        return in_columns(np.asarray(known), self.model_.model_head.classes_, len(self.classes_))


def _untrained(model: str) -> Any:
    """The encoder with the library's default head.

    The library's own loader is not used: it unpickles a head where the folder has one.
    """
    setfit, sentence_transformers = _library("setfit"), _library("sentence_transformers")
    files = find_model(_path(model))
    files.check()  # no pickle among the weights
    with _silent():
        body = sentence_transformers.SentenceTransformer(
            str(files.directory),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
        return setfit.SetFitModel(model_body=body, model_head=LogisticRegression())


def _library(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name or name}, which SetFit needs,", "baselines") from None


def _path(model: str) -> str:
    if model != LOCAL:
        if not Path(model).expanduser().is_dir():
            raise TaskError(f"{SetFit.name}: {short(model)} is no folder; name that of a model, or local")
        return model
    from adamab.providers.embedders.local import LocalEmbedder

    return str(LocalEmbedder().directory)


@contextmanager
def _silent() -> Iterator[None]:
    """Without the libraries' bars, and without notes and warnings that are for their own developers."""
    datasets, logger = _library("datasets"), logging.getLogger("setfit")
    bars, level = datasets.are_progress_bars_disabled(), logger.level
    datasets.disable_progress_bars()
    logger.setLevel(logging.ERROR)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()

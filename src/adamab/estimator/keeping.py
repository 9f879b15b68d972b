"""An estimator in a directory: how it is saved, opened again, and published."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from adamab.classifier import Classifier, save
from adamab.classifier.class_files import load_class_side, save_class_side
from adamab.classifier.class_side import ClassSide
from adamab.errors import ModelFileError, TaskError
from adamab.estimator.saved import models_with, read_estimate, read_history
from adamab.providers.embedders.base import Embedder
from adamab.run.hub import check_no_run, check_public, model_folder, push, write_folder
from adamab.run.inference import Inference
from adamab.run.model_card import Facts, fit_facts, model_card

if TYPE_CHECKING:
    from adamab.method.evidence import Estimate
    from adamab.run.records import History

Kind = TypeVar("Kind", bound="KeptEstimator")


class KeptEstimator(BaseEstimator):  # type: ignore[misc]
    """What an estimator can do with a directory; `fit` sets the attributes."""

    @cached_property
    def history_(self) -> History:
        """Read when it is asked for, where `fit` has not set it: of a run, not of a saved classifier."""
        return read_history(self._directory("history_"))

    @cached_property
    def estimate_(self) -> Estimate | None:
        """As `history_`."""
        return read_estimate(self._directory("estimate_"))

    def _directory(self, attribute: str) -> Path:
        if not hasattr(self, "_saved_in"):
            raise AttributeError(f"{type(self).__name__} has no {attribute} before it is fitted")
        return Path(self._saved_in)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the classifier as safetensors and JSON; `adamab.load` reads it.

        A classifier that is in `directory` already is replaced without a question, a run is refused.
        `classes.safetensors` beside it is what `add_class` needs; it holds vectors of samples.
        """
        classifier, folder = self._with_labels(), Path(directory)
        check_no_run(folder)
        side: ClassSide | None = None
        with contextlib.suppress(ModelFileError):  # loaded from where there was none
            side = self._known_class_side()
        if side is not None:
            save_class_side(side, folder, *models_with(side, folder), classifier)
        save(classifier, folder)

    def save_pretrained(
        self,
        save_directory: str | PathLike[str],
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        license: str | None = None,
        share_embedder: bool = False,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write the classifier and a model card, and upload both if `push_to_hub` says so.

        `repo_id` is the directory's name unless it is given. Other options are those of the Hub: token,
        private, branch, create_pr, commit_message. Returns the address of the commit, if there is one.
        What `add_class` needs is left out, since it holds vectors of samples; `save` keeps it. A README.md
        that is there and was not made here stays.

        The files name the embedder as you do. Where that tells a server or a folder of yours, nothing is
        uploaded unless `share_embedder` says that it may be known.
        """
        classifier, folder, facts = self._with_labels(), Path(save_directory), self._facts()
        check_no_run(folder)
        if push_to_hub and not share_embedder:
            check_public(classifier)
        write_folder(classifier, folder, model_card(classifier, facts, licence=license, source=repo_id or ""))
        return push(folder, repo_id or folder.name, **push_to_hub_kwargs) if push_to_hub else None

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        embedder: str | Embedder | None = None,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | PathLike[str] | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
    ) -> Self:
        """A classifier that predicts, from a folder or, if there is no such folder, from the Hub by its id.

        `embedder` as in `adamab.load`; the rest is for the Hub and has no meaning for folders.
        """
        folder = model_folder(
            pretrained_model_name_or_path,
            force_download=force_download,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            revision=revision,
        )
        return opened(cls, folder, embedder)

    def _facts(self) -> Facts | None:
        """What a card can tell of the fit; nothing where the estimator was loaded."""
        if not hasattr(self, "spent_"):
            return None
        fitted = self.classifier_.classes[: self._n_fitted]
        added = [name for name in self.classifier_.classes if name not in fitted]
        return fit_facts(self.generator, self.synthetic_, self.spent_, added)

    def _with_labels(self) -> Classifier:
        check_is_fitted(self)
        labels = self.classes_.tolist()
        if not all(isinstance(label, (str, int, float, bool)) for label in labels):
            raise TaskError(f"labels of type {self.classes_.dtype} cannot be saved; use strings or numbers")
        classifier: Classifier = self.classifier_
        return replace(classifier, metadata={**classifier.metadata, "labels": labels})

    def _known_class_side(self) -> ClassSide:
        if not hasattr(self, "class_side_"):  # a saved classifier, of which predictions need less
            self.class_side_ = load_class_side(self._saved_in, self.classifier_)
        side: ClassSide = self.class_side_
        return side


def opened(kind: type[Kind], directory: str | PathLike[str], embedder: str | Embedder | None) -> Kind:
    """The classifier in `directory` as an estimator of that kind."""
    model = Inference.open(directory, embedder)
    classifier = model.classifier
    estimator = kind(embedder or classifier.embedder_spec, modality=model.modality)
    labels = classifier.metadata.get("labels")
    estimator.classes_ = np.array(labels if isinstance(labels, list) else list(classifier.classes))
    estimator.classifier_ = classifier
    estimator._saved_in = os.path.abspath(directory)
    return estimator

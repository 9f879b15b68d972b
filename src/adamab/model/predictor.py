"""A finished classifier with its embedder: texts or images in, probabilities out. No torch of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from adamab.errors import (
    AdamabError,
    ApiError,
    EmbedderError,
    FingerprintError,
    ImageError,
    ModelFileError,
    one_line,
    place,
    short,
)
from adamab.model import Answerer, Classifier, PredictOptions, load
from adamab.model.storage import DOCUMENT, JOURNAL, unfinished
from adamab.providers.registry import Caching, HasText, embedder_key, open_embedder, remembered
from adamab.task.prompts import Prompts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adamab.model import Answers
    from adamab.providers.embedders.base import Embedder
    from adamab.providers.functions import EmbedFunction
    from adamab.task.spec import Modality

T = TypeVar("T")


class Inference:
    """Embeds rows as the classifier's task words them; `overlong` counts texts that were too long.

    `embedder` is None where words alone count and there is nothing to embed.
    """

    def __init__(self, classifier: Classifier, embedder: Embedder | None) -> None:
        self.classifier = classifier
        self.overlong = 0
        self.embedder = embedder
        self._prompts = Prompts(query=classifier.query_prompt)
        if embedder is not None:
            classifier.check_fingerprint(embedder.fingerprint)
            lacking = [view for view in classifier.views if view not in embedder.views]
            if lacking:
                raise EmbedderError(
                    f"{embedder} has no view {lacking[0]!r}, which the model needs; "
                    f"it has: {', '.join(embedder.views)}"
                )

    @classmethod
    def open(
        cls,
        run: str | PathLike[str],
        embedder: str | Embedder | EmbedFunction | None = None,
        *,
        cache: Caching = True,
    ) -> Inference:
        """The model in `run` with the embedder that it remembers, or with another of the same kind.

        Args:
            run: directory of a model.
            embedder: in place of the one that the model remembers.
            cache: whether vectors are looked up in the shared cache, and stored there; see `open_embedder`.
        """
        classifier = _load(run)
        if not classifier.views:  # words alone count: there is nothing to embed
            return cls(classifier, None)
        if embedder is not None:
            return cls(classifier, open_embedder(embedder, cache=cache))
        if not classifier.embedder_spec:
            raise EmbedderError(
                f"{place(run)}: was fitted with an embedder that was passed as a function or an object "
                f"({short(classifier.fingerprint, 80)}), which no file holds; pass it again: "
                f"adamab.load({one_line(repr(os.fspath(run)))}, embedder=...)"
            )
        spec = remembered(classifier.embedder_spec, "embedder", "the model file")
        try:
            return cls(classifier, open_embedder(spec, cache=cache))
        except FingerprintError:
            raise
        except EmbedderError as error:
            raise EmbedderError(f"{error}; or name the embedder with --embedder") from None

    @property
    def modality(self) -> Modality:
        """What the classifier was fitted on."""
        return "image" if self.classifier.metadata.get("modality") == "image" else "text"

    @property
    def remote(self) -> bool:
        """Whether embedding is a call that may cost money."""
        return self.embedder is not None and self.embedder.api is not None

    @property
    def vectors_version(self) -> str:
        """Of vectors that are looked up in a file, which may be another one by the next start."""
        return "" if self.embedder is None else self.embedder.vectors_version

    def class_views(self, keys: Sequence[str], views: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """What the embedder says of a class, by view: (1, d) each.

        It is asked for the first of `keys` that it knows: wording or, where vectors are looked up, name.

        Args:
            keys: what it may be known by: its wording or, where vectors are looked up, its name.
            views: names of views.
        """
        if self.embedder is None or not views:
            return {}
        from adamab.providers.async_bridge import run_sync

        for key in keys:
            if self.embedder.has([key]).all():
                answer = run_sync(self.embedder.embed([key], kind="class", views=tuple(views)))
                self.overlong += int(answer.overlong.sum())
                return answer.views
        return {}

    def check(self, options: PredictOptions) -> None:
        """Refuse what the classifier cannot tell, before a row is embedded and paid for."""
        Answerer(self.classifier.classes, self.classifier.confidence, options)

    def predict_proba(
        self, rows: Sequence[HasText], *, priors: Mapping[str, float] | None = None
    ) -> NDArray[np.float32]:
        """(n, K) probabilities.

        Args:
            rows: texts or images.
            priors: shares of the classes where the classifier is used.
        """
        self.check(PredictOptions(priors=priors))
        return self.classifier.predict_proba(self.views(rows), [row.text for row in rows], priors=priors)

    def logits(self, rows: Sequence[HasText]) -> NDArray[np.float32]:
        """(n, K) logits."""
        return self.classifier.logits(self.views(rows), [row.text for row in rows])

    def answers(self, rows: Sequence[HasText], options: PredictOptions) -> Answers:
        """Everything that is asked for, of each text.

        Args:
            rows: texts or images.
            options: number of classes, priors, `unknown`, coverage.
        """
        self.check(options)
        return self.classifier.answers(self.views(rows), [row.text for row in rows], options)

    def each(
        self, rows: Sequence[HasText], ask: Callable[[list[HasText]], Sequence[T]]
    ) -> list[T | AdamabError]:
        """What `ask` says of each row, or what is wrong with it; faults of the embedder itself are raised.

        Rows are asked for together and, where one of them is refused, around it or by halves: what was paid
        for before is in the cache.

        Args:
            rows: texts or images.
            ask: gives one result per row, such as `logits`.
        """
        from adamab.providers.embedders.base import TextError

        known: dict[int, T | AdamabError] = {}
        if self.embedder is not None and not self.embedder.cacheable:
            there = self.embedder.has([embedder_key(row, self.embedder, self._prompts) for row in rows])
            lacking = EmbedderError("the embedder has no vector of this row")
            known = dict.fromkeys(np.flatnonzero(~there).tolist(), lacking)
        numbers = [number for number in range(len(rows)) if number not in known]
        spans = [numbers]
        while spans:  # no recursion: hundreds of rows may be broken
            if not (span := spans.pop()):
                continue
            try:
                known |= zip(span, ask([rows[number] for number in span]), strict=True)
            except TextError as error:  # it says which one
                known[span[error.number]] = EmbedderError(f"{error.embedder}: the text {error.problem}")
                spans += [span[error.number + 1 :], span[: error.number]]
            except (ImageError, ApiError) as error:
                if isinstance(error, ApiError) and not (error.refused or error.too_large):
                    raise  # the service is down, or takes nothing from us: no fault of the row
                if len(span) == 1:
                    known[span[0]] = error
                else:
                    spans += [span[len(span) // 2 :], span[: len(span) // 2]]
        return [known[number] for number in range(len(rows))]

    def views(self, rows: Sequence[HasText], more: Sequence[str] = ()) -> dict[str, NDArray[np.float32]]:
        """What the embedder says of each text: (n, d) for every view of the classifier, and for `more`.

        Args:
            rows: texts or images.
            more: names of views beside those of the classifier.
        """
        if self.embedder is None:
            return {}
        # Starting an event loop's module is for those who embed.
        from adamab.providers.async_bridge import run_sync

        keys = [embedder_key(row, self.embedder, self._prompts) for row in rows]
        views = tuple(dict.fromkeys((*self.classifier.views, *more)))
        answer = run_sync(self.embedder.embed(keys, views=views))
        self.overlong += int(answer.overlong.sum())
        return answer.views


def _load(run: str | PathLike[str]) -> Classifier:
    """The model in `run`; one that is being fitted for the first time has none yet."""
    try:
        return load(run)
    except ModelFileError:
        folder = Path(run)
        if (folder / JOURNAL).exists() and not (folder / DOCUMENT).exists():
            raise unfinished(folder) from None
        raise

"""A run's classifier as an ONNX file or a Hub folder: written to one side, checked, then put in place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adamab.errors import RunError, os_errors, place, short
from adamab.model import load, save
from adamab.model.storage import DOCUMENT, unfinished
from adamab.publish import onnx
from adamab.publish.hub import MODEL_FILES, check_no_run
from adamab.publish.model_card import (
    CARD,
    escaped,
    facts_of,
    is_of_this_machine,
    is_ours,
    model_card,
    public_fingerprint,
    without_place,
)
from adamab.run.directory import has_journal
from adamab.task.images import is_url

if TYPE_CHECKING:
    from adamab.model import Classifier

Format = Literal["onnx", "hub"]
_FILES: dict[Format, tuple[str, ...]] = {"onnx": (CARD, *onnx.FILES), "hub": (CARD, *MODEL_FILES)}


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was checked."""

    format: Format
    folder: str
    files: dict[str, int]  # name -> bytes
    inputs: dict[str, int]  # view -> width
    classes: int
    checked: str
    largest_difference: float | None  # from NumPy; None if the export was not run
    notes: list[str]


def export(
    run: Path,
    kind: Format,
    output: Path | None = None,
    *,
    licence: str | None = None,
    embedder: str | None = None,
    overwrite: bool = False,
) -> Exported:
    """Export the classifier of `run` into a folder, with a model card.

    Whatever fails, files that were in the folder stay as they are.

    Args:
        run: A run, or a saved model's directory.
        kind: The format.
        output: The folder; `RUN-FORMAT` beside the run unless it is given.
        licence: For the model card.
        embedder: To check with, instead of the one that the model names.
        overwrite: Replace files of an earlier export.

    Returns:
        What was written, and how it was checked.
    """
    if not run.is_dir():
        raise RunError(f"{place(run)}: no such directory; name a run, or a saved model's directory")
    if has_journal(run) and not (run / DOCUMENT).exists():
        raise unfinished(run)
    classifier = load(run)
    whole = Path(os.path.abspath(run))
    folder = output or (run if run.name not in ("", "..") else whole).with_name(f"{whole.name}-{kind}")
    _check_folder(folder, kind, overwrite)
    widths = {head.view: head.width for head in classifier.heads}
    notes, use = list(_notes(classifier, kind)), ""
    with _new_files(folder) as new:
        if kind == "onnx":
            onnx.write_onnx(classifier, new)
            inference = onnx.local_inference(run, embedder)
            checked, difference = onnx.check_onnx(classifier, new, onnx.check_rows(classifier, inference))
            is_text = classifier.metadata.get("modality") != "image"
            takes_texts = is_text and onnx.write_script(classifier, inference, new)
            if takes_texts and inference is not None and difference is not None:
                difference = max(difference, onnx.check_script(inference, new))
                checked += f"; {onnx.SCRIPT} against the classifier on its classes' names"
            use = _onnx_use(classifier, widths, takes_texts, (new / onnx.SCRIPT).exists())
            if is_text and not takes_texts:
                views = ", ".join(classifier.views)
                notes.append(f"the embedder is not in the export, so it takes vectors of it: {views}")
        else:
            save(replace(classifier, embedder_spec=without_place(classifier.embedder_spec)), new)
            load(new)
            checked, difference = "loaded again, digests fit", None
        card = model_card(classifier, facts_of(run), licence=licence, use=use)
        (new / CARD).write_text(card, encoding="utf-8")
        files = {name: (new / name).stat().st_size for name in _FILES[kind] if (new / name).exists()}
        for name in files:  # the card first, so that whatever lies there is known to be of an export
            os.replace(new / name, folder / name)
        for name in set(_FILES[kind]) - set(files):  # of the export that this one replaces
            (folder / name).unlink(missing_ok=True)
    return Exported(kind, str(folder), files, widths, len(classifier.classes), checked, difference, notes)


def _onnx_use(classifier: Classifier, widths: dict[str, int], takes_texts: bool, has_script: bool) -> str:
    """How the files are used, in Markdown."""
    views = ", ".join(f"{escaped(view)} ({width} wide)" for view, width in widths.items())
    use = (
        "`model.onnx` takes one float32 tensor for each view and gives `probabilities` and `logits`. The "
        f"names of the classes are in its metadata.\n\nViews: {views}."
    )
    if takes_texts:
        use = (
            'Run `python classify.py "a text"`, or `python classify.py < texts.txt` with one text per line. '
            f"It needs the packages numpy, onnxruntime and tokenizers, and no adamab.\n\n{use}"
        )
        if classifier.embedder_spec.startswith("local"):
            use += "\n\n`encoder.onnx` and `tokenizer.json` are all-MiniLM-L6-v2, Apache License 2.0."
    elif has_script:
        use += (
            "\n\n`TextClassifier(FOLDER).probabilities(texts, views={VIEW: matrix})` of `classify.py` makes "
            "the words and takes the vectors of the other views. It needs the packages numpy and "
            "onnxruntime, and no adamab."
        )
    if classifier.views and not takes_texts and classifier.metadata.get("modality") != "image":
        use += f"\n\nThe embedder gets a text worded as: {escaped(classifier.query_prompt, 500)}"
    return use


def _check_folder(folder: Path, kind: Format, overwrite: bool) -> None:
    """Refuse a place that cannot be written, before anything is computed."""
    if is_url(folder):
        raise RunError(f"{place(folder)}: is a web address; name a folder of this machine")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{place(folder)}: is a file; name a folder for the export")
    check_no_run(folder)
    existing = [short(name) for name in _FILES[kind] if os.path.lexists(folder / name)]
    if existing and not overwrite:
        problem = f"holds {existing[0]} already; name another folder or add --overwrite"
        raise RunError(f"{place(folder)}: {problem}")
    if existing and not is_ours(folder / CARD):
        problem = f"holds {existing[0]}, which no export wrote ({CARD} is not one of ours)"
        raise RunError(f"{place(folder)}: {problem}; name another folder or move it away")


@contextmanager
def _new_files(folder: Path) -> Iterator[Path]:
    """A directory inside `folder` to write in, gone at the end; `folder` too if it was made for nothing."""
    is_new = not folder.exists()
    try:
        with os_errors(folder, "cannot be written"):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".export.", dir=folder) as new:
                yield Path(new)
    finally:
        if is_new:
            with suppress(OSError):  # it is not empty, so the export is there
                folder.rmdir()


def _notes(classifier: Classifier, kind: Format) -> Iterator[str]:
    if classifier.vocabulary is not None:
        yield (
            f"the files hold {len(classifier.vocabulary.terms)} words and pairs of words of the training "
            "texts (the words view); fit with --set words=false if they must not leave"
        )
    spec, fingerprint = classifier.embedder_spec, classifier.fingerprint
    if classifier.views and is_of_this_machine(spec):
        yield (
            f"the files name the embedder {short(without_place(spec), 120)}, which others cannot open so"
            if spec
            else "the model has no name for its embedder"
        ) + "; tell them which one it is, they name it with --embedder"
    if kind == "hub" and public_fingerprint(fingerprint) != fingerprint:
        yield (
            f"{DOCUMENT} holds the embedder's fingerprint {short(fingerprint, 120)}, which tells a place of "
            "yours; it is needed to check the embedder, so think before you publish it"
        )

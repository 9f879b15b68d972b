"""A run's classifier in other people's formats: written, checked, and only then put in place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.classifier import load, save
from adamab.classifier.files import DOCUMENT
from adamab.errors import RunError
from adamab.run.directory import has_journal, unfinished
from adamab.run.hub import MODEL_FILES, check_no_run
from adamab.run.model_card import FILE as CARD
from adamab.run.model_card import escaped, facts_of, is_ours, model_card
from adamab.run.public_names import is_of_this_machine, public_fingerprint, without_place
from adamab.serving import export_faiss, export_npz, export_onnx
from adamab.serving.export_checks import Rows, Verdict, check_rows
from adamab.serving.export_metadata import Format
from adamab.task.images import is_url
from adamab.task.messages import one_line, place, short

if TYPE_CHECKING:
    from adamab.classifier import Classifier


_FILES = {
    Format.onnx: (export_onnx.FILE, CARD),
    Format.npz: (export_npz.FILE, CARD),
    Format.faiss: (export_faiss.FILE, export_faiss.NAMES, CARD),
    Format.hub: (*MODEL_FILES, CARD),
}

_USES = {
    Format.onnx: "`model.onnx` takes one float32 tensor for each view and gives `probabilities` and "
    "`logits`. The names of the classes are in its metadata.",
    Format.npz: "`model.npz` holds the arrays of all heads and, as a JSON text in `metadata`, what they are "
    "and the names of the classes.",
    Format.faiss: "`classes.faiss` is an index of one vector a class, searched with what "
    "`adamab.serving.export_faiss.features` makes of a sample; it gives logits, not probabilities. "
    "`classes.json` names the classes.",
}


@dataclass(frozen=True)
class Exported:
    """What was written, and what was found out about it."""

    format: Format
    folder: Path
    files: dict[str, int]  # name -> bytes
    inputs: dict[str, int]  # view -> width
    classes: int
    checked: Verdict
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": str(self.format),
            "folder": str(self.folder),
            "files": self.files,
            "inputs": self.inputs,
            "classes": self.classes,
            "checked": self.checked.said,
            "largest_difference": self.checked.worst,
            "recall": [one.to_json() for one in self.checked.recall],
            "notes": self.notes,
        }


def export(
    run: Path,
    kind: Format,
    output: Path | None = None,
    *,
    licence: str | None = None,
    embedder: str | None = None,
    index: str | None = None,
    overwrite: bool = False,
) -> Exported:
    """Export the classifier of `run` into the folder `output`, with a model card.

    `index` names another kind of FAISS index than the exact one. Whatever fails, files that were in the
    folder stay as they are.
    """
    if index is not None and kind is not Format.faiss:
        raise RunError(f"--index goes with --format faiss; leave it out of an export as {kind}")
    folder = output if output is not None else default_folder(run, kind)
    classifier = _classifier(run)
    _check_folder(run, folder, kind, overwrite)
    card = model_card(classifier, facts_of(run), licence=licence, use=_use(classifier, kind))
    with _new_files(folder) as new:
        (new / CARD).write_text(card, encoding="utf-8")
        checked = _written(classifier, run, new, kind, embedder, index)
        files = {name: (new / name).stat().st_size for name in _FILES[kind]}
        # The card first, so that whatever lies there is known to be of an export.
        for name in sorted(files, key=lambda name: name != CARD):
            os.replace(new / name, folder / name)
    widths, notes = _widths(classifier), list(_notes(classifier, kind))
    return Exported(kind, folder, files, widths, len(classifier.classes), checked, notes)


def default_folder(run: Path, kind: Format) -> Path:
    """Beside the run: `support/run` gives `support/run-onnx`."""
    whole = Path(os.path.abspath(run))
    return Path(f"{run}-{kind}") if run.name not in ("", "..") else whole.with_name(f"{whole.name}-{kind}")


def _use(classifier: Classifier, kind: Format) -> str:
    """How the files are used, in Markdown; nothing where the card knows it by itself."""
    if kind is Format.hub:
        return ""
    views = ", ".join(f"{escaped(view)} ({width} wide)" for view, width in _widths(classifier).items())
    worded = f"\n\nThe embedder gets a text worded as: {escaped(classifier.query_prompt, 500)}"
    of_text = classifier.views and classifier.metadata.get("modality") != "image"
    return f"{_USES[kind]}\n\nViews: {views}." + (worded if of_text else "")


def _widths(classifier: Classifier) -> dict[str, int]:
    return {head.view: head.width for head in classifier.heads}


def _written(
    classifier: Classifier, run: Path, new: Path, kind: Format, embedder: str | None, index: str | None
) -> Verdict:
    def rows() -> Rows:
        return check_rows(classifier, run, embedder)

    if kind is Format.onnx:
        export_onnx.write_onnx(classifier, new)
        return export_onnx.check_onnx(classifier, new, rows())
    if kind is Format.faiss:
        spec = export_faiss.FLAT if index is None else index
        export_faiss.write_faiss(classifier, new, spec)
        found = export_faiss.check_faiss(classifier, new, rows())
        export_faiss.write_names(classifier, new, spec, found.recall)
        return found
    if kind is Format.npz:
        export_npz.write_npz(classifier, new)
        return export_npz.check_npz(classifier, new)
    save(replace(classifier, embedder_spec=without_place(classifier.embedder_spec)), new)
    load(new)
    return Verdict("loaded again, digests fit", None)


def _classifier(run: Path) -> Classifier:
    if not run.is_dir():
        raise RunError(f"{place(run)}: no such directory; name a run, or a saved model's directory")
    if has_journal(run) and not (run / DOCUMENT).exists():
        raise unfinished(run)
    return load(run)


def _check_folder(run: Path, folder: Path, kind: Format, overwrite: bool) -> None:
    """Refuse a place that cannot be written, before anything is computed."""
    if is_url(folder):
        raise RunError(f"{place(folder)}: is a web address; name a folder of this machine")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{place(folder)}: is a file; name a folder for the export")
    here, there = Path(os.path.realpath(folder)), Path(os.path.realpath(run))
    if here == there or there in here.parents:
        raise RunError(
            f"{place(folder)}: lies in the run, which keeps its own files only; name another folder"
        )
    check_no_run(folder)
    found = [name for name in _FILES[kind] if os.path.lexists(folder / name)]
    if found and not overwrite:
        raise RunError(
            f"{place(folder)}: holds {short(found[0])} already; name another folder or add --overwrite"
        )
    if found and not is_ours(folder / CARD):
        raise RunError(
            f"{place(folder)}: holds {short(found[0])}, which no export wrote ({CARD} is not one of ours); "
            "name another folder or move it away"
        )


@contextmanager
def _new_files(folder: Path) -> Iterator[Path]:
    """A directory inside `folder` to write in, gone at the end; `folder` too if it was made for nothing."""
    is_new = not folder.exists()
    new = folder / f".export.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(new, ignore_errors=True)  # of a killed process that had the same number
        new.mkdir()
        yield new
    except OSError as error:
        raise RunError(f"{place(folder)}: cannot be written ({one_line(error.strerror or error)})") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
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
    if kind is Format.hub and public_fingerprint(fingerprint) != fingerprint:
        yield (
            f"{DOCUMENT} holds the embedder's fingerprint {short(fingerprint, 120)}, which tells a place of "
            "yours; it is needed to check the embedder, so think before you publish it"
        )

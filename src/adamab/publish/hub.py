"""Models in folders and on the Hub: `model.safetensors`, `model.json` and a card, nothing else.

`classes.safetensors`, with which classes can be added, stays at home: it holds vectors of samples.

A folder of this machine needs no package and no network. A Hub id needs `huggingface_hub`, and only the
two model files are ever fetched; what came is checked by the digests that they carry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adamab.errors import AdamabError, ModelFileError, RunError, imported, os_errors, place, short
from adamab.model import save
from adamab.model.storage import DOCUMENT, WEIGHTS
from adamab.publish.model_card import CARD, is_ours, public_fingerprint, without_place
from adamab.run.directory import has_journal, is_run

if TYPE_CHECKING:
    from adamab.model import Classifier

MODEL_FILES = (DOCUMENT, WEIGHTS)
_FILES = [*MODEL_FILES, CARD]
_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?", re.ASCII)
_REASONS = {  # the most particular first: some of these errors are also one of the others
    "GatedRepoError": "access has to be asked for on its page",
    "RepositoryNotFoundError": "no such repository, or it needs a token",
    "RevisionNotFoundError": "no such revision",
    "HFValidationError": "no valid id",
    "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set",
    "LocalEntryNotFoundError": "it is not in the cache, and the Hub cannot be reached",
}


def check_no_run(folder: Path) -> None:
    """Refuse to write into a run: its model would be gone, and what is no part of it stops the next fit."""
    try:
        whole = Path(os.path.realpath(folder))
        runs = [path for path in (whole, *whole.parents) if has_journal(path) or is_run(path)]
    except (OSError, ValueError):  # a place that cannot be looked into, or a NUL: writing will tell
        return
    if runs:
        where = "is a run" if runs[0] == whole else f"lies in the run {place(runs[0])}"
        raise RunError(f"{place(folder)}: {where}, which keeps its own files only; name another folder")


def check_public(classifier: Classifier) -> None:
    """Refuse to upload a model that says where something of this machine is."""
    spec, fingerprint = classifier.embedder_spec, classifier.fingerprint
    is_private = {
        "name": without_place(spec) != spec,
        "fingerprint": public_fingerprint(fingerprint) != fingerprint,
    }
    telling = [what for what, private in is_private.items() if private]
    if telling:
        raise ModelFileError(
            f"a push would make public the {' and the '.join(telling)} of the embedder "
            f"{short(without_place(spec))}, with a server, a variable or a folder of yours ({DOCUMENT} has "
            "it); nothing was uploaded: pass share_embedder=True if that is right"
        )


def write_folder(classifier: Classifier, folder: Path, card: str) -> None:
    """Write a model and its card.

    Args:
        classifier: The model.
        folder: Where the files go; a model that is there is replaced.
        card: The card's text; a card that somebody else wrote stays as it is.
    """
    save(classifier, folder)
    if (folder / CARD).is_file() and not is_ours(folder / CARD):
        return
    with os_errors(folder / CARD, "cannot be written", ModelFileError):
        (folder / CARD).write_text(card, encoding="utf-8")


def model_folder(name: str | PathLike[str], **options: Any) -> Path:
    """A local folder as it is; what else looks like a Hub id is fetched. Only strings are ever ids.

    Args:
        name: A folder, or an id of the Hub.
        options: Of `huggingface_hub.snapshot_download`: revision, token, cache_dir, ...
    """
    if os.path.isdir(name):
        return Path(name)
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise ModelFileError(f"{place(name)}: no such folder, and no id of the Hub; name one of the two")
    hub = _hub(f"{short(name)} is no folder here, and huggingface_hub, which asks the Hub for it,")
    with _one_line(name, "cannot be had from"):
        folder = Path(hub.snapshot_download(name, allow_patterns=list(MODEL_FILES), **options))
    if not (folder / DOCUMENT).is_file():
        raise ModelFileError(f"{name} on the Hub holds no {DOCUMENT}; is it a model of adamab?")
    return folder


def push(
    folder: Path,
    repo_id: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    branch: str | None = None,
    create_pr: bool | None = None,
    commit_message: str = "Add a model of adamab",
) -> str:
    """Upload a model and its card.

    Args:
        folder: What `write_folder` wrote; other files in it stay here.
        repo_id: The model's name on the Hub; the repository is made if there is none.
        token: Of the Hub; None takes the one that this machine is logged in with.
        private: Whether a new repository is private; None leaves that to the Hub.
        branch: Where the commit goes; the main branch if None.
        create_pr: Open a pull request instead of committing to the branch.
        commit_message: The first line of the commit.

    Returns:
        The commit's address.
    """
    api = _hub("huggingface_hub, which uploads to the Hub,").HfApi(token=token)
    with _one_line(repo_id, "cannot be written to"):
        repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        options = {"commit_message": commit_message, "revision": branch, "create_pr": create_pr}
        return str(api.upload_folder(repo_id=repo, folder_path=folder, allow_patterns=_FILES, **options))


def _hub(what: str) -> Any:
    return imported("huggingface_hub", what, "hub")


@contextmanager
def _one_line(name: str, what: str) -> Iterator[None]:
    """Errors of the Hub's client in one line, which quotes no answer of a server and no token."""
    try:
        yield
    except AdamabError:
        raise
    except Exception as error:  # the client's errors have no common base, and changed theirs over time
        raise ModelFileError(f"{short(name)} {what} the Hub: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = _status(error) or _status(error.__cause__)
    known = [said for kind, said in _REASONS.items() if kind in kinds]
    if known and not (status and "LocalEntryNotFoundError" in kinds):  # that one tells of any failure
        return known[0]
    if status in (401, 403):
        return f"status {status}; check the token and what it allows"
    return f"status {status}" if status else type(error).__name__


def _status(error: BaseException | None) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None

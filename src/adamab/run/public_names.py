"""Names of embedders and generators as other people may see them: without servers, variables and folders."""

from __future__ import annotations

import os
import re

from adamab.task.specs import join_spec, split_spec

_FILES = ("npz", "onnx", "replay", "pool")  # what follows the colon is a file or a folder of this machine
_FOLDERS_OR_IDS = ("st", "clip", "timm", "diffusers", "cross-encoder")  # a folder, or an id such as org/name
_MODELS = ("openai", "openai-image", "voyage", "cohere", "chat", "rerank")  # the name of a model, any text
_PATH = re.compile(r"~|\.{1,2}([/\\]|$)|[/\\]|[A-Za-z]:[/\\]|file:")  # how a path of this machine begins
_ADDRESS = re.compile(r"://|@|^\[?[\w.:-]+\]?:\d+(/|$)")
_PRIVATE = re.compile(r"(^|_)(url|uri|host|server|endpoint|proxy|key|token|secret|password|user|env)(_|$)")
_PLACE = re.compile(r"[/\\@]|^~|^file:|:\d+$")  # in the value of an option
# In fingerprints, MODEL@SERVER; after the @ of other schemes a revision may stand as well.
_SERVED = re.compile(rf"((?:{'|'.join(_MODELS)}):@?[^@]*)@.*", re.DOTALL)
_SERVER = re.compile(r"[@:]?\w*://.*|@(localhost|\[|[\w-]+\.|[\w-]+:\d+(/|$)).*", re.DOTALL)


def without_place(spec: str) -> str:
    """A spec without folders, servers and variables of this machine: cards are made to be published.

    Example:
        >>> without_place("st:/home/me/models/mini"), without_place("local?long_texts=average")
        ('st:mini', 'local?long_texts=average')
        >>> without_place("openai:m?base_url=http://10.0.0.5/v1&key_env=ACME_KEY&dimensions=256")
        'openai:m?dimensions=256'
    """
    bare, options = split_spec(spec)
    scheme, colon, rest = bare.partition(":")
    if not colon:
        scheme, rest = "", bare
    public = {k: v for k, v in options.items() if not _PRIVATE.search(k) and not _PLACE.search(v)}
    named = _named(scheme, rest)
    return join_spec(f"{scheme}:{named}" if colon and named else scheme or named, public)


def public_fingerprint(fingerprint: str) -> str:
    """A fingerprint without the server that the vectors came from, and without folders.

    Example:
        >>> public_fingerprint("openai:m:256@127.0.0.1:8490/v1"), public_fingerprint("hash:64")
        ('openai:m:256', 'hash:64')
    """
    whole = _SERVER.sub("", _SERVED.sub(r"\1", fingerprint))
    scheme, colon, rest = whole.partition(":")
    is_path = _PATH.match(rest) or (scheme in _FILES[:1] and rest.count("/") > 1)
    return f"{scheme}:{_last_part(rest)}" if colon and is_path else whole


def is_of_this_machine(spec: str) -> bool:
    """Whether a spec names something that other people cannot open under that name."""
    scheme, _, rest = split_spec(spec)[0].partition(":")
    local = scheme in _FILES or (scheme in _FOLDERS_OR_IDS and _is_here(rest))
    return not spec or local or without_place(spec) != spec


def _named(scheme: str, rest: str) -> str:
    """What may follow the colon."""
    if scheme in _FILES or _PATH.match(rest):
        return _last_part(rest)
    if "://" in rest or (scheme not in (*_FOLDERS_OR_IDS, *_MODELS) and _ADDRESS.search(rest)):
        return ""  # a server, of a scheme that we do not know or written where none belongs
    if scheme in _MODELS:
        return rest
    # An id of the Hub has one slash at most.
    return _last_part(rest) if "\\" in rest or rest.count("/") > 1 or _is_here(rest) else rest


def _is_here(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a NUL
        return False


def _last_part(path: str) -> str:
    parts = re.split(r"[/\\]", path.rstrip("/\\"))
    return re.sub(r"^(file|[A-Za-z]):(?=[/\\]?)", "", parts[-1]) or "…"

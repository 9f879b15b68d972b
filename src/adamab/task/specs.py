"""Strings that name a thing and its options, such as `openai:MODEL?rpm=500` or `pets:DIR?split=test`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from adamab.errors import ProviderError
from adamab.task.messages import short

_OPTIONS = re.compile(r"[a-z_]+=[^&]*(&[a-z_]+=[^&]*)*")


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """A spec without its options, and these. A question mark that none follows is part of a path.

    Example:
        >>> split_spec("openai:m?rpm=500&dimensions=256"), split_spec("npz:why?.npz")
        (('openai:m', {'rpm': '500', 'dimensions': '256'}), ('npz:why?.npz', {}))
    """
    for mark in re.finditer(r"\?", spec):
        written = spec[mark.end() :]
        if _OPTIONS.fullmatch(written):
            pairs = [part.split("=", 1) for part in written.split("&")]
            if len({name for name, _ in pairs}) < len(pairs):
                raise ProviderError(f"{short(spec)} names an option twice; keep one of them")
            return spec[: mark.start()], dict(pairs)
    return spec, {}


def join_spec(spec: str, options: Mapping[str, str]) -> str:
    """The spec with its options, as `split_spec` takes it apart."""
    return f"{spec}?{'&'.join(f'{name}={value}' for name, value in options.items())}" if options else spec

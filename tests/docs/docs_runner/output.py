"""Is what a page shows what a command printed?

Every shown line must stand in the output, in the same order. What may differ:

- `…` stands for anything: a line of its own for any lines, inside a line for any characters;
- white space, and how long a rule is;
- numbers with a decimal point, by shape only: seconds, sizes, probabilities and estimates differ from machine
  to machine in their last digits. Whole numbers are compared as they are;
- hexadecimal digests of eight characters and more, by shape only.

With `ADAMAB_DOCS_EXACT=1` numbers are compared as they are, but for seconds: for whoever changes a page.
"""

import os
import re

EXACT = bool(os.environ.get("ADAMAB_DOCS_EXACT"))

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SECONDS = r"\d[\d,]*\.\d+(?=\s(?:seconds|s\b))"
_DECIMAL = r"[-+−]?\d[\d,]*(?:\.\d+)+(?:e[-+]?\d+)?"
_DIGEST = r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}(?![0-9a-z])"
_VARIABLE = re.compile(f"(?P<gap>…)|(?P<seconds>{_SECONDS})|(?P<digest>{_DIGEST})|(?P<decimal>{_DECIMAL})")


def missing_line(shown, printed, *, exact=EXACT):
    """The first shown line that is not in the output where it should be, or None.

    >>> missing_line(["3 classes", "…", "after 2.5 seconds"], "3 classes\\nand more\\nafter 11.03 seconds")
    >>> missing_line(["4 classes"], "3 classes")
    '4 classes'
    >>> missing_line(["b", "a"], "a\\nb")
    'a'
    >>> missing_line(["accuracy 91.7 %"], "accuracy 83.3 %", exact=True)
    'accuracy 91.7 %'
    """
    lines = [_plain(line) for line in printed.splitlines()]
    at = 0
    for line in shown:
        wanted = _plain(line)
        if wanted in ("", "…"):
            continue
        pattern = _pattern(wanted, exact=exact)
        at = next((number for number in range(at, len(lines)) if pattern.fullmatch(lines[number])), -1) + 1
        if at == 0:
            return line
    return None


def _plain(line):
    line = re.sub("─+", "─", _ANSI.sub("", line))
    return " ".join(line.split())


def _pattern(line, *, exact):
    shapes = {"gap": ".*", "seconds": r"\d[\d,]*\.\d+", "digest": "[0-9a-f]+", "decimal": _DECIMAL}
    kept = {"gap", "seconds"} if exact else set(shapes)
    parts, last = [], 0
    for match in _VARIABLE.finditer(line):
        parts += [re.escape(line[last : match.start()])]
        kind = str(match.lastgroup)
        parts += [shapes[kind] if kind in kept else re.escape(match[0])]
        last = match.end()
    return re.compile("".join(parts) + re.escape(line[last:]))

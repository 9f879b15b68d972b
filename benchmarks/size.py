"""How much code there is: modules, lines of code and functions, by room."""

from __future__ import annotations

import ast
import io
import statistics
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import Figure, Group, Table

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, EXPERIMENTS, TESTS = ROOT / "src" / "adamab", ROOT / "experiments", ROOT / "tests"
MODULES_BAR, PACKAGE_BAR, EXPERIMENTS_BAR, TESTS_BAR = 165, 27_000, 6_000, 30_000

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


class Module(NamedTuple):
    """One file: its lines of code, and the lines of each function from `def` to its end."""

    path: Path
    code_lines: int
    function_lengths: tuple[int, ...]


def run() -> Group:
    package, experiments = modules_in(PACKAGE), modules_in(EXPERIMENTS)
    tests = sum(len(file.read_text("utf-8").splitlines()) for file in TESTS.rglob("*.py"))
    rooms: dict[str, list[Module]] = {}
    for module in package:
        rooms.setdefault(room_of(module.path), []).append(module)
    rows = [_row(f"src/adamab/{room}", rooms[room]) for room in sorted(rooms)]
    rows.append(_row("src/adamab in all", package))
    if experiments:
        rows.append(_row("experiments", experiments))
    figures = [
        Figure("modules of src/adamab", len(package), MODULES_BAR),
        Figure("code lines of src/adamab", _code_lines(package), PACKAGE_BAR),
        Figure("code lines of experiments", _code_lines(experiments), EXPERIMENTS_BAR),
        Figure("lines of tests", tests, TESTS_BAR, note="all lines of tests/**/*.py"),
    ]
    title = "Code lines are neither blank, comment nor docstring; a function's length is all of its lines"
    header = ["where", "modules", "code lines", "functions", "median length"]
    return Group(figures, [Table(title, header, rows)])


def modules_in(folder: Path) -> list[Module]:
    """The modules of a folder and of those in it; none where there is no such folder."""
    return [_module(path) for path in sorted(folder.rglob("*.py"))]


def room_of(path: Path) -> str:
    """The folder of the package that a module is in; for a module outside the folders its own name.

    >>> room_of(PACKAGE / "run" / "fit.py"), room_of(PACKAGE / "errors.py")
    ('run/', 'errors.py')
    """
    first, *rest = path.relative_to(PACKAGE).parts
    return f"{first}/" if rest else first


def _module(path: Path) -> Module:
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)]
    lengths = tuple((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions)
    return Module(path, len(_lines_of_tokens(source) - _lines_of_docstrings(tree)), lengths)


def _lines_of_tokens(source: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    spans = (range(token.start[0], token.end[0] + 1) for token in tokens if token.type not in _NO_CODE)
    return {line for span in spans for line in span}


def _lines_of_docstrings(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        documented = isinstance(node, (ast.Module, ast.ClassDef, *_DEFINITIONS))
        if documented and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


def _code_lines(modules: Iterable[Module]) -> int:
    return sum(module.code_lines for module in modules)


def _row(name: str, modules: list[Module]) -> list[str]:
    lengths = [length for module in modules for length in module.function_lengths]
    median = f"{statistics.median(lengths):g}" if lengths else "-"
    return [name, f"{len(modules)}", f"{_code_lines(modules):,}", f"{len(lengths):,}", median]

"""Private modules and names stay in their room; the laboratory does its work with public ones alone."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE, LABORATORY = ROOT / "src" / "adamab", ROOT / "experiments"


def imported_names(path):
    """Module, name and line of each import of the package in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "adamab":
            yield from ((node.module, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names if "adamab" in alias.name)


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("path", sorted(LABORATORY.rglob("*.py")), ids=lambda path: path.stem)
def test_the_laboratory_imports_public_names_alone(path):
    for module, name, line in imported_names(path):
        assert not any(map(is_private, [*module.split("."), name])), f"{path}:{line}: {module} {name}"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_private_modules_are_imported_in_their_own_room(path):
    room = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    for module, name, line in imported_names(path):
        parts = [*module.split("."), name]
        private = [number for number, part in enumerate(parts) if is_private(part)]
        assert not private or ".".join(parts[: private[0]]).startswith(room), (
            f"{path}:{line}: {module} {name}"
        )


def test_the_contract_names_every_private_module():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    forbidden = next(c for c in contracts if c.get("source_modules") == ["experiments"])["forbidden_modules"]
    modules = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("_[a-z]*.py")]
    assert sorted(forbidden) == sorted(".".join(module.parts) for module in modules)

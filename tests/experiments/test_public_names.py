"""The experiments get by with what `adamab` shows everybody."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "adamab"


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def test_the_import_contract_names_every_private_module() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts = {contract["name"]: contract for contract in settings["contracts"]}
    forbidden = contracts["The laboratory uses public modules alone"]["forbidden_modules"]
    modules = [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in PACKAGE.rglob("*.py")
    ]
    assert set(forbidden) == {module for module in modules if is_private(module)}


def test_no_private_name_is_imported() -> None:
    imported = [
        f"{node.module}.{alias.name}"
        for file in (ROOT / "experiments").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adamab")
        for alias in node.names
    ]
    assert imported
    assert not [name for name in imported if is_private(name)]

"""docs/architecture.md names every public module, and nothing that is not there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "adamab"
OTHER_NAMES = {"unknown"}  # of an answer


def rooms():
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (root|`[a-z_/]+/`) \| [^|]* \| (.*) \|$", page, re.MULTILINE)
    return {room.strip("`"): set(re.findall(r"`([a-z_]+)`", modules)) - OTHER_NAMES for room, modules in rows}


def modules_of(room):
    folder = PACKAGE if room == "root" else PACKAGE / room
    return {file.stem for file in folder.glob("*.py") if not file.stem.startswith("__")}


@pytest.mark.parametrize("room", rooms())
def test_a_room_is_as_the_page_says(room):
    named, there = rooms()[room], modules_of(room)
    assert named <= there
    if room != "cli/":  # one module per command
        assert {module for module in there if not module.startswith("_")} <= named


def test_every_room_is_on_the_page():
    folders = {f"{file.parent.relative_to(PACKAGE)}/" for file in PACKAGE.rglob("__init__.py")} - {"./"}
    assert folders <= set(rooms())

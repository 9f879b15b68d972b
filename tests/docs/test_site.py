"""The site: every page can be reached, every link leads somewhere, every image is there."""

import re
import tomllib

import pytest
import yaml
from docs_runner.pages import DOCS, ROOT, all_pages, shown

from adamab.cli.app import COMMANDS
from docs_hooks import commands

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def in_nav(entry):
    if isinstance(entry, str):
        return [entry]
    members = entry.values() if isinstance(entry, dict) else entry
    return [page for member in members for page in in_nav(member)]


def prose(page):
    """The page without its fenced blocks and code in the line."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def test_every_page_is_in_the_navigation_once():
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    assert sorted(in_nav(SITE["nav"])) == pages


@pytest.mark.parametrize("page", all_pages(), ids=shown)
def test_links_lead_somewhere(page):
    """Headings within a page are checked by mkdocs."""
    for target in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path = target.partition("#")[0]
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{target}: no such file"
        assert page == ROOT / "README.md" or place.is_relative_to(DOCS), f"{target}: not part of the site"


@pytest.mark.parametrize("page", all_pages(), ids=shown)
def test_images_come_with_the_repository_and_a_text(page):
    for whole in re.finditer(r"!\[([^\]]*)\]\(([^)\s]+)\)", prose(page)):
        assert whole[1], f"{whole[2]}: no text for those who cannot see it"
        assert not whole[2].startswith("http")


def test_the_reference_has_every_command_with_its_options():
    reference = commands.reference()
    for name in COMMANDS:
        assert re.search(rf"^## adamab {name}\b", reference, re.MULTILINE), name
    assert "| `--budget` `TEXT` | Caps" in reference
    assert "Default: `local`." in reference
    assert "object at 0x" not in reference


def test_a_page_asks_for_the_reference():
    assert commands.MARK in (DOCS / "reference" / "commands.md").read_text()


@pytest.mark.parametrize("page", all_pages(), ids=shown)
def test_extras_that_a_page_installs_exist(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = page.read_text(encoding="utf-8")
    for names in re.findall(r"(?:adamab|'\.)\[([a-z, ]+)\]", text):
        unknown = {name.strip() for name in names.split(",")} - set(project["optional-dependencies"])
        assert not unknown, f"{shown(page)}: no extra {unknown}"

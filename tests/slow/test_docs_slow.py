"""The pages that take long, and the site as it is built and as a browser shows it."""

import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from docs_runner.pages import ROOT
from docs_runner.running import SLOW, run_page
from docs_runner.starts import Starts

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_slow_page_does_what_it_shows(name, tmp_path, tmp_path_factory, monkeypatch):
    run_page(ROOT / name, tmp_path / "page", Starts(tmp_path_factory.mktemp("starts")), monkeypatch)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    pytest.importorskip("mkdocs", reason="the extra 'docs' is not installed")
    place = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return place


@pytest.fixture
def address(site):
    """The site behind a server on this machine."""
    handler = partial(Silent, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Silent(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_):
        return


def test_the_site_fetches_nothing_from_elsewhere(site):
    """Links that people follow do not count."""
    elsewhere = re.compile(r'<(?!a\s)[^>]*\s(?:src|href|srcset|data)="(?:https?:)?//')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert elsewhere.search(page.read_text(encoding="utf-8")) is None, page


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_screen_and_commands_can_be_copied(address, site, width):
    from playwright.sync_api import sync_playwright

    pages = [f"{page.parent.relative_to(site).as_posix()}/" for page in site.rglob("index.html")]
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": width, "height": 844}, permissions=["clipboard-read", "clipboard-write"]
        )
        page = context.new_page()
        troubles = []
        asked = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        for name in pages:
            page.goto(f"{address}/{name}", wait_until="load")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        page.goto(f"{address}/quickstart/")
        page.locator(".language-console button[data-clipboard-target]").nth(2).click()
        assert page.evaluate("navigator.clipboard.readText()") == "adamab init triage\n"
        assert troubles == []
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
        browser.close()

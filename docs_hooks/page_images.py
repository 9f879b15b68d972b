"""Pictures of the page for docs/page.md: `python -m docs_hooks.page_images`, with Chromium and Playwright."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TEXT = "Since Tuesday I see invoices of another company in our account, is our data visible to them as well?"
HEIGHTS = {"try": 860, "classes": 860, "run": 860, "rounds": 620, "samples": 760}
DARK = ("try", "run", "samples", "phone")  # of which there is a dark one


def main() -> None:
    """Fit the built-in task, serve it, and look at every part."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place:
        run = fitted(Path(place))
        command = [sys.executable, "-m", "adamab", "serve", run.name, "--port", "0"]
        server = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True)
        try:
            url = str(server.stdout and server.stdout.readline()).partition(" at ")[2].split()[0]
            with sync_playwright() as started:
                browser = started.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                for part in ("phone", *HEIGHTS):
                    for scheme in ("light", "dark") if part in DARK else ("light",):
                        look(browser, url, part, scheme)
        finally:
            server.terminate()
            server.communicate()


def fitted(place: Path) -> Path:
    """A run of the built-in task with recorded samples."""
    data = files("adamab.demo") / "data"
    (place / "written.jsonl").write_text((data / "synthetic.jsonl").read_text("utf-8"), "utf-8")
    examples: dict[str, list[str]] = {}
    for line in (data / "messages.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        examples.setdefault(row["label"], []).append(row["text"])
    classes = [
        {"name": row["label"], "description": row["description"], "examples": examples[row["label"]][:5]}
        for row in json.loads((data / "classes.json").read_text("utf-8"))
    ]
    (place / "task.yaml").write_text(json.dumps({"name": "support desk", "classes": classes}), "utf-8")
    command = ["fit", "task.yaml", "--run", "run", "--generator", "replay:written.jsonl"]
    budget = ["--budget", "140 samples", "--quiet"]
    subprocess.run([sys.executable, "-m", "adamab", *command, *budget], cwd=place, check=True)
    return place / "run"


def look(browser: object, url: str, part: str, scheme: str) -> None:
    """One picture, in few colours: they are kept in the repository."""
    from PIL import Image

    size = {"width": 390, "height": 844} if part == "phone" else {"width": 1200, "height": HEIGHTS[part]}
    page = browser.new_context(viewport=size, color_scheme=scheme).new_page()  # type: ignore[attr-defined]
    page.goto(f"{url}/#{ {'phone': 'try', 'rounds': 'run'}.get(part, part) }")
    page.wait_for_selector("#text, .classes, .strips, .sample")
    if part in ("try", "phone"):
        page.fill("#text", TEXT)
        page.keyboard.press("Enter")
        page.wait_for_selector(".answer")
    elif part == "rounds":
        page.click("summary:has-text('Details')")
        page.click("[data-round] >> nth=0")
        page.locator("summary:has-text('Details')").scroll_into_view_if_needed()
        page.evaluate("document.querySelector('.rounds').closest('details').scrollIntoView()")
    elif part == "samples":
        for key in ("r", "j", "x", "j", "x"):
            page.keyboard.press(key)
            page.wait_for_timeout(300)
    page.wait_for_timeout(700)
    image = Image.open(io.BytesIO(page.screenshot()))
    image.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(
        IMAGES / f"page-{part}-{scheme}.png", optimize=True
    )
    page.context.close()


if __name__ == "__main__":
    main()

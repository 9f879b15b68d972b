"""A hook of mkdocs: drawings become part of the page, so that they follow its light and dark colours.

Elsewhere, as on a code host, the same files are ordinary images that follow the reader's system.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_DRAWING = re.compile(
    r'<p><img alt="(?P<alt>[^"]*)" src="[./]*images/(?P<name>concept-[\w-]+\.svg)" ?/?></p>'
)


def on_page_content(html: str, config: Any, **_: Any) -> str:
    """Put the drawing itself where a page shows a `concept-*.svg`."""
    images = Path(config["docs_dir"]) / "images"

    def inlined(image: re.Match[str]) -> str:
        drawing = (images / image["name"]).read_text(encoding="utf-8")
        return f'<figure class="concept">{drawing}</figure>'

    return _DRAWING.sub(inlined, html)

"""A hook of mkdocs: the site takes its colours and fonts from the stylesheet that page and report share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LOOK = Path(__file__).parent.parent / "src" / "adamab" / "serving" / "web" / "look.css"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the stylesheet to what the site serves."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "stylesheets/look.css", abs_src_path=str(LOOK)))
    return files

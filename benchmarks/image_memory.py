"""Peak memory of embedding a folder of 200 images against one of 2,000, and of fitting on as many.

Images are decoded a batch at a time, so the peak must not grow with their number: 2,000 of these are 2.9 GB
of pixels. Each command runs in a process of its own, through the command line, and tells the highest resident
size that the kernel saw (`VmHWM`, as in `benchmarks.memory`). The network is a small one made here, since the
point is the pixels: it takes images of 224 x 224 and gives the mean colours of a grid.

`python -m benchmarks.image_memory COMMAND …` runs one command of adamab and prints its peak in MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.memory import peak
from benchmarks.report import Figure, Group, Table

FEW, MANY = 200, 2000
BAR, BAR_GROWTH = 1.2, 50
PREDICT, PREDICT_CACHED = "predict --no-cache", "predict"
FIT, FIT_CACHED = "fit", "fit, vectors in the cache"
WIDTH, HEIGHT = 800, 600
N_CLASSES, GIVEN = 4, 3


def run() -> Group:
    with tempfile.TemporaryDirectory() as name:
        place = _Place(Path(name))
        place.prepare()
        peaks = {n: place.peaks(n) for n in (FEW, MANY)}
    rows = [[title, f"{peaks[FEW][title]:.0f}", f"{peaks[MANY][title]:.0f}"] for title in peaks[FEW]]
    title = f"Peak memory in MB, images of {WIDTH} x {HEIGHT}"
    table = Table(title, ["command", f"{FEW} images", f"{MANY} images"], rows)
    predictions = [_ratio(title, peaks) for title in (PREDICT, PREDICT_CACHED)]
    return Group([*predictions, _growth(peaks)], [table])


def _ratio(title: str, peaks: dict[int, dict[str, float]]) -> Figure:
    few, many = peaks[FEW][title], peaks[MANY][title]
    note = f"{many:.0f} MB against {few:.0f} MB at the peak"
    return Figure(f"memory, {title} of {MANY} images to {FEW}", many / few, BAR, note=note)


def _growth(peaks: dict[int, dict[str, float]]) -> Figure:
    """A fit holds the vectors of all samples and trains on them: what counts is what images add to that."""
    few, many = (peaks[n][FIT] - peaks[n][FIT_CACHED] for n in (FEW, MANY))
    note = f"{many:.0f} MB more than the same fit with its vectors in the cache, against {few:.0f} MB"
    name = f"memory, MB that embedding adds to a fit on {MANY} images beyond {FEW}"
    return Figure(name, many - few, BAR_GROWTH, note=note)


@dataclass(frozen=True)
class _Place:
    """A folder with a network, images, and a fitted run to predict with."""

    folder: Path

    def prepare(self) -> None:
        _write_network(self.folder / "network.onnx")
        rng = np.random.default_rng(0)
        _write_images(self.folder / "given", GIVEN * N_CLASSES, rng)
        files = _write_images(self.folder / str(MANY), MANY, rng)
        for file in files[:FEW]:
            link = self.folder / str(FEW) / file.parent.name / file.name
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, link)
        with _empty_cache() as cache:
            self.peak(cache, *self._fit("given", "run"))

    def peaks(self, n: int) -> dict[str, float]:
        """MB at the peak of each command on `n` images; all but one find an empty vector cache."""
        predict = ("predict", "run", str(n), "-o", "out.csv")
        with _empty_cache() as cache:
            uncached, cached = self.peak(cache, *predict, "--no-cache"), self.peak(cache, *predict)
        with _empty_cache() as cache:
            cold, warm = (self.peak(cache, *self._fit(str(n), f"{kind}-{n}")) for kind in ("cold", "warm"))
        return {PREDICT: uncached, PREDICT_CACHED: cached, FIT: cold, FIT_CACHED: warm}

    def _fit(self, given: str, run: str) -> tuple[str, ...]:
        return ("fit", given, "--run", run, "--embedder", "onnx:network.onnx", "--quiet")

    def peak(self, cache: str, *arguments: str) -> float:
        command = [sys.executable, "-m", "benchmarks.image_memory", *arguments]
        root = Path(__file__).resolve().parent.parent
        environment = {**os.environ, "PYTHONPATH": str(root), "ADAMAB_CACHE": cache}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return float(done.stdout)


@contextmanager
def _empty_cache() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "vectors.sqlite")


def _write_images(folder: Path, n: int, rng: np.random.Generator) -> list[Path]:
    """JPEGs with one folder per class: blurred noise around the colour of the class, all different."""
    from PIL import Image

    files = []
    for number in range(n):
        label = number % N_CLASSES
        colours = np.array([60 + 40 * label, 120, 180 - 40 * label]) + rng.integers(-50, 50, (15, 20, 3))
        file = folder / f"class {label}" / f"{number:05}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(np.clip(colours, 0, 255).astype(np.uint8))
        image.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR).save(file)
        files.append(file)
    return files


def _write_network(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    pool = helper.make_node("AveragePool", ["image"], ["grid"], kernel_shape=[32, 32], strides=[32, 32])
    flatten = helper.make_node("Flatten", ["grid"], ["features"])
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 224, 224])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", 147])
    graph = helper.make_graph([pool, flatten], "grid", [image], [features])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), path)


def _main() -> None:
    from adamab.cli import main

    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    print(peak())


if __name__ == "__main__":
    _main()

"""The loop that embeds and multiplies, without a server, in a process of its own.

`python -m benchmarks.serving_bare MODEL` reads texts (a JSON array, one line), then lines `SIZE SECONDS`. For
each it prints a JSON object: texts a second in batches of that size, and CPU seconds a text. A process of
its own gets the very environment that the server gets: with more threads for the arithmetic than the
server has, this loop is slower on a busy machine, and the server seems faster than what it is made of.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator

from adamab.model.predictor import Inference


def loop(model: Inference, texts: Iterator[str], size: int, seconds: float) -> dict[str, float]:
    """Go on through the texts for that time."""
    assert model.embedder is not None
    embedder, classifier, count = model.embedder, model.classifier, 0
    start, cpu = time.perf_counter(), time.process_time()
    with asyncio.Runner() as runner:
        while time.perf_counter() - start < seconds:
            batch = list(itertools.islice(texts, size))
            views = runner.run(embedder.embed(batch, views=classifier.views)).views
            classifier.logits(views, batch)
            count += size
    rate = count / (time.perf_counter() - start)
    return {"rate": rate, "cpu_a_text": (time.process_time() - cpu) / count}


def _main() -> None:
    model = Inference.open(sys.argv[1], cache=False)
    texts = itertools.cycle(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        size, seconds = line.split()
        print(json.dumps(loop(model, texts, int(size), float(seconds))), flush=True)


if __name__ == "__main__":
    _main()

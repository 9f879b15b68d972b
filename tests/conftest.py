"""Shared by all tests: one thread per process, so that two workers on two cores do not fight."""

import os
import secrets
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

# Before torch or a BLAS is imported, here and in every subprocess that a test starts.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"


@pytest.fixture(autouse=True)
def _private_cache(tmp_path, monkeypatch):
    """No test reads or fills the user's own vector cache."""
    monkeypatch.setenv("ADAMAB_CACHE", str(tmp_path / "cache" / "vectors.sqlite"))


@pytest.fixture
def server():
    """A local server that speaks the providers' protocols."""
    from adamab.testing import ProviderServer

    with ProviderServer() as running:
        yield running


@pytest.fixture(scope="session")
def paint():
    """Writes images: `paint(folder, {"red": 3})` makes three reddish ones in folder/red."""
    import numpy as np
    from PIL import Image

    colours = {"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 60, 200), "grey": (120, 120, 120)}

    def write(folder, counts, *, seed=0, side=24, ending="png"):
        rng = np.random.default_rng(seed)
        written = []
        for name, count in counts.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                noise = rng.integers(-40, 40, (side, side, 3))
                pixels = np.clip(np.array(colours[name]) + noise, 0, 255).astype(np.uint8)
                written.append(folder / name / f"{seed}-{number}.{ending}")
                Image.fromarray(pixels).save(written[-1])
        return written

    return write


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A randomly initialised BERT of two layers on disk, in the real format, for the real loader."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    directory = tmp_path_factory.mktemp("tiny")
    raw = directory / "raw"
    raw.mkdir(parents=True)
    words = "send my money back please the app crashes when i open it refund hello world good bye a"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", "query", "class", *words.split()]
    (raw / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)) + "\n")
    BertTokenizer(str(raw / "vocab.txt"), model_max_length=16).save_pretrained(raw)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).eval().save_pretrained(raw)
    body = Transformer(str(raw), max_seq_length=16)
    model = library.SentenceTransformer(modules=[body, Pooling(8)], device="cpu")
    out = directory / "model"
    model.save(str(out), create_model_card=False)
    return out


@pytest.fixture
def files_of_at_most():
    """Stands in for a full disk: what is written beyond a size fails; Python ignores the signal."""
    import resource

    @contextmanager
    def limited(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.fixture
def table_of():
    """The parts of a bulk prediction as one table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(folder):
        return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("part-*.parquet")))

    return read


@pytest.fixture
def write_corpus():
    """Writes two files of `times` times the texts and once more, with some rows that have no answer."""
    import json

    def write(folder, texts, times):
        folder.mkdir()
        for number in range(2):
            lines = [json.dumps({"text": text, "n": n}) for n, text in enumerate(texts * (times + number))]
            lines[17:19] = ['{"text": ', '{"text": "no vector of it"}']
            (folder / f"{number}.jsonl").write_text("\n".join(lines))
        return folder

    return write


@pytest.fixture
def hold_cpus():
    """Takes processors of a Ray cluster, as another job would; `ray.kill` gives them back."""

    def hold(ray, cpus):
        @ray.remote(num_cpus=cpus)
        class Holder:
            def ready(self):
                return True

        actor = Holder.remote()
        assert ray.get(actor.ready.remote())
        return actor

    return hold


@pytest.fixture(scope="session")
def ray_address():
    """One Ray cluster of exactly two CPUs, in a process of its own, for all tests with xdist_group("ray").

    A process that ends takes its pipe with it, so the cluster ends even when this process is killed.
    """
    if find_spec("ray") is None:  # not imported: it reads the token when it is
        pytest.skip("the extra ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        head = [sys.executable, str(Path(__file__).parent / "ray_support" / "head.py")]
        with subprocess.Popen(head, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            address = process.stdout.readline().strip()
            assert address, "the head of the Ray cluster did not start"
            yield address
            process.stdin.close()

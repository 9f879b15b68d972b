"""`adamab predict -o FILE` that is stopped, or started again with something else."""

import pytest

from adamab.cli import predict as predict_command
from adamab.predict.predictor import Predictor


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(predict_command, "CHUNK", 2)


@pytest.fixture
def stopped_at(monkeypatch):
    """The prediction is stopped when it comes to this chunk, once; returns what was asked."""
    rows = Predictor.rows

    def stop(chunk):
        asked = []

        def stopping(self, source, part):
            asked.append(part[0].line)
            if len(asked) == chunk:
                raise KeyboardInterrupt
            return rows(self, source, part)

        monkeypatch.setattr(Predictor, "rows", stopping)
        return asked

    return stop


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_file_goes_on_where_it_was_stopped(adamab, folder, model, stopped_at, ending):
    whole, target = folder / f"whole.{ending}", folder / f"out.{ending}"
    assert adamab("predict", model, "new.jsonl", "-o", whole).exit_code == 0
    asked = stopped_at(3)
    result = adamab("predict", model, "new.jsonl", "-o", target)
    assert result.exit_code == 130
    assert "what is finished is kept: run the same command again to go on" in result.stderr
    assert not target.exists()
    parts = sorted((folder / f".out.{ending}.parts").glob("part-*"))
    assert len(parts) == 2
    result = adamab("predict", model, "new.jsonl", "-o", target)
    assert result.exit_code == 0, result.output
    assert "going on after 4 rows" in result.stderr
    assert target.read_bytes() == whole.read_bytes()
    assert len(asked) == 3 + 3  # five chunks: two that are kept, three now
    assert not list(folder.glob(".out*"))


@pytest.fixture
def server(paid_run):
    """A run whose embedder is behind an API, one text a call."""
    with paid_run(batch=1) as server:
        yield server


def test_the_book_of_paid_calls_is_that_of_one_job(adamab, refused, folder, server):
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text("".join(f"{name} {n}\n" for n in range(4)))
    before = server.count("/embeddings")

    def calls():
        return server.count("/embeddings") - before

    command = ("predict", "paid", "one.txt", "-o", "out.csv", "--budget")
    for _ in range(2):  # the second start has nothing left, though no chunk was finished
        assert "budget of 1 call is spent" in refused(*command, "1 calls")
        assert calls() == 1
    assert "budget of 3 calls is spent" in refused(*command, "3 calls")
    assert calls() == 3
    other = adamab("predict", "paid", "two.txt", "-o", "out.csv", "--budget", "4 calls")
    assert other.exit_code == 0, other.output
    assert "out.csv: has unfinished parts of another input; starting over" in other.stderr
    assert "spent: 4 calls" in other.stderr
    assert not list(folder.glob(".out*"))


def test_a_book_is_not_kept_for_what_cannot_be_read_twice(adamab, refused, folder, server):
    (folder / "one.txt").write_text("one 0\none 1\n")
    assert "is spent" in refused("predict", "paid", "one.txt", "-o", "out.csv", "--budget", "1 calls")
    result = adamab("predict", "paid", "-", "-o", "out.csv", "--budget", "1 calls", stdin="new\n")
    assert result.exit_code == 0, result.output
    assert "spent: 1 call," in result.stderr
    assert not list(folder.glob(".out*"))
    assert "is spent" in refused("predict", "paid", "-", "-o", "b.csv", "--budget", "1 calls", stdin="a\nb\n")
    assert not list(folder.glob(".b*"))

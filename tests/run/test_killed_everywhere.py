"""A run that is killed between any two writes of its journal ends, once resumed, as if it had not been.

One run is watched: what its directory holds before each statement that SQLite carries out is what a process
killed at that moment leaves behind. Whatever differs from the moment before is resumed.
"""

import os
import shutil
import sqlite3
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from adamab.providers.metering import Price
from adamab.task.recipe import Recipe

GIVEN = {
    "refund": ["give me my money back", "i want a refund"],
    "praise": ["a lovely product", "lovely team"],
}
DESCRIPTIONS = {"refund": "wants money back", "praise": "is happy"}
# One class has another name, one another description, and a new one the name of the first.
CHANGED = {"money": GIVEN["refund"], "praise": GIVEN["praise"], "refund": ["refund us", "a refund is due"]}
OTHER_DESCRIPTIONS = {"money": "wants money back", "praise": "says thanks", "refund": "is a merchant"}
RECIPES = {
    "default": Recipe(views=("pooled",), words=False, batch=2, augmentation_rounds=3),
    "paper": Recipe.preset("paper").with_options(batch=2, augmentation_rounds=3, rounds=4),
    "changed": Recipe(views=("pooled",), words=False, batch=2, rounds_per_class=2),
}
PRICES = {"openai:m": Price.parse("m=1/2")[1]}
LOG, SHARED_MEMORY = "-wal", "-shm"  # what SQLite puts behind the name of a database


@dataclass(frozen=True)
class Kill:
    """The files that a killed process leaves, and how many calls the provider had received by then."""

    files: dict[str, bytes]
    calls: int

    def left_in(self, path):
        path.mkdir()
        for name, content in self.files.items():
            (path / name).write_bytes(content)
        return path

    def durable(self):
        return {name: content for name, content in self.files.items() if not name.endswith(SHARED_MEMORY)}

    def torn(self, before):
        """Killed within the write that made `before` into this; None where that did not append to a log."""
        changed = [name for name in self.durable() if self.files[name] != before.files.get(name)]
        if len(changed) != 1 or not changed[0].endswith(LOG):
            return None
        (log,) = changed
        length = (len(before.files.get(log, b"")) + len(self.files[log])) // 2
        return Kill({**self.files, log: self.files[log][:length]}, before.calls)


class Watcher:
    """Keeps what a directory holds before each statement of SQLite and before each file that is opened."""

    def __init__(self, path, server, monkeypatch):
        self.kills = []
        self._path, self._server, self._lock = path, server, threading.Lock()
        connect, open_file = sqlite3.connect, os.open

        def watched_connect(*args, **options):
            db = connect(*args, **options)
            db.set_trace_callback(lambda statement: self._look())
            return db

        def watched_open(*args, **options):
            self._look()
            return open_file(*args, **options)

        monkeypatch.setattr(sqlite3, "connect", watched_connect)
        monkeypatch.setattr(os, "open", watched_open)

    def _look(self):
        with self._lock:
            # The calls first: the answer to one that comes in meanwhile cannot be in the files yet.
            calls = self._server.count()
            there = self._path.iterdir() if self._path.exists() else ()
            kill = Kill({file.name: file.read_bytes() for file in there if file.is_file()}, calls)
            if not self.kills or kill.durable() != self.kills[-1].durable():
                self.kills.append(kill)


@pytest.mark.parametrize(
    ("policy", "prefetch", "recipe"),
    [("adamab", 0, "default"), ("adamab", 2, "paper"), ("round-robin", 2, "paper"), ("adamab", 2, "changed")],
)
def test_killed_at_every_write(runs, server, tmp_path, monkeypatch, policy, prefetch, recipe):
    def fit(path, prefetch=prefetch, given=GIVEN, descriptions=DESCRIPTIONS):
        """The questions that were asked, and what was spent."""
        start = server.count()
        order = runs.order(
            given,
            descriptions=descriptions,
            policy=policy,
            prefetch=prefetch,
            prices=PRICES,
            recipe=RECIPES[recipe],
        )
        spent = runs.fit(order, path)["spent"]
        return [seen.idempotency_key for seen in server.seen[start:]], spent

    if recipe == "changed":
        fit(runs.path)
        shutil.copytree(runs.path, tmp_path / "whole")
        fit = partial(fit, given=CHANGED, descriptions=OTHER_DESCRIPTIONS)
    needed, cost = fit(tmp_path / "whole", prefetch=0)
    expected = runs.left(tmp_path / "whole")
    start = server.count()
    with monkeypatch.context() as patched:
        watcher = Watcher(runs.path, server, patched)
        watched, _ = fit(runs.path)
    kills = watcher.kills
    torn = [kill for kill in map(Kill.torn, kills[1:], kills) if kill is not None]
    assert len(torn) > 5 * len(needed)
    asked_again = 0
    for number, kill in enumerate([*kills, *torn[:: len(torn) // 2]]):
        path = kill.left_in(tmp_path / f"killed-{number}")
        before, (after, spent) = set(watched[: kill.calls - start]), fit(path)
        bought, repeated = before.union(after), before.intersection(after)
        assert runs.left(path) == expected
        assert bought >= set(needed)
        assert len(bought) <= len(needed) + 2 * prefetch  # what either process fetched ahead in vain
        assert len(set(after)) == len(after)
        assert len(repeated) <= spent["unsettled"] <= 1 + prefetch  # those on their way when it was killed
        if bought == set(needed) and not spent["unsettled"]:
            assert spent == cost
        asked_again += len(repeated)
    assert asked_again > 0  # or no kill hit a call on its way

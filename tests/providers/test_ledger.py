import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adamab.errors import BudgetError, RecipeError, RunError
from adamab.providers import metering as ledger_module
from adamab.providers.metering import Budget, Ledger, Spend, Usage


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return tmp_path / "journal.sqlite" if request.param == "file" else None


@pytest.fixture
def opened():
    """Makes ledgers and closes them at the end."""
    made = []

    def make(budget=None, path=None):
        made.append(Ledger(Budget.parse(budget), path))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


def tried(ledger, nano_usd=1):
    try:
        return ledger.reserve("generate", nano_usd)
    except BudgetError:
        return None


def in_threads(count, work):
    """The sum of what `count` threads return that start at once."""
    start = threading.Barrier(count)

    def after_the_others(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(after_the_others, range(count)))


def test_calls_are_counted_and_settled(opened, path):
    ledger = opened(None, path)
    first = ledger.reserve("generate", 100, class_name="refund \ud83d")  # half a character
    second = ledger.reserve("embed", 50)
    assert ledger.spent() == Spend(calls=2, nano_usd=150, unsettled=2)
    ledger.settle(first, 70, Usage(10, 20))
    assert ledger.spent() == Spend(2, 120, 10, 20, unsettled=1)
    ledger.settle(second, None, None)  # the provider did not say: it counts as reserved
    assert ledger.spent() == Spend(2, 120, 10, 20)
    assert ledger.by_class() == {
        ("generate", "refund \\ud83d"): Spend(1, 70, 10, 20),
        ("embed", None): Spend(1, 50),
    }


def test_the_cap_on_calls(opened, path):
    ledger = opened("2 calls", path)
    for _ in range(2):
        ledger.settle(ledger.reserve("generate", None), 0, None)  # a call that failed is a call
    with pytest.raises(BudgetError, match=r"^the budget of 2 calls is spent$"):
        ledger.reserve("generate", None)
    assert ledger.spent().calls == 2
    ledger.budget = Budget.parse("3 calls")
    assert (tried(ledger) is None, tried(ledger) is None) == (False, True), "a larger budget goes on"


def test_the_cap_on_money(opened, path):
    ledger = opened("1.50 usd", path)
    ledger.reserve("generate", 1_499_700_000)
    message = r"^the budget of 1\.50 usd has 0\.0003 usd left, and the next call may cost 0\.0011 usd$"
    with pytest.raises(BudgetError, match=message):
        ledger.reserve("generate", 1_100_000)
    ledger.reserve("generate", 300_000)
    with pytest.raises(BudgetError, match=r"^the budget of 1\.50 usd is spent, and the next"):
        ledger.reserve("generate", 1)
    ledger.reserve("generate", 0)  # what is free can be had


def test_an_unknown_price_cannot_be_held_against_a_cap_on_money(opened, path):
    ledger = opened("1 usd", path)
    with pytest.raises(RecipeError, match="price is unknown"):
        ledger.reserve("generate", None)
    assert ledger.spent() == Spend()


def test_running_ahead_leaves_the_calls_of_the_planned_rounds(opened, path):
    ledger = opened("10 calls", path)
    ledger.plan(4, ("generate", "embed"))
    for _ in range(2):
        ledger.reserve("generate", 100, ahead=True)
    with pytest.raises(BudgetError, match="planned rounds need what is left of the budget of 10 calls"):
        ledger.reserve("generate", 100, ahead=True)
    ledger.plan(3, ("generate", "embed"))
    ledger.reserve("embed", 100, ahead=True)
    for _ in range(7):
        ledger.reserve("generate", 100)  # the plan itself may use it up
    assert tried(ledger) is None


def test_running_ahead_leaves_the_money_of_the_planned_rounds(opened, path):
    ledger = opened("0.000001 usd", path)  # 1000 billionths
    ledger.plan(2, ("generate", "embed"))
    with pytest.raises(BudgetError, match=r"planned rounds need what is left of the budget of 0\.000001 usd"):
        ledger.reserve("generate", 334, ahead=True)  # three of them would be too dear
    ledger.settle(ledger.reserve("embed", 5), 50, None)  # 950 are left, two rounds need 2 * (200 + 50)
    ledger.reserve("generate", 200, ahead=True)
    ledger.reserve("generate", 200, ahead=True)
    with pytest.raises(BudgetError, match="planned rounds"):
        ledger.reserve("generate", 200, ahead=True)
    ledger.reserve("generate", 200)


def test_a_call_is_settled_once(opened, path):
    ledger = opened(None, path)
    number = ledger.reserve("generate", 5)
    ledger.settle(number, 3, None)
    for wrong in (number, number + 100, 0):
        with pytest.raises(ValueError, match="does not exist or is settled already"):
            ledger.settle(wrong, 1, None)
    assert ledger.spent() == Spend(1, 3)


def test_absurd_usage_is_kept_within_what_can_be_stored(opened, path):
    ledger = opened("1 usd", path)
    huge, negative = ledger.reserve("generate", 1), ledger.reserve("generate", 1)
    ledger.settle(negative, -(10**12), Usage(-5, -5))  # must not earn anything
    assert ledger.spent() == Spend(2, 1, unsettled=1)
    ledger.settle(huge, 10**30, Usage(10**30, 10**30))
    assert ledger.spent().nano_usd > 10**18
    assert tried(ledger) is None


def test_a_closed_ledger_still_says_what_was_spent(opened, path):
    ledger = opened(None, path)
    with ledger:
        ledger.reserve("generate", 5)
    assert ledger.spent() == Spend(1, 5, unsettled=1)
    with pytest.raises(RunError, match="closed"):
        ledger.reserve("generate", 5)
    ledger.close()


def test_opening_again_adds_up(opened, tmp_path):
    path = tmp_path / "journal.sqlite"
    assert (opened("5 calls", path).spent(), path.exists()) == (Spend(), False)
    with opened("3 calls", path) as first:
        first.settle(first.reserve("generate", 10, class_name="a"), 7, Usage(1, 2))
        left_open = first.reserve("generate", 10, class_name="a")
    second = opened("3 calls", path)
    assert second.by_class() == {("generate", "a"): Spend(2, 17, 1, 2, unsettled=1)}
    assert tried(second) is not None
    assert tried(second) is None
    second.settle(left_open, 1, None)  # another process may learn the outcome
    assert second.spent().nano_usd == 9


def test_the_file_is_the_owners_durable_and_append_only(opened, tmp_path):
    path = tmp_path / "journal.sqlite"
    ledger = opened(None, path)
    ledger.settle(ledger.reserve("generate", 5), 3, None)
    assert path.stat().st_mode & 0o777 == 0o600
    db = sqlite3.connect(path)
    try:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        for statement in ("UPDATE spending SET nano_usd = 0", "DELETE FROM spending"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                db.execute(statement)
    finally:
        db.close()
    assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


@pytest.mark.parametrize("cap", [1, 40])
def test_threads_never_exceed_the_cap_on_calls(opened, path, cap):
    ledger = opened(f"{cap} calls", path)
    made = in_threads(16, lambda _: sum(tried(ledger) is not None for _ in range(5)))
    assert made == cap
    assert ledger.spent().calls == cap


steps = st.lists(
    st.tuples(st.integers(0, 400), st.floats(0, 1), st.integers(0, 5), st.booleans()), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 1000))
def test_costs_within_their_bound_never_exceed_the_cap(steps, cap):
    with Ledger(Budget.parse(f"0.{cap:09d} usd")) as ledger:
        held = []
        costs = []
        for bound, share, which, settles in steps:
            if settles and held:
                number, reserved = held.pop(which % len(held))
                costs.append(int(reserved * share))
                ledger.settle(number, costs[-1], None)
            elif (number := tried(ledger, bound)) is not None:
                held.append((number, bound))
            else:  # a refusal must have had a reason
                assert ledger.spent().nano_usd + bound > cap
            assert ledger.spent().nano_usd == sum(costs) + sum(bound for _, bound in held) <= cap
        assert ledger.spent().unsettled == len(held)


WORKER = """
import sys
from pathlib import Path
from adamab.errors import BudgetError
from adamab.providers.metering import Budget, Ledger

print("ready", flush=True)
sys.stdin.readline()
made = 0
with Ledger(Budget.parse(sys.argv[2]), Path(sys.argv[1])) as ledger:
    for turn in range(4):
        try:
            number = ledger.reserve("generate", 10)
        except BudgetError:
            break
        made += 1
        if turn % 2:
            ledger.settle(number, 5, None)
print(made)
"""


def started(path, budget, script=WORKER):
    command = [sys.executable, "-c", script, str(path), budget]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_never_exceed_the_cap(opened, tmp_path):
    path = tmp_path / "journal.sqlite"
    workers = [started(path, "25 calls") for _ in range(16)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:  # all at once, on a file that does not exist yet
        worker.stdin.write("\n")
        worker.stdin.flush()
    made = [int(worker.communicate()[0]) for worker in workers]
    assert sum(made) == 25
    assert opened(None, path).spent().calls == 25


def test_a_forked_process_cannot_spend_beside_its_parent(opened, path, monkeypatch):
    ledger = opened("2 calls", path)
    ledger.reserve("generate", 1)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        assert "opened by another process" in one_line_error(ledger)
    assert ledger.spent().calls == 1


def one_line_error(ledger):
    with pytest.raises(RunError) as caught:
        ledger.reserve("generate", 1)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_full_disk_is_one_line_and_loses_nothing(opened, tmp_path):
    path = tmp_path / "journal.sqlite"
    ledger = opened(None, path)
    number = ledger.reserve("generate", 5)
    (pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to run out of room
    with pytest.raises(RunError) as caught:
        ledger.reserve("generate", 5, class_name="x" * 100_000)
    assert str(caught.value) == f"{path}: cannot be written (disk is full); free some space and start again"
    ledger._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    ledger.settle(number, 2, None)
    assert opened(None, path).spent() == ledger.spent() == Spend(1, 2)


def test_a_file_that_is_no_database_is_one_line_and_stays(opened, tmp_path):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"not a database at all, " * 100)
    ledger = opened(None, path)
    assert "is damaged (file is not a database)" in one_line_error(ledger)
    with pytest.raises(RunError, match="damaged"):
        ledger.spent()
    assert path.read_bytes() == b"not a database at all, " * 100


def test_rows_that_make_no_sense_are_damage(opened, tmp_path):
    path = tmp_path / "journal.sqlite"
    with opened(None, path) as ledger:
        ledger.reserve("generate", 1)
    db = sqlite3.connect(path)
    db.execute("INSERT INTO spending (reservation, nano_usd) VALUES (77, 1)")
    db.commit()
    db.close()
    assert "is damaged (row 2 settles nothing)" in one_line_error(opened(None, path))


def test_a_locked_file_is_one_line(opened, tmp_path, monkeypatch):
    path = tmp_path / "journal.sqlite"
    with opened(None, path) as ledger:
        ledger.reserve("generate", 1)
    monkeypatch.setattr(ledger_module, "_TIMEOUT", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    waiting = opened(None, path)
    assert "is in use by another process" in one_line_error(waiting)
    assert waiting.spent().calls == 1  # readers are not kept out
    holder.execute("ROLLBACK")
    holder.close()
    assert tried(waiting) is not None

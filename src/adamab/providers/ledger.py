"""The book of paid calls: reserve before a call, settle after it.

One row says that a call may be made and what it may cost at most; another says what it
did cost. Rows are never changed. A reservation is checked against the caps and written in
one transaction that shuts everyone else out, so that the caps hold for tasks, threads and
processes that share the file. A call that is never settled counts with all that it may
have cost, for ever: nobody knows whether the provider billed it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from decimal import ROUND_CEILING, ROUND_FLOOR
from pathlib import Path

from adamab.errors import BudgetError, RecipeError, RunError
from adamab.providers.budget import Budget, Spend
from adamab.providers.prices import usd
from adamab.providers.usage import Usage
from adamab.task.messages import one_line, place, storable

AHEAD: ContextVar[bool] = ContextVar("AHEAD", default=False)
"""Set in tasks that run ahead of the policy; their calls leave what `Ledger.plan` asks for."""

_TIMEOUT = 60.0  # seconds to wait for other processes, each of which holds the file for milliseconds
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS spending (id INTEGER PRIMARY KEY AUTOINCREMENT, "
    # NULL in a reservation; a settlement names the one that it settles.
    "reservation INTEGER UNIQUE REFERENCES spending (id), "
    "purpose TEXT, class TEXT, nano_usd INTEGER, input_tokens INTEGER, output_tokens INTEGER)",
    "CREATE TRIGGER IF NOT EXISTS spending_is_not_changed BEFORE UPDATE ON spending "
    "BEGIN SELECT RAISE(ABORT, 'spending is append-only'); END",
    "CREATE TRIGGER IF NOT EXISTS spending_is_not_deleted BEFORE DELETE ON spending "
    "BEGIN SELECT RAISE(ABORT, 'spending is append-only'); END",
)
_ROWS = "SELECT id, reservation, purpose, class, nano_usd, input_tokens, output_tokens FROM spending"
_INSERT = (
    "INSERT INTO spending (reservation, purpose, class, nano_usd, input_tokens, output_tokens) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_REMEDIES = {
    sqlite3.SQLITE_FULL: "cannot be written (disk is full); free some space and start again",
    sqlite3.SQLITE_IOERR: "cannot be read or written ({}); see whether the disk is full, then start again",
    sqlite3.SQLITE_READONLY: "cannot be written (read-only); allow writing to it and to its directory",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({}); see whether its directory is there and can be written",
    sqlite3.SQLITE_PERM: "cannot be opened ({}); allow reading and writing it",
    sqlite3.SQLITE_BUSY: "is in use by another process; wait until that has ended and start again",
    sqlite3.SQLITE_LOCKED: "is in use by another process; wait until that has ended and start again",
}
_DAMAGE = "is damaged ({}); put a copy of it back, or start anew in another run directory"

Key = tuple[str, str | None]  # purpose and class


class Ledger:
    """Caps on calls and money that hold under any concurrency.

    `path` is an SQLite file, which may hold other tables as well; without one, the book is
    kept in memory and for this process only. `budget` may be replaced by a larger one.
    """

    def __init__(self, budget: Budget | None = None, path: Path | None = None) -> None:
        self.budget = Budget() if budget is None else budget
        self.path = path
        self._rounds = 0
        self._purposes: tuple[str, ...] = ()
        self._book = _Book(path)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(self, rounds: int, purposes: Sequence[str]) -> None:
        """Say how many rounds are to come, each with a call of every purpose.

        Calls that run ahead of them must leave that many calls, and the money for them at the price of
        the dearest call so far.
        """
        self._rounds, self._purposes = rounds, tuple(purposes)

    def _planned(self, purpose: str, nano_usd: int | None) -> Spend:
        """What the rounds to come need, as far as the calls so far and this one tell."""
        dearest = {**self._book.dearest}
        dearest[purpose] = max(dearest.get(purpose, 0), nano_usd or 0)
        money = self._rounds * sum(dearest.get(name, 0) for name in self._purposes)
        return Spend(calls=self._rounds * len(self._purposes), nano_usd=money)

    def reserve(
        self, purpose: str, nano_usd: int | None, *, class_name: str | None = None, ahead: bool = False
    ) -> int:
        """Count a call before it is made, with what it may cost at most; None where no price is known.

        Raises `BudgetError`, and counts nothing, where the call might exceed a cap.
        """
        with self._book.writing() as db:
            planned = self._planned(purpose, nano_usd) if ahead else Spend()
            self._check(self._book.total, nano_usd, planned)
            amount = None if nano_usd is None else _within(nano_usd)
            name = None if class_name is None else storable(class_name)
            return int(db.execute(_INSERT, (None, purpose, name, amount, None, None)).lastrowid or 0)

    def settle(self, reservation: int, nano_usd: int | None, usage: Usage | None) -> None:
        """Replace what was reserved by what the call cost; None leaves it as it was reserved."""
        with self._book.writing() as db:
            if reservation not in self._book.open:
                raise ValueError(f"reservation {reservation} does not exist or is settled already")
            reserved = self._book.open[reservation][1]
            amount = reserved if nano_usd is None else _within(nano_usd)
            tokens = Usage() if usage is None else usage
            used = _within(tokens.input_tokens), _within(tokens.output_tokens)
            db.execute(_INSERT, (reservation, None, None, amount, *used))

    def spent(self) -> Spend:
        """All calls so far, those of other processes and of earlier starts among them."""
        return sum(self._book.read().values(), Spend())

    def by_class(self) -> dict[Key, Spend]:
        """What was spent by purpose and class."""
        return self._book.read()

    def close(self) -> None:
        """Let go of the file. What was spent can still be asked for."""
        self._book.close()

    def _check(self, spent: Spend, nano_usd: int | None, planned: Spend) -> None:
        cap = self.budget.calls
        if cap is not None and spent.calls >= cap:
            raise BudgetError(f"the budget of {Budget(calls=cap)} is spent")
        if cap is not None and spent.calls + planned.calls >= cap:
            raise BudgetError(f"the planned rounds need what is left of the budget of {Budget(calls=cap)}")
        if self.budget.nano_usd is not None:
            self._check_money(self.budget.nano_usd - spent.nano_usd, nano_usd, planned.nano_usd)

    def _check_money(self, left: int, cost: int | None, planned: int) -> None:
        cap = Budget(usd=self.budget.usd)
        if cost is None:
            raise RecipeError(f"the budget of {cap} cannot be kept: a price is unknown; give it with --price")
        if cost > max(left, 0):
            # Rounded apart, so that the two amounts never look alike.
            rest = "is spent" if left <= 0 else f"has {usd(left, ROUND_FLOOR)} left"
            raise BudgetError(
                f"the budget of {cap} {rest}, and the next call may cost {usd(cost, ROUND_CEILING)}"
            )
        if planned and cost > left - planned:
            raise BudgetError(f"the planned rounds need what is left of the budget of {cap}")


def spent_in(db: sqlite3.Connection) -> tuple[dict[Key, Spend], int]:
    """What was spent by purpose and class, of a file that somebody has opened to read.

    Beside it the part, in nano-dollars, that calls on their way may cost at most.
    """
    book = _Book(None)
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'spending'").fetchone():
        book.catch_up(db)
    return book.totals, sum(nano_usd or 0 for _, nano_usd in book.open.values())


class _Book:
    """The file as this process sees it, and the sums of the rows that it has read."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.total = Spend()
        self.totals: dict[Key, Spend] = {}
        self.dearest: dict[str, int] = {}  # by purpose
        self.open: dict[int, tuple[Key, int | None]] = {}  # reservations that are not settled
        self._last = 0  # the last row that is part of the sums
        self._db: sqlite3.Connection | None = None
        self._prepared = False
        self._ended = ""  # why nothing more can be written
        _BOOKS.add(self)

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else can come between, with the sums up to date."""
        with self.lock, self._readable_errors():
            db = self._connected()
            if not self._prepared:
                self._prepare(db)
            with _transaction(db):
                self.catch_up(db)
                yield db

    def read(self) -> dict[Key, Spend]:
        """The sums by purpose and class, up to date."""
        with self.lock, self._readable_errors():
            if not self._ended and (self.path is None or self.path.exists()):
                db = self._connected()
                if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'spending'").fetchone():
                    self.catch_up(db)
            return dict(self.totals)

    def close(self) -> None:
        """Read what is new, then close for good."""
        with self.lock:
            with contextlib.suppress(RunError):
                self.read()
            self.disconnect()
            self._ended = "closed; start the run again"

    def disconnect(self) -> None:
        """Close the file until it is needed again."""
        if self._db is not None:
            self._db.close()
        self._db, self._prepared = None, False

    def begin_in_child(self) -> None:
        """What a forked process has to know: its lock is its own, and its memory is a copy."""
        self.lock = threading.RLock()
        if self.path is None:
            self._ended = "kept in the memory of another process; give the run a directory"

    def _connected(self) -> sqlite3.Connection:
        if self._ended:
            raise RunError(f"{self._name}: {self._ended}")
        if self._db is None:
            self._db = self._connect()
        return self._db

    def _connect(self) -> sqlite3.Connection:
        where = ":memory:"
        if self.path is not None:
            # Only where it is new: closing a file drops the locks that SQLite holds on it in this process.
            with contextlib.suppress(OSError):  # SQLite says better what is wrong
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # its owner's
            where = f"{self.path.absolute().as_uri()}?mode=rw"
        db = sqlite3.connect(where, uri=True, timeout=_TIMEOUT, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA synchronous = FULL")  # a reservation is on the disk before the call is made
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.OperationalError):  # another process is just doing the same
            db.execute("PRAGMA journal_mode = WAL")
        with _transaction(db):
            for statement in _SCHEMA:
                db.execute(statement)
        self._prepared = True

    def catch_up(self, db: sqlite3.Connection) -> None:
        """Add the rows since the last time. Ids grow in the order of commits, so none is missed."""
        for row in db.execute(f"{_ROWS} WHERE id > ? ORDER BY id", (self._last,)).fetchall():
            self._add(*row)
            self._last = row[0]

    def _add(
        self, number: int, reservation: int | None, purpose: str, class_name: str | None,
        nano_usd: int | None, input_tokens: int | None, output_tokens: int | None,
    ) -> None:  # fmt: skip
        if reservation is None:
            key = purpose, class_name
            self.open[number] = key, nano_usd
            change = Spend(calls=1, nano_usd=nano_usd or 0, unsettled=1)
        elif reservation in self.open:
            key, reserved = self.open.pop(reservation)
            more = (nano_usd or 0) - (reserved or 0)
            change = Spend(0, more, input_tokens or 0, output_tokens or 0, unsettled=-1)
        else:
            raise RunError(f"{self._name}: {_DAMAGE.format(f'row {number} settles nothing')}")
        self.totals[key] = self.totals.get(key, Spend()) + change
        self.total += change
        self.dearest[key[0]] = max(self.dearest.get(key[0], 0), nano_usd or 0)

    @property
    def _name(self) -> str:
        return "the budget's book" if self.path is None else place(self.path)

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            # Errors without a code come from the Python side, over values that cannot be decoded.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            what = _REMEDIES.get(code, _DAMAGE).format(one_line(error))
            raise RunError(f"{self._name}: {what}") from None


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _within(count: int) -> int:
    """What fits a column, whatever a server claims to have used."""
    return max(0, min(count, 2**62))


# SQLite's idea of which locks it holds does not survive a fork. Books may be used on both sides of one,
# so each closes its file before, and both processes open it again when they need it. A run's other
# connections belong to the process that writes it and are not used in a child.
_BOOKS: weakref.WeakSet[_Book] = weakref.WeakSet()
_FORKING = threading.Lock()
_held: list[_Book] = []


def _before_fork() -> None:
    _FORKING.acquire()
    for book in list(_BOOKS):
        book.lock.acquire()
        _held.append(book)
        if book.path is not None:
            with contextlib.suppress(sqlite3.Error):
                book.disconnect()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().lock.release()
    _FORKING.release()


def _after_fork_in_child() -> None:
    while _held:
        _held.pop().begin_in_child()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )

"""Runs that fit in seconds, and real servers on free ports of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import httpx
import pytest

from adamab.model import save
from adamab.providers.metering import Budget
from adamab.providers.registry import resolve_generator
from adamab.run.fit import fit_task
from adamab.run.records import ClassScores, RoundRecord, Seconds
from adamab.run.resume import RoundOutcome, outcome_to_json
from adamab.run.run_log import ROUND, SEGMENT, Journal
from adamab.serving.page import page_router
from adamab.serving.requests import LOOPBACK, Access, Limits
from adamab.serving.run_reader import RunReader
from adamab.serving.server import ServerState, address_of, bind, create_app, server_of
from adamab.serving.service import Service
from adamab.task import load_task
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.testing import HashEmbedder, PixelEmbedder
from tests.fitting import Order, fit_run

EXAMPLES = {
    "refund": ["money back please", "send my money back", "I want the money returned", "refund my money"],
    "login": ["cannot sign in today", "sign in fails", "the sign in page is broken", "no sign in"],
    "praise": ["likes it a lot", "she likes it", "everyone likes it here", "he likes it too"],
}
LONGEST = 30  # seconds that a test waits for what must happen


class WatchedEmbedder(HashEmbedder):
    """Remembers what each call asked for, and can be held up or made to fail."""

    def __init__(self):
        super().__init__(width=16)
        self.asked = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.error = lambda items: None

    async def _embed(self, items, *, kind, views):
        self.asked.append([str(item) for item in items])
        self.entered.set()
        await asyncio.to_thread(self.open.wait, LONGEST)
        if error := self.error(items):
            raise error
        return await super()._embed(items, kind=kind, views=views)


@dataclass
class Live:
    """A server that runs in a thread of this process."""

    url: str
    service: Service
    desk: ServerState
    server: Any
    log: list[str] = field(default_factory=list)

    @property
    def address(self):
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def post(self, **question):
        return httpx.post(f"{self.url}/v1/classify", json=question, timeout=LONGEST)

    def get(self, path, **options):
        return httpx.get(f"{self.url}{path}", timeout=LONGEST, **options)


@contextmanager
def running(run, embedder, access=None, **limits):
    log = []
    chosen = Limits(**limits)
    service = Service(run, embedder, log=log.append)
    ready = threading.Event()
    with bind("127.0.0.1", 0) as bound, RunReader(run) as reader:
        app = create_app(
            service, [page_router(reader, service)], limits=chosen, access=access, log=log.append
        )
        url = address_of(bound)
        server = server_of(app, chosen, ready=ready.set, log=log.append)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            assert ready.wait(LONGEST)
            yield Live(url, service, app.state.server_state, server, log)
        finally:
            server.should_exit = True
            thread.join(LONGEST)
            assert not thread.is_alive()


@pytest.fixture
def live():
    """Starts servers, which end with the test."""
    with ExitStack() as stack:
        yield lambda run, embedder, access=None, **limits: stack.enter_context(
            running(run, embedder, access, **limits)
        )


def fitted_texts(examples):
    classes = tuple(ClassSpec(name, name) for name in examples)
    samples = tuple(Sample(text, name) for name, members in examples.items() for text in members)
    task = Task(classes, samples, name="toy")
    return fit_task(task, HashEmbedder(width=16), embedder_spec="hash").classifier


@pytest.fixture(scope="session")
def text_model(tmp_path_factory):
    """A model of texts; tests that change it copy it."""
    folder = tmp_path_factory.mktemp("texts") / "desk"
    save(fitted_texts(EXAMPLES), folder)
    return folder


@pytest.fixture(scope="session")
def other_model(tmp_path_factory):
    """A model with a class more, by the same embedder."""
    folder = tmp_path_factory.mktemp("others") / "desk"
    save(fitted_texts({**EXAMPLES, "bye": ["good bye now", "so long", "see you", "bye bye"]}), folder)
    return folder


@pytest.fixture(scope="session")
def standing_server(text_model):
    """One server for all tests that only ask and look at the answer."""
    with running(text_model, HashEmbedder(width=16), Access(LOOPBACK | {"desk.example"})) as server:
        yield server


@pytest.fixture
def standing(standing_server):
    """The same, with an empty log."""
    standing_server.log.clear()
    return standing_server


@pytest.fixture(scope="session")
def image_model(tmp_path_factory, paint):
    """A model of images."""
    folder = tmp_path_factory.mktemp("images")
    paint(folder / "given", {"red": 3, "green": 3, "blue": 3})
    result = fit_task(load_task(folder / "given"), PixelEmbedder(), embedder_spec="pixels")
    save(result.classifier, folder / "colours")
    return folder / "colours"


@pytest.fixture
def watched():
    return WatchedEmbedder()


@pytest.fixture(scope="session")
def eventually():
    """Waits for what must happen."""

    def wait(true):
        until = time.monotonic() + LONGEST
        while not true():
            assert time.monotonic() < until
            time.sleep(0.005)

    return wait


HOSTILE = 'wants "money" & <b>more</b>'
SCRIPT = '<img src=x onerror="window.hacked = 1"> my money\'s gone'
SHOWN = {
    HOSTILE: [*EXAMPLES["refund"], SCRIPT],
    "login": EXAMPLES["login"],
    "praise": EXAMPLES["praise"],
}
WRITTEN = {
    HOSTILE: ["the first money is not back", "back is not the first money"]  # the same words: nearly a repeat
    + ["<script>window.hacked = 2</script> money"]
    + [f"the {word} money is not back" for word in ("second", "third", "whole", "other")],
    "login": [f"sign in {word} broken" for word in ("was", "stays", "seems", "looks", "gets", "went")],
    "praise": [f"{word} likes it" for word in ("my aunt", "our boss", "nobody", "who", "the team", "all")],
}


def order_in(folder):
    """A fit with synthetic samples, and names and texts that try to be HTML."""
    rows = [{"label": name, "text": text} for name, texts in WRITTEN.items() for text in texts]
    (folder / "written.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    classes = tuple(ClassSpec(name, f"all about {name}") for name in SHOWN)
    samples = tuple(Sample(text, name) for name, members in SHOWN.items() for text in members)
    return Order(
        task=Task(classes, samples, name='server_state <i>of "ours"</i>'),
        embedder=HashEmbedder(width=16),
        embedder_spec="hash",
        generator=f"replay:{folder / 'written.jsonl'}",
        recipe=Recipe(batch=2, near_duplicate=0.999),
        budget=Budget.parse("16 samples"),
        all_scores=True,
    )


@pytest.fixture
def shown_order(tmp_path):
    """The fit of `shown_run`, to be done."""
    return order_in(tmp_path)


@pytest.fixture(scope="session")
def first_shown_run(tmp_path_factory):
    """A run for the page; tests that change it use `shown_run`."""
    folder = tmp_path_factory.mktemp("shown")
    fit_run(order_in(folder), folder / "run")
    return folder / "run"


@pytest.fixture
def shown_run(first_shown_run, tmp_path):
    """A copy to review samples in."""
    shutil.copytree(first_shown_run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def local_run(tmp_path):
    """A run that a process can fit again by what it knows, with recorded samples."""
    rows = [
        f'{{"label": "{name}", "text": "{text}"}}\n' for name in ("login", "praise") for text in WRITTEN[name]
    ]
    (tmp_path / "written.jsonl").write_text("".join(rows))
    order = Order(
        Task.from_mapping(EXAMPLES, name="desk"),
        "local",
        generator=f"replay:{tmp_path / 'written.jsonl'}",
        recipe=Recipe(batch=2),
    )
    fit_run(order.changed(budget="8 samples"), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def shown_server(first_shown_run):
    """One server for all tests that only look at `first_shown_run`."""
    with running(first_shown_run, HashEmbedder(width=16)) as server:
        yield server


@pytest.fixture(scope="module")  # no longer: its event loop is in the way of others
def chromium():
    """The system's browser."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    lacking = "Chromium" if path is None else "playwright" if find_spec("playwright") is None else None
    if lacking is not None:
        if os.environ.get("ADAMAB_NEED_BROWSER") == "1":
            pytest.fail(f"there is no {lacking} on this machine, and ADAMAB_NEED_BROWSER asks for a browser")
        pytest.skip(f"there is no {lacking} on this machine")
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Opens pages; no script may fail, and nobody else may be asked for anything."""
    troubles = []
    contexts = []

    def go(url, part="", **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: troubles.append(f"script: {error}"))
        page.on("console", lambda line: line.type == "error" and troubles.append(f"console: {line.text}"))
        own = (url, "data:", "blob:")
        page.on("request", lambda r: r.url.startswith(own) or troubles.append(f"asked: {r.url}"))
        page.goto(f"{url}/{'#' if part else ''}{part}")
        page.wait_for_selector("#state[data-state]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="session")
def until():
    """Waits for a condition; Playwright's own way needs eval, which the page's policy forbids."""

    def wait(page, true):
        for _ in range(1200):
            if page.evaluate(true):
                return
            page.wait_for_timeout(50)
        pytest.fail(f"never became true: {true}; the page says: {page.inner_text('body')[:2000]}")

    return wait


@pytest.fixture
def image_run(tmp_path, paint):
    """A run of images, whose given ones lie in `given` beside it."""
    paint(tmp_path / "given", {"red": 3, "green": 3, "blue": 3})
    order = Order(
        task=load_task(tmp_path / "given"),
        embedder=PixelEmbedder(),
        embedder_spec="pixels",
        generator=resolve_generator("transform", seed=0),
        recipe=Recipe(batch=2, rounds_per_class=2, near_duplicate=None),
    )
    fit_run(order, tmp_path / "run")
    return tmp_path / "run"


def write_rounds(run, names, count, scores=None):
    """Rounds as a fit of these classes would leave them, without fitting; each class has a given sample."""
    counts, tenths = [1] * len(names), [i / 10 for i in range(len(names))]
    with Journal(run, writing=True) as journal:
        unchanged = {"rejected": [], "restored": [], "wanted": [], "unwanted": [], "moved": {}, "freed": {}}
        journal.note(SEGMENT, {"inputs": {"classes": dict.fromkeys(names, "")}, "fresh": True, **unchanged})
        for number in range(1, count + 1):
            place = (number - 1) % len(names)
            known = scores or ClassScores(
                list(counts), list(range(len(names))), [5 - i for i in tenths], tenths, [True] * len(names)
            )
            counts[place] += 1
            outcome = (names[place], 1, 1, None, sum(counts), known)
            record = RoundRecord(number, *outcome, 1 / number, 0.1, Seconds(), {})
            journal.note(ROUND, outcome_to_json(RoundOutcome(record, (f"text {number}",))))

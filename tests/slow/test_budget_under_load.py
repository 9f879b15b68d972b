"""Sixteen workers against one cap, fifty times in a row: the server never counts one call too many."""

import asyncio
import itertools
from decimal import Decimal

import pytest

from adamab.errors import ApiError, BudgetError
from adamab.providers.http import ApiClient, Call, Limits
from adamab.providers.metering import Budget, Ledger, Price, Usage
from adamab.providers.services import service_of
from adamab.testing import Fault, ProviderServer

pytestmark = pytest.mark.slow

WORKERS, TIMES, CAP = 16, 50, 37
BOUND = Usage(50)
LIMITS = Limits(concurrency=WORKERS, retries=2, timeout=20.0, first_wait=0.001, longest_wait=0.005)
TROUBLE = (
    Fault("status", status=429, times=None, probability=0.15, seed=1),
    Fault("status", status=500, times=None, probability=0.15, seed=2),
    Fault("reset", times=None, probability=0.08, seed=3),
    Fault("reset", times=None, probability=0.05, sent=0, seed=4),
    Fault("truncate", times=None, probability=0.08, seed=5),
)


@pytest.fixture(params=["calm", "trouble"])
def server(request):
    with ProviderServer(idempotent=False) as running:
        running.trouble = TROUBLE if request.param == "trouble" else ()
        for fault in running.trouble:
            running.add_fault(fault)
        yield running


def client_of(url, ledger, price=None):
    client = ApiClient(service_of("openai", base_url=f"{url}/v1"), "m", LIMITS)
    client.ledger, client.price = ledger, price
    return client


async def work(client, worker, bound, calls=None):
    """Call until there is nothing left to do or to spend."""
    for number in range(calls) if calls else itertools.count():
        body = {"model": "m", "input": [f"worker {worker:02} asks {number:03}"]}
        call = Call("/embeddings", body, bound, "embed")
        try:
            await client.post(call, usage=lambda answer: Usage(answer["usage"]["prompt_tokens"]))
        except BudgetError:
            return
        except ApiError:
            continue


async def all_at_once(client, bound=BOUND, calls=None):
    await asyncio.gather(*(work(client, worker, bound, calls) for worker in range(WORKERS)))


@pytest.mark.parametrize("place", ["memory", "file"])
def test_tasks(server, tmp_path, place):
    for time in range(TIMES):
        before = server.count()
        path = None if place == "memory" else tmp_path / f"{time}.sqlite"
        with Ledger(Budget(calls=CAP), path) as ledger:
            asyncio.run(all_at_once(client_of(server.url, ledger)))
            assert ledger.spent().calls == CAP
            assert ledger.spent().unsettled == 0
        assert server.count() - before == CAP


PRICE = Price(input=Decimal("2.5"))


@pytest.mark.parametrize("room", [1, 3])  # how much larger the bound is than what the server reports
def test_money(server, tmp_path, room):
    used = probe(server)
    cost, bound = PRICE.nano_usd(used), Usage(room * used.input_tokens)
    reserved = PRICE.nano_usd(bound)
    cap = Decimal(29 * cost + reserved + cost // 2) / 10**9
    for time in range(TIMES):
        before = server.billed()
        with Ledger(Budget(usd=cap), tmp_path / f"{time}.sqlite") as ledger:
            asyncio.run(all_at_once(client_of(server.url, ledger, PRICE), bound))
            spent = ledger.spent().nano_usd
        billed = (server.billed() - before) * cost
        assert billed <= spent <= cap * 10**9
        # Nothing is left lying about: one more call could have gone beyond the cap.
        assert cap * 10**9 - spent < reserved
        if not server.trouble:
            assert billed == spent == 30 * cost


def test_a_server_that_charges_more_than_can_be_ends_the_spending(tmp_path):
    """The cap cannot hold against a server that reports more tokens than it was sent; but it ends there."""
    faults = [Fault("overcharge", factor=1000, times=None)]
    budget = Budget(usd=Decimal("0.001"))
    with ProviderServer(faults=faults) as server, Ledger(budget, tmp_path / "ledger.sqlite") as ledger:
        asyncio.run(all_at_once(client_of(server.url, ledger, PRICE)))
        spent = ledger.spent()
        assert spent.nano_usd > 0.001 * 10**9
        assert server.count() == spent.calls <= WORKERS
        with pytest.raises(BudgetError, match="is spent"):
            ledger.reserve("embed", 1)


def probe(server):
    """What the server reports for a call: all texts are of one length."""
    with ProviderServer() as calm, Ledger() as ledger:
        client, answers = client_of(calm.url, ledger), []
        call = Call("/embeddings", {"model": "m", "input": ["worker 00 asks 000"]}, Usage(50), "embed")
        asyncio.run(client.post(call, usage=lambda answer: answers.append(answer) or None))
    return Usage(answers[0]["usage"]["prompt_tokens"])

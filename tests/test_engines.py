"""Whoever works out the items: the same is found, errors arrive as they were, nobody works on in vain."""

import operator
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from adamab.engines import HERE, Engine, ray_cluster
from adamab.errors import RecipeError, RunError

RAY = pytest.mark.xdist_group("ray")


def refusing(item, shared):
    raise RecipeError(f"item {item} is refused")


def slow(item, folder):
    """Item 0 ends at once; the others write down that they began and, much later, that they ended."""
    if item:
        (Path(folder) / f"{item}.begun").touch()
        time.sleep(120)
    return item


def where(item, shared):
    return os.getpid(), id(shared)


@pytest.fixture(scope="module")
def on_ray(ray_address):
    engine = Engine("ray", address=ray_address)
    with engine.ready():
        yield engine


@pytest.mark.parametrize("engine", [HERE, Engine(jobs=1)], ids=["here", "processes"])
def test_engines_find_the_same(engine):
    with engine.workers(operator.mul, 3) as map_items:
        assert sorted(map_items([1, 2])) == [(1, 3), (2, 6)]
        assert sorted(map_items([])) == []
        assert sorted(map_items([5])) == [(5, 15)]  # the same workers


@RAY
def test_ray_finds_the_same(on_ray):
    with on_ray.workers(operator.mul, 3) as map_items:
        assert sorted(map_items(range(20))) == [(n, 3 * n) for n in range(20)]
        assert list(map_items([])) == []


@RAY
def test_what_items_share_is_unpacked_once_a_worker(on_ray):
    with on_ray.workers(where, {"some": "data"}) as map_items:
        places = {place for _, place in map_items(range(8))}
    assert len(places) == len({process for process, _ in places})


@pytest.mark.parametrize("engine", [HERE, Engine(jobs=1)], ids=["here", "processes"])
def test_errors_arrive_as_they_were(engine):
    with pytest.raises(ZeroDivisionError), engine.workers(operator.truediv, 0) as map_items:
        list(map_items([7]))


@RAY
def test_errors_of_ray_tasks_arrive_as_they_were(on_ray):
    with (
        on_ray.workers(refusing, None) as map_items,
        pytest.raises(RecipeError, match=r"^item 7 is refused$"),
    ):
        list(map_items([7]))


@RAY
def test_tasks_that_nobody_waits_for_are_cancelled(on_ray, tmp_path):
    with on_ray.workers(slow, str(tmp_path)) as map_items:
        results = map_items([0, 1, 2, 3])
        assert next(results) == (0, 0)
        while not list(tmp_path.glob("*.begun")):
            time.sleep(0.05)
        results.close()
    with ray_cluster() as ray:
        while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"]:
            time.sleep(0.1)  # ends long before the tasks would


def killed(item, shared):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_one_line():
    with (
        pytest.raises(RunError, match="a process was killed"),
        Engine(jobs=1).workers(killed, None) as map_items,
    ):
        list(map_items([1, 2]))


SCRIPT = """
import pathlib, sys, time
from adamab.engines import Engine
def work(item, folder):
    pathlib.Path(folder, str(item)).touch()
    time.sleep(600)
with Engine(jobs=2).workers(work, sys.argv[1]) as map_items:
    list(map_items([1, 2]))
"""


@pytest.fixture
def working(tmp_path):
    """A process whose two workers are at work; they hold its standard output open."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with Popen(
        command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True, preexec_fn=default
    ) as process:
        while len(os.listdir(tmp_path)) < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        yield process
        process.kill()


def test_processes_end_with_the_one_that_started_them(working):
    working.kill()
    assert working.communicate(timeout=60)[0] == ""  # when the last process that holds it has ended


def test_ctrl_c_ends_all_processes_and_only_the_first_says_so(working):
    os.killpg(working.pid, signal.SIGINT)
    stderr = working.communicate(timeout=60)[1]
    assert stderr.count("Traceback") == stderr.count("KeyboardInterrupt") == 1

import pytest

from adamab.demo.story import Plan, gather, measure, summarise
from adamab.task.recipe import Recipe
from adamab.testing import HashEmbedder

TINY = Recipe(words=False)


@pytest.fixture(scope="session")
def tiny_plan():
    return Plan(seeds=(0, 1), per_class=(5,), recipe=TINY, workers=0)


@pytest.fixture(scope="session")
def materials():
    return gather(HashEmbedder(width=16), TINY)


@pytest.fixture(scope="session")
def measurements(tiny_plan, materials):
    return list(measure(tiny_plan, materials))


@pytest.fixture(scope="session")
def summary(measurements):
    return summarise(measurements)

"""How a fit computes, and that BLAS has its threads back afterwards."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from adamab.method.numerics import random_stream, threads_for
from adamab.method.views import SMALL, one_thread_if_small

BLAS = ThreadpoolController().select(user_api="blas")


def threads():
    return {library["num_threads"] for library in BLAS.info()}


@pytest.mark.parametrize(
    ("context", "wanted"),
    [
        (lambda: one_thread_if_small(SMALL), {1}),
        (lambda: one_thread_if_small(SMALL + 1), {2}),
        (lambda: threads_for(400, 384, 96), {1}),
        (lambda: threads_for(400, 768, 200), {2}),
    ],
)
def test_blas_has_one_thread_while_the_work_is_small(context, wanted):
    with threadpool_limits(2, user_api="blas"):
        with context():
            assert threads() == wanted
        assert threads() == {2}


def test_streams_of_neighbouring_seeds_and_rounds_differ():
    first = {tuple(random_stream(*seed).integers(1000, size=5)) for seed in np.ndindex(4, 3, 4)}
    assert len(first) == 4 * 3 * 4
    assert random_stream(1, 2).random() == random_stream(1, 2).random()

"""How NumPy and torch compute inside a fit, and that they compute as before afterwards."""

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

from adamab.method.numerics import flush_denormals
from adamab.method.views import SMALL, one_thread_if_small

BLAS = ThreadpoolController().select(user_api="blas")


def threads():
    return {library["num_threads"] for library in BLAS.info()}


@pytest.mark.parametrize(("size", "wanted"), [(SMALL, {1}), (SMALL + 1, {2})])
def test_blas_has_one_thread_while_the_work_is_small(size, wanted):
    with threadpool_limits(2, user_api="blas"):
        with one_thread_if_small(size):
            assert threads() == wanted
        assert threads() == {2}


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot")
def test_denormal_numbers_are_zero_inside_and_numbers_outside():
    def products():
        return float(torch.tensor(1e-30) * 1e-10), float(np.full(1, 1e-30, np.float32)[0] * np.float32(1e-10))

    with flush_denormals():
        assert products() == (0.0, 0.0)
    assert min(products()) > 0

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from adamab.method.views import SMALL, one_thread_if_small

BLAS = ThreadpoolController().select(user_api="blas")


def threads():
    return {library["num_threads"] for library in BLAS.info()}


@pytest.mark.parametrize(("size", "wanted"), [(SMALL, {1}), (SMALL + 1, {2})])
def test_blas_has_one_thread_while_the_work_is_small_and_its_own_again_afterwards(size, wanted):
    with threadpool_limits(2, user_api="blas"):
        with one_thread_if_small(size):
            assert threads() == wanted
        assert threads() == {2}

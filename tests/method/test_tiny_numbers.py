import numpy as np
import pytest
import torch

from adamab.method.numerics import flush_denormals

pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot")


def products():
    tiny = (torch.tensor(1e-30) * 1e-10, np.full(1, 1e-30, np.float32)[0] * np.float32(1e-10))
    return [float(found) for found in tiny]


def test_tiny_numbers_are_zero_inside_and_numbers_outside():
    with flush_denormals():
        assert products() == [0.0, 0.0]
    assert all(found > 0 for found in products())

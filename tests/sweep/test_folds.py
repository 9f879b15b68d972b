import numpy as np

from adamab.sweep import folds_of
from adamab.task.spec import ClassSpec, Sample, Task


def test_the_same_text_under_another_id_is_in_the_same_fold():
    samples = [
        Sample(text, name, id=f"{name}{i}{copy}")
        for name in "ab"
        for i, text in enumerate(f"{name} {n}" for n in range(6))
        for copy in range(2)
    ]
    task = Task((ClassSpec("a"), ClassSpec("b")), tuple(samples))
    folds = folds_of(task, 3, seed=0)
    np.testing.assert_array_equal(folds[::2], folds[1::2])
    assert np.bincount(folds[::2]).tolist() == [4, 4, 4]

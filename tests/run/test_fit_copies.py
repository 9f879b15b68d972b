import numpy as np

from adamab.run.fit import fit_task
from adamab.task.recipe import Recipe
from adamab.task.spec import ClassSpec, Sample, Task
from adamab.testing import HashEmbedder


def test_an_id_does_not_make_another_sample_of_the_same_text():
    """Texts and labels are drawn: an estimate above chance could only come from copies in training."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(200, size=6)) for _ in range(24)]
    samples = [
        Sample(text, f"c{i % 3}", id=f"{i}-{copy}") for i, text in enumerate(texts) for copy in range(4)
    ]
    task = Task(tuple(ClassSpec(f"c{k}") for k in range(3)), tuple(samples))
    estimate = fit_task(task, HashEmbedder(), recipe=Recipe(checkpoints=(0, 5, 20))).estimate
    assert estimate is not None
    assert estimate.n == 24
    assert estimate.low < 1 / 3 < estimate.high

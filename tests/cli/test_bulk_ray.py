"""`adamab predict --engine ray` on the cluster of two CPUs that all tests share."""

import pytest

from adamab.engines import ray_cluster

pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture
def corpus(folder, new_texts, write_corpus):
    """Larger than a part."""
    return write_corpus(folder / "data", new_texts, 20)


@pytest.fixture
def expected(adamab, corpus, folder, model, table_of):
    assert adamab("predict", model, corpus, "-o", folder / "local", "--part-rows", "50").exit_code == 0
    return table_of(folder / "local")


@pytest.mark.slow
def test_two_workers_beside_another_job_say_the_same_as_one_process(
    adamab, folder, corpus, model, expected, ray_address, table_of, hold_cpus
):
    command = ("predict", model, corpus, "-o", folder / "out", "--part-rows", "50", "--engine", "ray")
    with ray_cluster(ray_address) as ray:
        other = hold_cpus(ray, 1)
        result = adamab(*command, "--address", ray_address, "--workers", "2")
        ray.kill(other)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{folder / 'out'}: 369 rows in 8 parts",
        "4 rows could not be classified; see the column error",
    ]
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(
        path.name for path in (folder / "local").iterdir()
    )
    assert table_of(folder / "out").equals(expected)

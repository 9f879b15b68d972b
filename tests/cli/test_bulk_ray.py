"""`adamab predict --engine ray` on the cluster of two CPUs that all tests share."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adamab.providers.ray_cluster import ray_cluster

pytestmark = pytest.mark.xdist_group("ray")


def table_of(folder):
    return pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("part-*.parquet")))


@pytest.fixture
def corpus(folder, new_texts):
    """Two files with some broken rows, larger than a part."""
    (folder / "data").mkdir()
    for number in range(2):
        lines = [json.dumps({"text": text, "n": n}) for n, text in enumerate(new_texts * (20 + number))]
        lines[17:19] = ['{"text": ', '{"text": "no vector of it"}']
        (folder / "data" / f"{number}.jsonl").write_text("\n".join(lines))
    return folder / "data"


@pytest.fixture
def expected(adamab, corpus, folder, model):
    assert adamab("predict", model, corpus, "-o", folder / "local", "--part-rows", "50").exit_code == 0
    return table_of(folder / "local")


def holder(ray, cpus):
    @ray.remote(num_cpus=cpus)
    class Holder:
        def ready(self):
            return True

    actor = Holder.remote()
    assert ray.get(actor.ready.remote())
    return actor


def test_two_workers_beside_another_job_say_the_same_as_one_process(
    adamab, folder, corpus, model, expected, ray_address
):
    command = ("predict", model, corpus, "-o", folder / "out", "--part-rows", "50", "--engine", "ray")
    with ray_cluster(ray_address) as ray:
        other = holder(ray, 1)
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

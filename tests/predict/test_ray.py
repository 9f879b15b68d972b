"""Ray as we start and find it: quiet, on this machine only, behind a token."""

import os
import signal
import socket

import pytest

from adamab.engines import ray_cluster
from adamab.errors import ProviderError

pytestmark = pytest.mark.xdist_group("ray")


def test_the_shared_cluster_has_two_cpus_and_listens_to_this_machine_only(ray_address, capfd):
    handler = signal.getsignal(signal.SIGTERM)
    token = os.environ["RAY_AUTH_TOKEN"]
    with ray_cluster(ray_address) as ray:
        assert os.environ["RAY_AUTH_MODE"] == "token"
        assert ray.cluster_resources()["CPU"] == 2
        assert ray_address.startswith("127.0.0.1:")
        assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
        with ray_cluster() as same:  # connected already: stays so
            assert same is ray
        assert ray.is_initialized()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert not ray.is_initialized()
    assert signal.getsignal(signal.SIGTERM) == handler
    assert os.environ["RAY_AUTH_TOKEN"] == token
    assert capfd.readouterr() == ("", "")


def test_an_address_where_nobody_answers_is_one_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with (
            pytest.raises(ProviderError, match=r"no Ray cluster answers at .*ray start --head"),
            ray_cluster(address),
        ):
            pass


@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:10001", ":1", "host:"])
def test_what_is_no_address_is_said(address):
    with pytest.raises(ProviderError, match="give HOST:PORT"), ray_cluster(address):
        pass

"""Ray, started for this process alone or joined at its address.

Imported only where somebody asks for it. Ray reads most of its settings from the environment when it is
imported itself, so they are put there before.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from adamab.errors import MissingExtraError, ProviderError, one_line, short

# Ray takes a third of the machine's memory for shared objects; what is passed between processes is small.
STORE_BYTES = 512 * 2**20
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PROBE_SECONDS = 10.0


@contextmanager
def ray_cluster(
    address: str | None = None, *, cpus: int | None = None, store_bytes: int = STORE_BYTES
) -> Iterator[Any]:
    """The module `ray`, connected to a cluster.

    A process that is connected already stays so, and keeps its connection afterwards.

    Args:
        address: HOST:PORT of a cluster that is there; None starts one on this machine, which ends with the
            block and listens to this machine only.
        cpus: Processors of a new cluster, all of them if None.
        store_bytes: Shared memory of a new cluster.
    """
    if address is not None:
        _check_address(address)  # before the import, which takes a second
    ray = _ray(address)
    if ray.is_initialized():
        yield ray
        return
    own: dict[str, Any] = {
        "address": "local",
        "num_cpus": cpus,
        "object_store_memory": store_bytes,
        "include_dashboard": False,
    }
    with ExitStack() as at_end:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread:
            at_end.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        if address is None and "RAY_TMPDIR" not in os.environ:
            # Logs and sockets, whose paths may have 107 characters.
            short_path = "/tmp" if os.path.isdir("/tmp") else None
            folder = tempfile.TemporaryDirectory("", "adamab-ray-", short_path, ignore_cleanup_errors=True)
            os.environ["RAY_TMPDIR"] = at_end.enter_context(folder)
            at_end.callback(os.environ.pop, "RAY_TMPDIR", None)
        try:
            with _quiet_stderr():
                options = own if address is None else {"address": address}
                ray.init(**options, log_to_driver=False, logging_level=logging.CRITICAL)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            if address is None:
                message = f"Ray cannot be started on this machine ({one_line(error)})"
            else:
                message = (
                    f"Ray at {short(address)} cannot be joined ({one_line(error)}); is it the same version "
                    "of Ray and Python, and if the cluster asks for a token, is RAY_AUTH_TOKEN set?"
                )
            raise ProviderError(message) from None
        at_end.callback(ray.shutdown)
        if in_main_thread:
            # Ray takes SIGTERM for itself when it starts, and would leave with an exit code of its own.
            signal.signal(signal.SIGTERM, _interrupt)
        yield ray


def _ray(address: str | None) -> Any:
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",  # else Ray reports about itself to its makers
        "RAY_BACKEND_LOG_LEVEL": "fatal",  # of what it writes to stderr by itself
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of a change to come
        "RAY_NUM_REDIS_GET_RETRIES": "2",  # to join; each takes up to 40 seconds where something else answers
    }
    if address is None or address.rpartition(":")[0] in _LOOPBACK:
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else it listens at the machine's outer address
    if address is None or "RAY_AUTH_TOKEN" in os.environ:
        # Whoever knows a cluster's port may run code in it, so one of ours asks for a token. It is in the
        # environment only; left to itself, Ray would write one into the home folder.
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        raise MissingExtraError("Ray", "ray") from None
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    return ray


def _check_address(address: str) -> None:
    """Ray waits without an end for a cluster that is not there, so we knock first."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and "/" not in host):
        raise ProviderError(f"{short(address)} is no address of a Ray cluster; give HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ProviderError(
            f"no Ray cluster answers at {short(address)} ({one_line(error)}); give the HOST:PORT that "
            "`ray start --head` printed"
        ) from None


def _interrupt(number: int, frame: Any) -> None:
    """SIGTERM unwinds the stack, so that a cluster of our own ends with us."""
    raise KeyboardInterrupt


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Ray's C++ part writes to file descriptor 2 while it connects; what is wrong is an exception too."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

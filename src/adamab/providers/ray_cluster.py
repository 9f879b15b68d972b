"""Ray, started for this process alone or found by its address. Imported only where somebody asks for it."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from adamab.errors import MissingExtraError, ProviderError
from adamab.task.messages import one_line, short

# Ray takes a third of the machine's memory for shared objects; what is passed between our stages is small.
STORE_BYTES = 512 * 2**20
_LOCAL = "127.0.0.1"  # a cluster of one's own is nobody else's business, so it listens to this machine only
_PROBE_SECONDS = 10.0
_PREFIX = "adamab-ray-"  # then the process that it belongs to
_TRIES = 2  # to join a cluster; each takes up to 40 seconds where something else answers at its port


@contextmanager
def ray_cluster(
    address: str | None = None, *, cpus: int | None = None, store_bytes: int = STORE_BYTES
) -> Iterator[Any]:
    """The module `ray`, connected to the cluster at `address` (HOST:PORT), or to a new one on this machine.

    A new cluster has `cpus` processors (all of them if None) and ends with the block. A process that is
    connected already stays so, and keeps its connection afterwards.
    """
    if address is not None:
        _check_address(address)  # before the import, which takes a second
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    with ExitStack() as at_end:
        _quiet(ray)
        at_end.enter_context(_token(ray, address))
        at_end.enter_context(_terminated_gently())
        if address is None:
            _start(ray, cpus, store_bytes, at_end)
        else:
            _join(ray, address)
        at_end.callback(ray.shutdown)
        _take_back_sigterm()
        yield ray


def _ray() -> Any:
    # Ray reports about itself to its makers unless it is told not to; it reads this when it is imported.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        raise MissingExtraError("Ray", "ray") from None
    return ray


def _quiet(ray: Any) -> None:
    """What Ray would say about progress is said by our own bar; its full logs stay in its folder."""
    # News of workers that died and were replaced goes to stdout, among the results, whatever is asked.
    ray._private.worker.print_worker_logs = _say_nothing
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # of what it writes to stderr by itself
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _say_nothing(*_: object, **__: object) -> None: ...


@contextmanager
def _token(ray: Any, address: str | None) -> Iterator[None]:
    """Whoever knows a cluster's port may run code in it, so a cluster of ours asks for a token.

    It is in the environment only, as long as the cluster is used; left to itself, Ray would write one into
    the home folder.
    """
    if "RAY_AUTH_MODE" in os.environ or (address is not None and "RAY_AUTH_TOKEN" not in os.environ):
        yield
        return
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    added = {name: value for name, value in ours.items() if name not in os.environ}
    os.environ.update(added)
    _read_environment(ray)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
        _read_environment(ray)


def _read_environment(ray: Any) -> None:
    """Ray has read how to authenticate when it was imported, and keeps the token that it used first."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


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


def _is_loopback(address: str) -> bool:
    return address.rpartition(":")[0] in (_LOCAL, "localhost", "[::1]")


def _join(ray: Any, address: str) -> None:
    constants = ray._private.ray_constants
    usual, constants.NUM_REDIS_GET_RETRIES = constants.NUM_REDIS_GET_RETRIES, _TRIES
    try:
        with _silent(), _loopback(ray) if _is_loopback(address) else nullcontext():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ProviderError(
            f"Ray at {short(address)} cannot be joined ({one_line(error)}); is it the same version of Ray "
            "and Python, and if the cluster asks for a token, is RAY_AUTH_TOKEN set?"
        ) from None
    finally:
        constants.NUM_REDIS_GET_RETRIES = usual


def _start(ray: Any, cpus: int | None, store_bytes: int, at_end: ExitStack) -> None:
    _sweep_up()
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_short_folder())
    at_end.callback(shutil.rmtree, folder, ignore_errors=True)
    try:
        with _silent(), _loopback(ray):
            ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=store_bytes,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address=_LOCAL,
                _temp_dir=folder,
            )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise ProviderError(f"Ray cannot be started on this machine ({one_line(error)})") from None


def _sweep_up() -> None:
    """Remove what clusters of killed processes have left."""
    if os.name != "posix":  # elsewhere asking after a process may end it
        return
    for left in Path(_short_folder()).glob(f"{_PREFIX}*"):
        number = left.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdigit() and not _is_alive(int(number)):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _short_folder() -> str:
    """Ray puts sockets under it, whose paths may have 107 characters."""
    usual = tempfile.gettempdir()
    return "/tmp" if len(usual) > 30 and Path("/tmp").is_dir() else usual


@contextmanager
def _loopback(ray: Any) -> Iterator[None]:
    """Ray puts the machine's outer address in place of 127.0.0.1, unless told that there is one machine."""
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    constants = ray._private.ray_constants
    before, usual = os.environ.get(name), getattr(constants, "ENABLE_RAY_CLUSTER", None)
    os.environ[name] = "0"  # for the processes that it starts
    constants.ENABLE_RAY_CLUSTER = False  # for this one, where it was read already
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = usual
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _terminated_gently() -> Iterator[None]:
    """SIGTERM unwinds the stack, so that a cluster of our own ends with us and leaves no folder."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _take_back_sigterm() -> None:
    """Ray takes SIGTERM for itself when it starts, and would leave with an exit code of its own."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


@contextmanager
def _silent() -> Iterator[None]:
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

"""`python -m adamab.testing` serves as a provider, so that the whole product can be tried without a key."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from adamab.testing.provider_faults import KINDS, Fault
from adamab.testing.provider_model import STYLES
from adamab.testing.provider_protocols import MODELS
from adamab.testing.provider_server import ProviderServer

_Number = TypeVar("_Number", int, float)
_REMEMBERED = 10_000  # requests and answers, so that a server left running does not fill the memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; 2 where that cannot be."""
    given = _parser().parse_args(arguments)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):  # shells start background jobs deaf to the latter
            signal.signal(number, _stop)
        with _server(given) as server:
            print(_welcome(server.url, key=given.key is not None), flush=True)
            while True:
                time.sleep(3600)
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        where = f"{given.host}:{given.port}"
        print(f"error: cannot serve on {where}: {error.strerror}; choose another --port", file=sys.stderr)
        return 2


def _server(given: argparse.Namespace) -> ProviderServer:
    return ProviderServer(
        latency=given.latency,
        jitter=given.jitter,
        faults=given.fault,
        style=given.style,
        gullible=given.gullible,
        width=given.width,
        key=given.key,
        keep=_REMEMBERED,
        host=given.host,
        port=given.port,
    )


def _welcome(url: str, *, key: bool) -> str:
    chat, embedder = (f"'openai:{name}?base_url={url}/v1'" for name in MODELS)
    command = f"adamab fit TASK.yaml --run runs/try --embedder {embedder} --generator {chat}"
    need = " with the key in OPENAI_API_KEY" if key else ""
    places = f"openai {url}/v1, voyage {url}/voyage/v1, cohere {url}/cohere, jina {url}/jina/v1"
    return f"serving {places}; try{need}: {command} --budget '20 samples'"


def _parser() -> argparse.ArgumentParser:
    kinds = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser = argparse.ArgumentParser(
        prog="python -m adamab.testing",
        description="A local stand-in for OpenAI, Voyage, Cohere and Jina, for texts and pictures. "
        "GET /_seen shows what it received and billed; POST /_faults adds a JSON list of faults; "
        "POST /_reset forgets everything.",
        epilog=f"Faults. {kinds}".replace("%", "%%"),
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8377, help="0: any free one (default: %(default)s)")
    parser.add_argument("--latency", type=_seconds, default=0.0, help="seconds a request takes")
    parser.add_argument("--jitter", type=_seconds, default=0.0, help="up to so many seconds more")
    parser.add_argument("--fault", type=_fault, action="append", default=[], metavar="KIND[:key=value,...]")
    parser.add_argument("--style", choices=STYLES, default="schema", help="how the chat model answers")
    parser.add_argument("--gullible", action="store_true", help="it obeys IGNORE ALL AND WRITE: outside data")
    parser.add_argument("--width", type=_width, default=64, help="of the vectors (default: %(default)s)")
    parser.add_argument("--key", help="a bearer token that each request needs")
    return parser


def _fault(text: str) -> Fault:
    try:
        return Fault.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _port(text: str) -> int:
    return _within(int(text), 0, 65535)


def _width(text: str) -> int:
    return _within(int(text), 2, 4096)


def _seconds(text: str) -> float:
    return _within(float(text), 0, 3600)


def _within(value: _Number, least: int, most: int) -> _Number:
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{value} is not from {least} to {most}")
    return value


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

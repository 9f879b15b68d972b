"""`python -m adamab.testing` serves as a provider, so that the whole product can be tried without a key."""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
from collections.abc import Sequence
from time import sleep

from adamab.testing._provider_endpoints import STYLES
from adamab.testing._provider_protocol import Fault
from adamab.testing._provider_server import ProviderServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; 2 where that cannot be."""
    options = vars(_parser().parse_args(arguments))
    for number in (signal.SIGTERM, signal.SIGINT):  # shells start background jobs deaf to the latter
        signal.signal(number, signal.default_int_handler)
    try:
        with ProviderServer(**options) as server:
            print(_welcome(server.url), flush=True)
            while True:
                sleep(3600)
    except KeyboardInterrupt:
        return 0
    except (OSError, OverflowError) as error:
        print(f"error: cannot serve on {options['port']} ({error}); choose another --port", file=sys.stderr)
        return 2


def _welcome(url: str) -> str:
    embedder = f"--embedder 'openai:text-embedding-3-small?base_url={url}/v1'"
    generator = f"--generator 'openai:gpt-4o-mini?base_url={url}/v1'"
    places = f"openai {url}/v1, voyage {url}/voyage/v1, cohere {url}/cohere, jina {url}/jina/v1, "
    places += f"anthropic {url}/anthropic/v1, azure {url}/azure, tei {url}/tei"
    command = f"adamab fit TASK.yaml --run runs/try {embedder} {generator} --budget '20 samples'"
    return f"serving {places}; try: {command}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m adamab.testing",
        description="A local stand-in for OpenAI and those that speak its protocol, Azure, Anthropic, "
        "Voyage, Cohere, Jina and text-embeddings-inference, for texts and images. "
        "GET /_seen shows what it received and billed; POST /_faults adds a JSON list of faults; "
        "POST /_reset forgets everything.",
        epilog=inspect.getdoc(Fault),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=8377, help="0: any free one (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds a request takes")
    metavar = "KIND[:key=value,...]"
    parser.add_argument("--fault", dest="faults", type=_fault, action="append", default=[], metavar=metavar)
    parser.add_argument("--style", choices=STYLES, default="schema", help="how the chat model answers")
    parser.add_argument("--key", help="an API key that each request needs")
    return parser


def _fault(text: str) -> Fault:
    try:
        return Fault.parse(text)
    except (ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())

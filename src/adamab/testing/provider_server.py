"""A local server that speaks the protocols of OpenAI, Voyage, Cohere and Jina, with faults on demand.

    with ProviderServer(latency=0.3, faults=[Fault("status", times=2)]) as server:
        ...  # base_url: f"{server.url}/v1", f"{server.url}/voyage/v1", f"{server.url}/cohere"
        ...  # or f"{server.url}/jina/v1"
        assert server.billed("/embeddings") == 1

Answers depend on the request alone, but for pictures: a prompt gets others each time. An answer is
billed when it is made, whether or not it reaches the client; a repeated Idempotency-Key is answered
from memory and not billed again.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType

from adamab.testing.provider_book import Book, Seen
from adamab.testing.provider_errors import Answer, Refused, from_fault, wrong_key
from adamab.testing.provider_faults import Fault, Faults, spoiled
from adamab.testing.provider_http import POLL, HttpServer
from adamab.testing.provider_images import wanted
from adamab.testing.provider_looks import without_shown
from adamab.testing.provider_model import STYLES, Options, digest
from adamab.testing.provider_multimodal import without_pictures
from adamab.testing.provider_protocols import (
    IMAGES_PATH,
    MODELS_PATH,
    ROUTES,
    models,
    pictures_in,
    protocol_of,
)

__all__ = ["Fault", "ProviderServer", "Seen"]

_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


class ProviderServer:
    """Serves on `host` and `port` (0: a free one) from `start` to `close`, or as a context manager.

    Each request takes `latency` seconds, and up to `jitter` more. With `key` a request needs it as a
    bearer token. `style` and `gullible` say how the chat model writes; `width` is that of the vectors.
    Without `idempotent` the header Idempotency-Key means nothing, as with most real providers. `keep`
    bounds how many requests and answers are remembered.

    Example:
        >>> from urllib.request import urlopen
        >>> with ProviderServer() as server, urlopen(f"{server.url}/v1/models") as reply:
        ...     (reply.status, server.count(), server.billed())
        (200, 1, 0)
    """

    def __init__(
        self,
        *,
        latency: float = 0.0,
        faults: Iterable[Fault] = (),
        style: str = "schema",
        gullible: bool = False,
        width: int = 64,
        key: str | None = None,
        jitter: float = 0.0,
        seed: int = 0,
        idempotent: bool = True,
        keep: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        if style not in STYLES:
            raise ValueError(f"unknown style {style!r}; known: {', '.join(STYLES)}")
        self.latency = latency
        self.jitter = jitter
        self.key = key
        self.idempotent = idempotent
        self.options = Options(width=width, style=style, gullible=gullible)
        self._book = Book(keep)
        self._faults = Faults(faults)
        self._draw = random.Random(seed)
        self._address = (host, port)
        self._http: HttpServer | None = None

    def start(self) -> ProviderServer:
        """Bind and serve in a thread; raises OSError where the port is taken."""
        self._http = HttpServer(self._address, self)
        self._address = (self._address[0], int(self._http.server_address[1]))  # a restart keeps its place
        serve = self._http.serve_forever
        threading.Thread(target=serve, args=(POLL,), name="provider-server", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop, and end what still hangs."""
        if self._http is not None:
            self._http.stop()
            self._http = None

    def __enter__(self) -> ProviderServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port it serves on."""
        return self._address[1]

    @property
    def url(self) -> str:
        """Where it serves, without a path."""
        return f"http://{self._address[0]}:{self.port}"

    @property
    def seen(self) -> list[Seen]:
        """The requests so far, in the order they came."""
        return self._book.seen

    def count(self, path_ending: str = "") -> int:
        """Requests received."""
        return self._book.received(path_ending)

    def billed(self, path_ending: str = "") -> int:
        """Requests that a provider would bill: answered with 200, each Idempotency-Key once."""
        return self._book.billed(path_ending)

    def repeated(self, path_ending: str = "") -> int:
        """Requests that were billed although the very same body had been billed before."""
        return self._book.repeated(path_ending)

    def pictures(self, path_ending: str = "") -> int:
        """Pictures that a provider would bill: made, embedded, or looked at."""
        return self._book.pictures(path_ending)

    def add_fault(self, fault: Fault) -> None:
        """Put one more fault in force."""
        self._faults.add(fault)

    def clear_faults(self) -> None:
        """End all faults that are to come."""
        self._faults.clear()

    def reset(self) -> None:
        """As freshly started: no faults, no counts, no memory."""
        self._faults.clear()
        self._book.clear()

    def control(self, method: str, path: str, raw: bytes) -> Answer:
        """GET /_seen, POST /_faults and POST /_reset, for those who run it in another process."""
        if (method, path) == ("GET", "/_seen"):
            return Answer(200, self._book.by_path())
        if (method, path) == ("POST", "/_reset"):
            self.reset()
            return Answer(200, {"reset": True})
        if (method, path) == ("POST", "/_faults"):
            return self._more_faults(raw)
        return Answer(404, {"error": "there are GET /_seen, POST /_faults and POST /_reset"})

    def _more_faults(self, raw: bytes) -> Answer:
        try:
            faults = [Fault.from_json(values) for values in json.loads(raw)]
        except (ValueError, TypeError, AttributeError) as error:
            return Answer(400, {"error": f"a JSON list of faults is needed: {error}"})
        for fault in faults:
            self.add_fault(fault)
        return Answer(200, {"added": len(faults)})

    def receive(
        self, seen: Seen, method: str, raw: bytes, key: str | None
    ) -> tuple[Answer | None, Fault | None]:
        """Count a request; the answer if it is turned away at the door, else the fault that befalls it."""
        self._book.receive(seen)
        refused = self._turned_away(seen.path, method, key)
        if refused is not None:
            return refused.answer(protocol_of(seen.path), None), None
        fault = self._faults.take(seen.path, seen.body, raw)
        seen.fault = None if fault is None else fault.kind
        return None, fault

    def pause(self, fault: Fault | None) -> float:
        """How long the next request takes."""
        extra = fault.seconds if fault is not None and fault.kind == "slow" else None
        return self.latency + self.jitter * self._draw.random() + (extra or 0.0)

    def answer(self, seen: Seen, raw: bytes, fault: Fault | None) -> Answer:
        """Make the answer, or find it in memory, and bill it."""
        answer = self._answer(seen, raw, fault)
        if self._book.keep is not None:
            seen.body = without_shown(without_pictures(seen.body))
        return answer

    def _answer(self, seen: Seen, raw: bytes, fault: Fault | None) -> Answer:
        refused = None if fault is None else from_fault(fault, seen.body, raw)
        if refused is not None:
            return refused.answer(protocol_of(seen.path), seen.body)
        if fault is not None and fault.kind == "garbage":
            return Answer(200, _PAGE)
        if seen.path == MODELS_PATH:
            return models()
        try:
            return self._made(seen, fault)
        except Refused as error:
            return error.answer(protocol_of(seen.path), seen.body)

    def _turned_away(self, path: str, method: str, key: str | None) -> Refused | None:
        if self.key is not None and key != self.key:
            return wrong_key(key)
        if path not in (MODELS_PATH, *ROUTES):
            return Refused(404, f"Invalid URL ({method} {path})")
        if method != ("GET" if path == MODELS_PATH else "POST"):
            return Refused(405, f"Not allowed to {method} on {path}.", code="method_not_supported")
        return None

    def _made(self, seen: Seen, fault: Fault | None) -> Answer:
        asked = digest(seen.body)
        key = seen.idempotency_key if self.idempotent else ""
        before = self._book.known(key, asked)
        if before is not None:
            return before
        # Two with one key at a time may both come here: the answers are the same, and one is billed.
        options = self.options
        if seen.path == IMAGES_PATH:
            prompt, count = wanted(seen.body)
            options = replace(options, before=self._book.draw(digest(prompt), count, key))
        answer = ROUTES[seen.path].answer(seen.body, options, fault)
        if answer.status == 200:
            whole, pictures = not spoiled(fault, seen.path), pictures_in(seen.path, seen.body, answer)
            self._book.bill(seen, key, asked, answer, whole=whole, pictures=pictures)
        return answer

"""Which services there are, where they are, and which environment variable holds their key."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from adamab.errors import ApiError, ProviderError
from adamab.providers.limits import OPTIONS, Limits, limits_of
from adamab.task.messages import short, suggestion

_KEY = re.compile(r"[\x21-\x7e]+")
# No more than a server's address needs: what parsers read differently is not let in.
_URL = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~%!$'()*+,;=:@/-]*)?", re.IGNORECASE)
# Stricter than the shell, so that a key itself, pasted by mistake, does not pass for its variable's name.
# Somebody may paste the key itself where the name of its variable belongs; keys are long and have no _.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,15}|(?=[^_]*_)[A-Za-z_][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True)
class Service:
    """Where an API is and where its key comes from. The key itself is never kept."""

    name: str
    base_url: str
    key_env: str
    needs_key: bool  # False for other servers than the provider's own

    @property
    def place(self) -> str:
        """Host, port and path, for messages and fingerprints."""
        parts = urlsplit(self.base_url)
        return parts.netloc + parts.path

    @property
    def private(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        return self.base_url.startswith("https:") or is_loopback(host_of(self.base_url))

    def key(self) -> str | None:
        """The key, from the environment; None where none is set, or where it would travel in the clear."""
        names = key_names(self.name) if self.key_env == OWN[self.name].key_env else (self.key_env,)
        key = next(filter(None, (os.environ.get(name, "").strip() for name in names)), "")
        if not key and self.needs_key:
            raise ApiError(f"{self.name}: no key; set {self.key_env}")
        if key and not _KEY.fullmatch(key):
            raise ApiError(f"{self.name}: {self.key_env} holds a character that no key has; set it again")
        return key if key and self.private else None


OWN = {
    "openai": Service("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", True),
    "voyage": Service("voyage", "https://api.voyageai.com/v1", "VOYAGE_API_KEY", True),
    "cohere": Service("cohere", "https://api.cohere.com", "COHERE_API_KEY", True),
    "jina": Service("jina", "https://api.jina.ai/v1", "JINA_API_KEY", True),
}
_SECOND_NAME = {"cohere": "CO_API_KEY"}
_BASE_URL = {"openai": "OPENAI_BASE_URL"}


def service_of(name: str, *, base_url: str | None = None, key_env: str | None = None) -> Service:
    """The provider's own service, or another server that speaks its protocol.

    Example:
        >>> service_of("openai", base_url="http://localhost:11434/v1").place
        'localhost:11434/v1'
    """
    own = OWN[name]
    if base_url is not None and not base_url.strip():
        raise ProviderError(f"{name}: base_url is empty; leave it out to mean {own.place}, or give a URL")
    url = base_url or os.environ.get(_BASE_URL.get(name, ""), "").strip() or own.base_url
    if key_env is not None and not _VARIABLE.fullmatch(key_env):
        raise ProviderError(
            f"{name}: key_env is the name of an environment variable, such as MY_KEY, not a key: "
            "letters, digits and underscores, 40 characters at most"
        )
    url = checked_url(name, url)
    return Service(name, url, key_env or own.key_env, url == own.base_url)


def connection(name: str, options: Mapping[str, str | float | None]) -> tuple[Service, Limits]:
    """What the options of a spec such as `openai:MODEL?base_url=URL&rpm=500` say about the connection."""
    known = ("base_url", "key_env", *OPTIONS)
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ProviderError(f"{name}: option {short(unknown[0])} is unknown; {suggestion(unknown[0], known)}")
    texts = {option: options.get(option) for option in ("base_url", "key_env")}
    service = service_of(name, **{option: None if v is None else str(v) for option, v in texts.items()})
    return service, limits_of({option: v for option, v in options.items() if option in OPTIONS})


def checked_url(name: str, url: str) -> str:
    """`url` without a slash at its end, if it can be a server's; its parts are never quoted."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = SplitResult("", "", "", "", ""), None
    if "@" in parts.netloc:
        raise ProviderError(f"{name}: base_url holds a user name or password; keys come from the environment")
    if not host or not _URL.fullmatch(url.strip()):
        raise ProviderError(f"{name}: base_url cannot be used; write for example http://localhost:8000/v1")
    return parts._replace(netloc=parts.netloc.lower()).geturl().rstrip("/")


def key_names(name: str) -> tuple[str, ...]:
    """The environment variables in which a provider's key is looked for."""
    return (OWN[name].key_env, *_SECOND_NAME.get(name, "").split()) if name in OWN else ()


def host_of(url: str) -> str:
    """The host's name in a URL."""
    return urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost.example.com")
        (True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"

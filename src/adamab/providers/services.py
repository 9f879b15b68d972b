"""Which services there are, where they are, what they speak, and which variable holds their key."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote, urlsplit

from adamab.errors import ApiError, ProviderError

_KEY = re.compile(r"[\x21-\x7e]+")
_VERSION = re.compile(r"[0-9A-Za-z.-]{1,40}")
# No more than a server's address needs: what parsers read differently is not let in.
_URL = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~%!$'()*+,;=:@/-]*)?", re.IGNORECASE)
# Somebody may paste the key itself where the name of its variable belongs; keys are long and have no _.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,15}|(?=[^_]*_)[A-Za-z_][A-Za-z0-9_]{0,39}")

# Optional parameters of a chat that a server is sent at first, as `Dialect` names them.
_MANY = {"new_limit": False}  # `max_tokens`, which all but OpenAI's newest know
_OPEN = {"new_limit": False, "schema_count": True}  # servers of open models: small ones need the count
_SLOW = {"timeout": 600.0, "concurrency": 1}  # a large model on one's own machine takes minutes
_FEW = 32  # texts in one request for vectors; servers of others are often set to so many


@dataclass(frozen=True)
class Provider:
    """A service that has a name: its address, its key, and what it speaks."""

    base_url: str  # empty where each customer has an address of their own
    key_env: str
    embeds: str = "openai"  # the dialect of its embeddings; empty where it has none
    chats: str = "openai"  # the dialect of its chat models
    items: int = _FEW
    needs_key: bool = True
    other_key_env: str = ""
    url_env: str = ""  # a variable that holds another address
    key_header: str = "Authorization"
    api_version: str = ""
    dialect: Mapping[str, bool] = field(default_factory=lambda: _MANY)
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Whether it is software that people run themselves."""
        return not self.needs_key


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        "openai": Provider(
            "https://api.openai.com/v1", "OPENAI_API_KEY", url_env="OPENAI_BASE_URL", items=2048, dialect={}
        ),
        "azure": Provider(
            "", "AZURE_OPENAI_API_KEY", url_env="AZURE_OPENAI_ENDPOINT", items=2048,
            key_header="api-key", api_version="2024-10-21",
        ),
        "anthropic": Provider(
            "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "", "anthropic",
            key_header="x-api-key", api_version="2023-06-01",
        ),
        "gemini": Provider(
            "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", items=100
        ),
        "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY", dialect=_MANY | {"seed": False}),
        "together": Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY", embeds=""),
        "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        "ollama": Provider(
            "http://localhost:11434/v1", "OLLAMA_API_KEY", needs_key=False, dialect=_OPEN, limits=_SLOW
        ),
        "tei": Provider("http://localhost:8080", "TEI_API_KEY", "tei", "", needs_key=False),
        "voyage": Provider("https://api.voyageai.com/v1", "VOYAGE_API_KEY", "voyage", "", 1000),
        "cohere": Provider(
            "https://api.cohere.com", "COHERE_API_KEY", "cohere", "", 96, other_key_env="CO_API_KEY"
        ),
        "jina": Provider("https://api.jina.ai/v1", "JINA_API_KEY", "jina", "", 512),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Service:
    """Where an API is and where its key comes from. The key itself is never kept."""

    name: str
    base_url: str
    key_env: str
    needs_key: bool
    api_version: str = ""

    @property
    def provider(self) -> Provider:
        """What is known of whoever has the name."""
        return PROVIDERS[self.name]

    @property
    def own(self) -> bool:
        """Whether it is at the address that its name stands for."""
        return self.base_url == self.provider.base_url

    @property
    def at(self) -> str:
        """Its place, as a part of fingerprints; empty where the name says it."""
        return "" if self.own else f"@{self.place}"

    @property
    def items(self) -> int:
        """How many texts it takes in one request for vectors."""
        return self.provider.items if self.own or self.name == "azure" else min(_FEW, self.provider.items)

    @property
    def dialect(self) -> Mapping[str, bool]:
        """Which optional parameters its chat models are sent at first."""
        return _OPEN if self.name == "openai" and not self.own else self.provider.dialect

    @property
    def place(self) -> str:
        """Host, port and path, for messages and fingerprints."""
        parts = urlsplit(self.base_url)
        return parts.netloc + parts.path

    @property
    def private(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        return self.base_url.startswith("https:") or self.is_local

    @property
    def is_local(self) -> bool:
        """Whether it is a server of this machine."""
        return is_loopback(host_of(self.base_url))

    def key(self) -> str | None:
        """The key, from the environment; None where none is set, or where it would travel in the clear."""
        names = key_names(self.name) if self.key_env == self.provider.key_env else (self.key_env,)
        key = next(filter(None, (os.environ.get(name, "").strip() for name in names)), "")
        if not key and self.needs_key:
            raise ApiError(f"{self.name}: no key; set {self.key_env}")
        if key and not _KEY.fullmatch(key):
            raise ApiError(f"{self.name}: {self.key_env} holds a character that no key has; set it again")
        return key if key and self.private else None

    def headers(self, key: str | None) -> dict[str, str]:
        """What a request says about who asks, and in which version of the API."""
        headers = {"anthropic-version": self.api_version} if self.name == "anthropic" else {}
        if key is not None:
            bearer = self.provider.key_header == "Authorization"
            headers[self.provider.key_header] = f"Bearer {key}" if bearer else key
        return headers

    def url(self, model: str, path: str) -> str:
        """Where a request goes; Azure has an address for each deployment of a model."""
        if self.name != "azure":
            return self.base_url + path
        deployment = quote(model, safe="")
        return f"{self.base_url}/openai/deployments/{deployment}{path}?api-version={self.api_version}"


def service_of(
    name: str, *, base_url: str | None = None, key_env: str | None = None, api_version: str | None = None
) -> Service:
    """The provider's own service, or another server that speaks its protocol.

    Args:
        name: the provider, such as `openai`.
        base_url: the other server; None means the provider's own, unless the environment names another.
        key_env: the environment variable that holds the key, never the key itself; the provider's if None.
        api_version: of the API, where a provider has several.

    Example:
        >>> service_of("openai", base_url="http://localhost:11434/v1").place
        'localhost:11434/v1'
    """
    own = PROVIDERS[name]
    if base_url is not None and not base_url.strip():
        default = urlsplit(own.base_url).netloc + urlsplit(own.base_url).path or own.url_env
        raise ProviderError(f"{name}: base_url is empty; leave it out to mean {default}, or give a URL")
    url = base_url or os.environ.get(own.url_env, "").strip() or own.base_url
    if not url:
        raise ProviderError(
            f"{name}: has no address; set {own.url_env}, or add ?base_url=https://NAME.openai.azure.com"
        )
    if key_env is not None and not _VARIABLE.fullmatch(key_env):
        raise ProviderError(
            f"{name}: key_env is the name of an environment variable, such as MY_KEY, not a key: "
            "letters, digits and underscores, 40 characters at most"
        )
    if api_version is not None and not _VERSION.fullmatch(api_version):
        raise ProviderError(f"{name}: api_version is no version; write for example {own.api_version}")
    url = checked_url(name, url)
    # Whoever names a variable means that there is a key.
    needs_key = key_env is not None or (own.needs_key and own.base_url in ("", url))
    return Service(name, url, key_env or own.key_env, needs_key, api_version or own.api_version)


def checked_url(name: str, url: str) -> str:
    """`url` without a slash at its end, if it can be a server's; its parts are never quoted.

    Args:
        name: the provider, for messages.
        url: as the user wrote it.
    """
    with suppress(ValueError):
        parts = urlsplit(url.strip())
        if "@" in parts.netloc:
            raise ProviderError(
                f"{name}: base_url holds a user name or password; keys come from the environment"
            )
        if parts.hostname and parts.port != 0 and _URL.fullmatch(url.strip()):
            return parts._replace(netloc=parts.netloc.lower()).geturl().rstrip("/")
    raise ProviderError(f"{name}: base_url cannot be used; write for example http://localhost:8000/v1")


def key_names(name: str) -> tuple[str, ...]:
    """The environment variables in which a provider's key is looked for."""
    own = PROVIDERS.get(name)
    return () if own is None else tuple(filter(None, (own.key_env, own.other_key_env)))


def split_service(model: str) -> tuple[str, str]:
    """The provider of a chat model and the model; OpenAI's where none is named.

    Example:
        >>> split_service("anthropic:claude-sonnet-4-5"), split_service("llama3.2:3b")
        (('anthropic', 'claude-sonnet-4-5'), ('openai', 'llama3.2:3b'))
    """
    name, colon, rest = model.partition(":")
    return (name, rest) if colon and name in PROVIDERS else ("openai", model)


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

"""The URLs of pictures in requests, and the hosts of `--image-urls`, which are the only ones that are asked.

A URL is read by one strict grammar, and what was read is what is asked for: no other parser sees its text.
So a host is a name in ASCII, or an address in its only usual form. Numbers that C libraries take for
addresses, such as 2130706433 or 0x7f.1, are neither. Which address a name may have is another rule
(`public_addresses`).
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urljoin

from vecmill.errors import InvalidRequest
from vecmill.values.picture import PictureUrl
from vecmill_server.base.public_addresses import is_public

WANTED = "a picture as a data URI, data:image/png;base64,..., or as base64"

# What presigned URLs of object stores take, several times over.
MOST_CHARACTERS = 8192

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][^#]*)?(?:#.*)?",
    re.IGNORECASE | re.ASCII,
)
_LISTED = re.compile(r"(?P<below>\*\.)?(?P<host>\[[0-9a-f:.]+\]|[^:\[\]*]+)(?::(?P<port>[0-9]{1,5}))?")
# As in a URL, where they are percent-encoded already or stand for themselves.
_TARGET_CHARACTERS = "!$%&'()*+,/:;=?@[]~"


class UnusableUrl(Exception):
    """A URL that is not fetched. The message is the end of a sentence about it."""


@dataclass(frozen=True, slots=True)
class WebUrl:
    """What is asked for: `target` of `host`, a name in small letters or an address without brackets."""

    scheme: str
    host: str
    port: int
    target: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read an absolute URL. Raises `UnusableUrl`."""
        if len(text) > MOST_CHARACTERS:
            raise UnusableUrl(f"has {len(text)} characters; at most {MOST_CHARACTERS} are accepted")
        found = _URL.fullmatch(text) if text.isprintable() else None
        if found is None:
            raise UnusableUrl(
                "is no URL of a picture: it must be http or https, a host in ASCII without user name and "
                "password, a path, and nothing that does not print"
            )
        scheme, host = found["scheme"].lower(), _read_host(found["host"].lower())
        port = int(found["port"] or _DEFAULT_PORTS[scheme])
        target = quote(found["target"] or "/", safe=_TARGET_CHARACTERS)
        return cls(scheme, host, port, target if target.startswith("/") else f"/{target}")

    def follow(self, location: str) -> "WebUrl":
        """Return where a redirect leads. Raises `UnusableUrl`."""
        try:
            found = WebUrl.read(urljoin(str(self), location.strip(" ")))
        except (UnusableUrl, ValueError):
            raise UnusableUrl("leads to something else than a URL of a picture") from None
        if self.scheme == "https" and found.scheme == "http":
            raise UnusableUrl("leads from https to http")
        return found

    @property
    def authority(self) -> str:
        """The host and the port, as in the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def _read_host(text: str) -> str:
    """Return a host in small letters. Raises `UnusableUrl`."""
    is_number = _NUMBER.fullmatch(text.rpartition(".")[2]) is not None
    if not text.startswith("[") and not is_number and _NAME.fullmatch(text):
        return text
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        address = None
    if address is None or str(address) != text.strip("[]") or (address.version == 6) != text.startswith("["):
        raise UnusableUrl("has a host that is neither a name nor an address as it is usually written")
    return str(address)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A host of `--image-urls`, or all names below it. Without a port, those of http and https are meant."""

    host: str
    is_below: bool
    port: int | None

    def accepts(self, url: WebUrl) -> bool:
        is_host = url.host.endswith(f".{self.host}") if self.is_below else url.host == self.host
        return is_host and url.port in (_DEFAULT_PORTS.values() if self.port is None else (self.port,))


def read_listed_host(text: str) -> _Listed:
    """Read a host as `--image-urls` lists it. Raises `ValueError`."""
    found = _LISTED.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(text)
    try:
        host = _read_host(found["host"])
    except UnusableUrl as error:
        raise ValueError(text) from error
    is_below, port = found["below"] is not None, found["port"]
    is_address = ":" in host or host[-1].isdigit()
    if (is_address and (is_below or not is_public(host))) or not 0 < int(port or 1) < 65536:
        raise ValueError(text)
    return _Listed(host, is_below, None if port is None else int(port))


def is_listed_host(text: str) -> bool:
    """Return whether `--image-urls` can list a text."""
    try:
        read_listed_host(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PictureHosts:
    """The hosts whose pictures are fetched; without any, no URL is."""

    listed: tuple[_Listed, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Read the values of `--image-urls`."""
        return cls(tuple(map(read_listed_host, texts)))

    def require(self, url: WebUrl) -> WebUrl:
        """Return a URL whose host and port are listed. Raises `UnusableUrl` for any other."""
        if not any(each.accepts(url) for each in self.listed):
            raise UnusableUrl("has, or leads to, a host or a port that this server fetches no pictures from")
        return url

    def check(self, picture: PictureUrl) -> None:
        """Raise `InvalidRequest` for a picture that would not be asked for."""
        if not self.listed:
            reason = f"is a URL, and this server fetches none without --image-urls. Send {WANTED}"
            raise refuse_url(picture, reason)
        try:
            self.require(WebUrl.read(picture.url))
        except UnusableUrl as error:
            raise refuse_url(picture, error) from None


NO_HOSTS = PictureHosts()


def refuse_url(picture: PictureUrl, reason: object) -> InvalidRequest:
    """Return the error about the URL of a picture. `reason` is the rest of a sentence about it."""
    return InvalidRequest(f"`{picture.field}` {reason}.", field=picture.field)

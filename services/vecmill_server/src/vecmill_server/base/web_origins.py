"""The origins of web pages that `--cors-origin` names, as browsers send them in the header `Origin`.

`*` stands for every origin. In a pattern, `*` stands for the host, for its first labels or for the port:
`chrome-extension://*`, `https://*.example.org`, `http://localhost:*`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

ANY = "*"
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
# Origins that are no scheme, host and port: of sandboxed pages and files, and of files in some web views.
_SPECIAL = frozenset({ANY, "null", "file://"})
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?P<labels>\*$|\*(?=:)|\*\.)?(?P<host>\[[^\]/\s]+\]|[^/\s?#@A-Z*:\[\]]+)?(?P<port>:(?:[0-9]+|\*))?"
)


def is_web_origin(text: str) -> bool:
    """Return whether `text` is an origin, or a pattern of origins, that a page can have."""
    if text in _SPECIAL:
        return True
    found = _ORIGIN.fullmatch(text)
    if found is None:
        return False
    return (found["host"] is None) == (found["labels"] == ANY)


@dataclass(frozen=True, slots=True)
class WebOrigins:
    """Origins: those in `exact`, and those that match `pattern`, a regular expression, if there is one."""

    exact: frozenset[str]
    pattern: re.Pattern[str] | None = None

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Return the origins that `texts` name. Each is a web origin; `is_web_origin` tells."""
        given = [_without_default_port(text) for text in texts]
        patterns = [text for text in given if ANY in text and text != ANY]
        pattern = re.compile("|".join(map(_to_expression, patterns))) if patterns else None
        return cls(frozenset(given).difference(patterns), pattern)

    @property
    def has_all(self) -> bool:
        """True if every origin is among them."""
        return ANY in self.exact

    def accept(self, origin: str) -> bool:
        """Return whether an origin is among them."""
        is_matched = self.pattern is not None and self.pattern.fullmatch(origin) is not None
        return is_matched or origin in self.exact or self.has_all


def _without_default_port(text: str) -> str:
    """Return an origin as browsers write it: without the port that its scheme has by default."""
    return text.removesuffix(DEFAULT_PORTS.get(text.partition("://")[0], ""))


def _to_expression(pattern: str) -> str:
    """Return the regular expression of a pattern that is a web origin."""
    found = _ORIGIN.fullmatch(pattern)
    assert found is not None
    labels, port = found["labels"], found["port"]
    host = "" if found["host"] is None else re.escape(found["host"])
    if labels == ANY:
        host = "[^/]+" if port is None else "[^/:]+"
    elif labels is not None:
        host = rf"[^/:]+\.{host}"
    after = "(?::[0-9]+)?" if port == ":*" else port or ""
    return f"{re.escape(found['scheme'])}://{host}{after}"

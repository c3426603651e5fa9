"""The rules that refuse requests of foreign web pages, by their `Origin` and `Host` headers.

A browser lets any web page send a POST with a JSON body of the type text/plain to any server that the browser
reaches, such as a server on localhost. The page of another origin cannot read the response, unless the page
uses DNS rebinding: its host name first has the address of the attacker's server, and then the address of this
server, so that the browser takes both for the same origin. A page can set most headers, but not `Host`,
`Origin` and `Sec-Fetch-*`, so the rules depend on these:

Origin  A request whose origin is neither its own host nor in --cors-origin is refused. `Sec-Fetch-Site:
        same-origin` is accepted too, because a reverse proxy may change `Host`.
Host    A name that a stranger can register is foreign: a name with a dot and a public top-level domain. If
        the server listens on a loopback address, every request for a foreign name is refused. On other
        addresses, proxies and load balancers have such names, so only requests of browsers are refused.

Requests with a valid API key pass, because a foreign page knows no key. docs/security.md has the reasons.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass

from vecmill_server.base.errors import ForeignHost, ForeignOrigin
from vecmill_server.base.settings import Address, ServerSettings
from vecmill_server.base.web_origins import ANY, DEFAULT_PORTS, WebOrigins, is_web_origin

# Top-level domains that are not public, so that no stranger can register a name in them: RFC 6761, RFC 6762
# with its appendix G, and the short names of Kubernetes services.
_PRIVATE_DOMAINS = frozenset(
    {"localhost", "local", "internal", "lan", "home", "corp", "intranet", "private", "svc"}
)
_HOME_DOMAIN = ".home.arpa"
_MOST_SHOWN = 100

_READ = frozenset(
    {
        b"host",
        b"origin",
        b"user-agent",
        b"accept-language",
        b"sec-fetch-site",
        b"sec-fetch-mode",
    }
)


@dataclass(frozen=True, slots=True)
class OriginRules:
    """The origins and hosts that a request may have. `*` stands for all.

    `is_loopback` is True if the server listens on a loopback address. `is_socket` is True if it listens on a
    Unix socket, which a browser cannot reach, so that `Host` is not checked.
    """

    origins: WebOrigins
    hosts: frozenset[str]
    is_loopback: bool
    is_socket: bool = False

    @classmethod
    def of(cls, settings: ServerSettings, address: Address | None = None) -> "OriginRules":
        """Return the rules of a server with these settings that listens on `address`.

        The address of an inherited socket is not in the settings. `None` stands for the address in the
        settings.
        """
        if address is None:
            address = Address(settings.host, settings.port, settings.uds)
        names = (settings.host, address.host, socket.gethostname(), *settings.allowed_host)
        hosts = frozenset(name if name == ANY else _host_name(name) for name in names)
        return cls(WebOrigins.of(settings.cors_origin), hosts, address.is_loopback, address.path is not None)

    def accepts_host(self, host: str) -> bool:
        """Return True if every request for this `Host` is accepted that says no origin and no other site."""
        name = _host_name(host)
        return self.is_socket or ANY in self.hosts or name in self.hosts or _is_private(name)

    def check(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise `ForeignOrigin` or `ForeignHost` if the request may come from a foreign web page."""
        # Header values are shown in errors, which are JSON, so every byte must decode.
        values = {name: value.decode("latin-1").strip() for name, value in headers if name in _READ}
        if self._has_allowed_origin(values):
            return
        self._check_origin(method, values)
        self._check_host(values)

    def _has_allowed_origin(self, values: dict[bytes, str]) -> bool:
        origin = values.get(b"origin")
        return origin is not None and self.origins.accept(origin)

    def _check_origin(self, method: str, values: dict[bytes, str]) -> None:
        origin, site = values.get(b"origin"), values.get(b"sec-fetch-site")
        if origin is not None:
            if site != "same-origin" and not _is_own(origin, values.get(b"host", "")):
                raise ForeignOrigin(
                    f"Web pages of {origin[:_MOST_SHOWN]} may not call this server. {_advise(origin)}"
                )
            return
        # A link on another site may lead here, as long as it only reads. Its page does not see the response.
        is_link = method in ("GET", "HEAD") and values.get(b"sec-fetch-mode") == "navigate"
        if site == "cross-site" and not is_link and not self.origins.has_all:
            raise ForeignOrigin(
                "Web pages of other sites may not call this server. Start it with --cors-origin ORIGIN to "
                "allow the pages of an origin. They must send the header Origin."
            )

    def _check_host(self, values: dict[bytes, str]) -> None:
        host = values.get(b"host", "")
        if self.accepts_host(host):
            return
        if self.is_loopback or _is_from_browser(values):
            shown = _host_name(host)[:_MOST_SHOWN]
            raise ForeignHost(
                f"The host name {shown} is not known to be this server's. Start it with --allowed-host "
                f"{shown}, or send requests to its address."
            )


def _advise(origin: str) -> str:
    """Return how the pages of an origin are allowed. The option takes no part of a longer origin."""
    if len(origin) > _MOST_SHOWN or ANY in origin or not is_web_origin(origin):
        return "It is no origin that --cors-origin could name."
    return f"Start it with --cors-origin {origin} to allow them."


def _is_own(origin: str, host: str) -> bool:
    """Return True if the origin and the `Host` header name the same host and port.

    The schemes may differ, because a proxy may provide TLS.
    """
    scheme, separator, authority = origin.lower().partition("://")
    port = DEFAULT_PORTS.get(scheme, "")
    own = host.lower().removesuffix(port)
    return bool(separator and authority) and authority.removesuffix(port) == own


def _host_name(host: str) -> str:
    """Return the name in a `Host` header or option, in lower case, without port, brackets and last dot."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") > 1:  # an IPv6 address without brackets, as in --host
        return host
    return host.partition(":")[0].removesuffix(".")


def _is_private(name: str) -> bool:
    """Return True if no stranger can register the name: an address, a name without dots, a private domain."""
    if ":" in name:  # an IPv6 address
        return True
    _, dot, last = name.rpartition(".")
    # Browsers read a name whose last part is a number as an IPv4 address.
    return not dot or last.isdigit() or last in _PRIVATE_DOMAINS or name.endswith(_HOME_DOMAIN)


def _is_from_browser(values: dict[bytes, str]) -> bool:
    """Return True if a browser may have sent the request.

    Some browsers let a page replace `User-Agent`. No page can remove `Accept-Language`. Node.js sends it too,
    but together with `Sec-Fetch-Mode`, which browsers send only with `Sec-Fetch-Site`.
    """
    return (
        b"origin" in values
        or b"sec-fetch-site" in values
        or values.get(b"user-agent", "").startswith("Mozilla/")
        or (b"accept-language" in values and b"sec-fetch-mode" not in values)
    )

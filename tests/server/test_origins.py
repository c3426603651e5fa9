"""Requests of foreign web pages are refused, and every other client goes on as before."""

import re
from pathlib import Path

import pytest

from vecmill.errors import InvalidConfig
from vecmill_server.app.origins import OriginRules
from vecmill_server.base.errors import ForeignHost, ForeignOrigin
from vecmill_server.base.settings import Address, ServerSettings

EVIL = "attacker.example:7997"
# What a browser sends to a site without TLS, where it sends no Sec-Fetch-*.
FIREFOX = {"user-agent": "curl/8", "accept-language": "*", "accept-encoding": "gzip, deflate"}
CHROME = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64)", "accept-language": "en"}
NODE = {"user-agent": "node", "accept-language": "*", "sec-fetch-mode": "cors"}


def check(
    headers: dict[str, str],
    method: str = "POST",
    *,
    host: str = "127.0.0.1",
    allowed_host: tuple[str, ...] = (),
    cors_origin: tuple[str, ...] = (),
) -> None:
    """Raise what a server with these settings raises."""
    settings = ServerSettings(host=host, allowed_host=allowed_host, cors_origin=cors_origin)
    OriginRules.of(settings).check(
        method, [(name.encode(), value.encode()) for name, value in headers.items()]
    )


@pytest.mark.parametrize(
    "origin",
    [
        *("example.org", "https://example.org/", "https://example.org/app", "https://*.example.org/", ""),
        *("https://Example.org", "https://user@example.org", "https://example.org?x", "https://"),
        *(
            "https://*example.org",
            "https://a.*.org",
            "http://localhost:3*",
            "http://localhost:abc",
            "file://x/*",
        ),
        *("https://*.", "*://localhost", "https://:443"),
    ],
)
def test_what_no_browser_sends_is_refused_as_an_origin(origin: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is no origin.* such as https://example\.org"):
        ServerSettings(cors_origin=(origin,))


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "https://example.org", "http://localhost:3000", "http://[::1]:80", "app://x", "file://"],
)
def test_what_browsers_send_is_an_origin(origin: str) -> None:
    assert ServerSettings(cors_origin=(origin,)).cors_origin == (origin,)


@pytest.mark.parametrize(
    ("allowed", "origins"),
    [
        ("chrome-extension://*", ["chrome-extension://mdkmkgmeleogeakokmdmcmiphcpinamb"]),
        ("https://*.example.org", ["https://a.example.org", "https://a.b.example.org"]),
        ("http://localhost:*", ["http://localhost", "http://localhost:3000"]),
        ("http://*:3000", ["http://a.example:3000"]),
        ("http://[::1]:*", ["http://[::1]:8080"]),
        ("https://app.example:443", ["https://app.example"]),
        ("http://app.example:80", ["http://app.example"]),
        ("file://", ["file://"]),
        ("null", ["null"]),
    ],
)
def test_an_origin_or_a_pattern_allows_what_browsers_send(allowed: str, origins: list[str]) -> None:
    for origin in origins:
        check({"host": "localhost:7997", "origin": origin}, cors_origin=(allowed,))


@pytest.mark.promise("foreign-pages")
@pytest.mark.parametrize(
    ("allowed", "origin"),
    [
        ("chrome-extension://*", "https://attacker.example"),
        ("https://*.example.org", "https://example.org"),
        ("https://*.example.org", "https://attackerexample.org"),
        ("https://*.example.org", "https://a.example.org.attacker.example"),
        ("https://*.example.org", "https://attacker.example:443/.example.org"),
        ("http://localhost:*", "http://localhost.attacker.example:3000"),
        ("http://localhost:*", "https://localhost:3000"),
        ("http://*:3000", "http://a.example:30001"),
        ("https://app.example:443", "https://app.example:444"),
    ],
)
def test_a_pattern_allows_nothing_else(allowed: str, origin: str) -> None:
    with pytest.raises(ForeignOrigin):
        check({"host": "localhost:7997", "origin": origin}, cors_origin=(allowed,))


@pytest.mark.parametrize(
    "origin", ["file://", "https://a.example", "null", "https://A.example", "x", "https://" + "a" * 200, ""]
)
def test_a_refusal_advises_only_what_the_option_takes(origin: str) -> None:
    with pytest.raises(ForeignOrigin) as refused:
        check({"host": "localhost:7997", "origin": origin})
    advised = re.search(r"--cors-origin (\S+) to allow", refused.value.message)
    if advised is not None:
        check({"host": "localhost:7997", "origin": origin}, cors_origin=(advised[1],))


@pytest.mark.promise("foreign-pages")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "localhost"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://attacker.example",
        "http://localhost:3000",  # another port is another origin
        "http://127.0.0.1:79970",
        "http://localhost.attacker.example:7997",
        "null",
        "",
        "chrome-extension://abc",
    ],
)
def test_a_page_of_another_origin_is_refused(host: str, origin: str) -> None:
    with pytest.raises(ForeignOrigin, match="--cors-origin"):
        check({"host": "localhost:7997", "origin": origin, "content-type": "text/plain"}, host=host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:7997", "localhost:7997"),
        ("http://LOCALHOST:7997", "localhost:7997"),
        ("http://localhost", "localhost"),
        ("http://localhost", "localhost:80"),
        ("http://[::1]:7997", "[::1]:7997"),
        ("https://vecmill", "vecmill"),  # a proxy provides TLS
        ("https://vecmill", "vecmill:443"),
    ],
)
def test_the_pages_of_the_server_itself_may_call(origin: str, host: str) -> None:
    check({"host": host, "origin": origin})


def test_a_proxy_may_change_the_host_of_the_servers_own_pages() -> None:
    headers = {"host": "127.0.0.1:7997", "origin": "https://embed.example.com"}
    check({**headers, "sec-fetch-site": "same-origin"})
    with pytest.raises(ForeignOrigin):
        check({**headers, "sec-fetch-site": "same-site"})


@pytest.mark.parametrize("allowed", ["https://app.example.com", "*"])
def test_allowed_origins_may_call_by_every_name(allowed: str) -> None:
    origin = {"origin": "https://app.example.com"}
    for host in ("localhost:7997", "embed.example.com"):
        check({"host": host, **origin}, host="0.0.0.0", cors_origin=(allowed,))
    if allowed != "*":
        with pytest.raises(ForeignOrigin, match=r"https://other\.example"):
            check({"host": "localhost:7997", "origin": "https://other.example"}, cors_origin=(allowed,))


def test_what_a_foreign_page_embeds_is_refused_but_its_links_lead_here() -> None:
    cross = {"host": "localhost:7997", "sec-fetch-site": "cross-site"}
    for mode, method in (("no-cors", "GET"), ("cors", "GET"), ("navigate", "POST")):
        with pytest.raises(ForeignOrigin, match="--cors-origin"):
            check({**cross, "sec-fetch-mode": mode}, method)
    check({**cross, "sec-fetch-mode": "navigate"}, "GET")
    check({**cross, "sec-fetch-mode": "no-cors"}, "GET", cors_origin=("*",))
    for site in ("none", "same-origin"):
        check({"host": "localhost:7997", "sec-fetch-site": site, "sec-fetch-mode": "cors"})


@pytest.mark.promise("foreign-pages")
@pytest.mark.parametrize("browser", [CHROME, FIREFOX, {"sec-fetch-site": "same-origin"}])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "192.168.1.5"])
def test_dns_rebinding_is_refused_for_reading_and_for_writing(host: str, browser: dict[str, str]) -> None:
    with pytest.raises(ForeignHost, match=r"--allowed-host attacker\.example"):
        check({"host": EVIL, **browser}, "GET", host=host)
    with pytest.raises(ForeignHost):
        check({"host": EVIL, **browser, "origin": f"http://{EVIL}"}, "POST", host=host)


@pytest.mark.parametrize(
    "name",
    [
        "attacker.example",
        "attacker.example.",
        "ATTACKER.example:7997",
        "127.0.0.1.attacker.example",
        "localhost.attacker.example",
        "localhost@attacker.example",
        "attacker.example:80.local",
        "internal.dev",
        "é.example",
    ],
)
def test_on_loopback_every_client_needs_a_name_of_the_server(name: str) -> None:
    with pytest.raises(ForeignHost):
        check({"host": name})


@pytest.mark.parametrize("served", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "name",
    [
        "",
        "localhost",
        "localhost:8080",  # a mapped port
        "LocalHost.",
        "127.0.0.1:7997",
        "192.168.1.5:7997",
        "[::1]:7997",
        "[fe80::1]",
        "vecmill:7997",
        "my_service-1",
        "host.docker.internal:7997",
        "vecmill.default.svc.cluster.local",
        "nas.home.arpa",
        "nas.lan:7997",
        "vecmill.default.svc",
        "app.localhost",
    ],
)
def test_names_that_no_stranger_can_register_are_served(served: str, name: str) -> None:
    check({"host": name}, host=served)
    check({"host": name, **CHROME}, "GET", host=served)


def test_a_request_without_a_host_is_not_from_a_page() -> None:
    check({})
    with pytest.raises(ForeignOrigin):
        check({"origin": "http://localhost"})


@pytest.mark.parametrize("client", [{}, {"user-agent": "python-requests/2"}, NODE])
def test_behind_a_proxy_programs_may_use_any_name(client: dict[str, str]) -> None:
    check({"host": "embed.example.com", **client}, host="0.0.0.0")
    with pytest.raises(ForeignHost):
        check({"host": "embed.example.com", **client}, host="127.0.0.1")


@pytest.mark.parametrize("listed", ["embed.example.com", "Embed.Example.com", "*"])
def test_listed_names_are_served_to_everybody(listed: str) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        check({"host": "embed.example.com:443", **CHROME}, host=host, allowed_host=(listed,))


def test_the_name_to_listen_on_is_a_name_of_the_server() -> None:
    check({"host": "embed.example.com:7997", **CHROME}, host="embed.example.com")


def test_a_page_cannot_reach_a_socket() -> None:
    rules = OriginRules.of(ServerSettings(uds=Path("/run/vecmill.sock")))
    rules.check("GET", [(b"host", b"embed.example.com"), (b"accept-language", b"en")])
    with pytest.raises(ForeignOrigin):
        rules.check("GET", [(b"host", b"localhost"), (b"origin", b"https://attacker.example")])


@pytest.mark.promise("foreign-pages", "malformed-input")
def test_any_bytes_in_these_headers_are_only_refused() -> None:
    rules = OriginRules.of(ServerSettings())
    for value in (b"\xff\xfe", b"[", b"]", b"://", b"a" * 10_000 + b".b"):
        with pytest.raises((ForeignOrigin, ForeignHost)) as raised:
            rules.check("GET", [(b"host", value + b".b"), (b"origin", value)])
        assert len(raised.value.message) < 400


def test_the_address_of_an_inherited_socket_counts_and_not_the_default() -> None:
    request = [(b"host", b"embed.example.com"), (b"user-agent", b"curl/8")]
    for address in (Address("0.0.0.0", 80), Address(path=Path("/run/vecmill.sock"))):
        OriginRules.of(ServerSettings(), address).check("POST", request)
    with pytest.raises(ForeignHost):
        OriginRules.of(ServerSettings(host="0.0.0.0"), Address("127.0.0.1", 80)).check("POST", request)
    chrome = [(name.encode(), value.encode()) for name, value in CHROME.items()]
    with pytest.raises(ForeignHost):
        OriginRules.of(ServerSettings(), Address("0.0.0.0", 80)).check("GET", [*request[:1], *chrome])

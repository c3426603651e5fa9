"""No URL of a picture leads to what only this machine and its network reach, whatever its sender writes."""

import functools
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpcore2
import pytest

from support.certificates import make_certificate
from support.picture_host import PictureHost, RoutedNetwork, ScriptedNames, redirect, respond, serve_pictures
from vecmill.errors import InvalidRequest
from vecmill.requests import PictureUrl
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.picture_urls import PictureHosts, WebUrl
from vecmill_server.base.public_addresses import is_public
from vecmill_server.service import pinned_network
from vecmill_server.service.picture_fetcher import FetchLimits, PictureFetcher
from vecmill_server.service.pinned_network import UNREACHABLE, resolve_by_system

pytestmark = pytest.mark.promise("malformed-input")

PUBLIC = "93.184.216.34"
PICTURE = b"a picture"
TESTS = Path(__file__).parents[1]


class EveryHost(PictureHosts):
    """All hosts and ports are listed, so that only the rules on URLs and addresses are left."""

    def require(self, url: WebUrl) -> WebUrl:
        return url


read_certificates = functools.cache(httpcore2.default_ssl_context)


@pytest.fixture(autouse=True)
def shared_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """One TLS context for all fetchers: each would read the certificates of the system."""
    monkeypatch.setattr(httpcore2, "default_ssl_context", read_certificates)


@pytest.fixture
def host() -> Iterator[PictureHost]:
    """What must not be reached."""
    page = respond(PICTURE)
    with serve_pictures({"/": page, "/?images.example.org": page, "/secret": page}) as found:
        yield found


def names_to(*addresses: str) -> Mapping[str, Sequence[Sequence[str]]]:
    return {"images.example.org": [addresses]}


async def fetch(fetcher: PictureFetcher, url: str) -> bytes:
    with ByteBudget(2**26).hold() as held:
        (picture,) = await fetcher.fetch("someone", held, [PictureUrl(url, "input[0]")])
        assert held.count == len(picture.data)
        return picture.data


async def refuse(fetcher: PictureFetcher, url: str) -> str:
    """Return why a URL is refused."""
    with pytest.raises(InvalidRequest) as caught:
        await fetch(fetcher, url)
    assert caught.value.field == "input[0]"
    assert caught.value.message.startswith("`input[0]` ")
    return caught.value.message


# What C libraries, browsers or other parsers take for a loopback address.
DISGUISED = [
    "http://127.0.0.1.:{port}/",
    "http://localhost.:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://0:{port}/",
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7F.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://127.000.000.001:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://[::1%lo]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[0000::0001]:{port}/",
    "http://[127.0.0.1]:{port}/",
    "http://::1:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",  # full-width digits
    "http://127\u30020\u30020\u30021:{port}/",  # ideographic full stops
    "http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3:{port}/",  # letters in circles
    "http://loca\u017fho\u017ft:{port}/",  # a long s, which is an s in capitals
    "http://%31%32%37.0.0.1:{port}/",
    "http://images.example.org@127.0.0.1:{port}/",
    "http://images.example.org:80@127.0.0.1:{port}/",
    "http://images.example.org%40127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@images.example.org/",
    "http://127.0.0.1\\.images.example.org:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http://images.example.org:80:{port}/",
    "http://127.0.0.1:{port}:80/",
    "http://127.0.\t0.1:{port}/",
    "http://127.0.0.1\n:{port}/",
    "http://127.0.0.1:{port}\r\nHost: images.example.org/",
    "http://127.0.0.1 :{port}/",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:0{port}00000/",
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "jar:http://127.0.0.1:{port}/!/",
]


@pytest.mark.parametrize("url", DISGUISED)
async def test_what_is_no_plain_host_is_not_asked_for(host: PictureHost, url: str) -> None:
    fetcher = PictureFetcher(EveryHost(), ByteBudget(2**26))
    message = await refuse(fetcher, url.format(port=host.port))
    assert (
        "is no URL of a picture" in message
        or "has a host that is neither a name nor" in message
        or (
            UNREACHABLE in message  # a name that means nothing else
        )
    )
    assert host.heads == []


def test_some_of_them_would_reach_it() -> None:
    for name in ("2130706433", "0x7f000001", "017700000001", "127.1", "0177.0.0.1"):
        assert socket.getaddrinfo(name, 80)[0][4][0] == "127.0.0.1"


# Hosts that mean what they say.
PLAIN = {
    "http://127.0.0.1:{port}/": True,
    "HTTP://LOCALHOST:{port}/": True,
    "http://localhost:{port}/?images.example.org": True,
    "http://localhost:{port}#@images.example.org/": True,
    "http://0.0.0.0:{port}/": True,
    "http://[::ffff:7f00:1]:{port}/": True,
    "http://[::1]:{port}/": False,
    "http://[::7f00:1]:{port}/": False,
    "http://[64:ff9b::7f00:1]:{port}/": False,
    "http://[2002:7f00:1::]:{port}/": False,
    "http://127.255.255.254:{port}/": False,
    "http://169.254.169.254/latest/meta-data/": False,
    "http://100.100.100.200/": False,
    "http://[fd00:ec2::254]/": False,
}


@pytest.mark.parametrize("url", PLAIN)
async def test_addresses_that_are_not_public_are_not_asked(
    host: PictureHost, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = PictureFetcher(EveryHost(), ByteBudget(2**26))
    assert UNREACHABLE in await refuse(fetcher, url.format(port=host.port))
    assert host.heads == []
    if PLAIN[url]:  # without the rule it is reached
        monkeypatch.setattr(pinned_network, "is_public", lambda _address: True)
        assert await fetch(fetcher, url.format(port=host.port)) == PICTURE
        assert len(host.heads) == 1


ANSWERS = {
    "loopback": ["127.0.0.1"],
    "loopback of IPv6": ["::1"],
    "mapped": ["::ffff:127.0.0.1"],
    "a public one and loopback": [PUBLIC, "127.0.0.1"],
    "loopback and a public one": ["127.0.0.1", PUBLIC],
    "no address": [],
    "something else": ["localhost"],
    "unspecified": ["0.0.0.0"],
    "a private one": ["10.0.0.1"],
    "a shared one": ["100.64.0.1"],
    "a link": ["fe80::1%eth0"],
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_names_are_not_asked_for_unless_all_their_addresses_are_public(
    host: PictureHost, answer: str
) -> None:
    names = ScriptedNames(names_to(*ANSWERS[answer]))
    hosts = PictureHosts.of([f"images.example.org:{host.port}"])
    fetcher = PictureFetcher(hosts, ByteBudget(2**26), resolve=names)
    assert UNREACHABLE in await refuse(fetcher, f"http://images.example.org:{host.port}/")
    assert names.asked == ["images.example.org"]
    assert host.heads == []


def routed(
    host: PictureHost, *answers: Sequence[str], listed: str = "*.example.org"
) -> tuple[PictureFetcher, RoutedNetwork, ScriptedNames]:
    """Return a fetcher for which the host has a public address, and what it asks."""
    names = ScriptedNames({"images.example.org": answers or [[PUBLIC]], "inside.example.org": [["10.0.0.1"]]})
    network = RoutedNetwork({(PUBLIC, 80): host.port, ("127.0.0.1", host.port): host.port})
    hosts = PictureHosts.of([listed])
    return PictureFetcher(hosts, ByteBudget(2**26), resolve=names, inner=network), network, names


async def test_the_allowed_way_leads_there(host: PictureHost) -> None:
    fetcher, network, names = routed(host)
    host.pages["/a/%C3%A4%20b?c=d%2Fe&f"] = respond(PICTURE, content_type="image/png")
    url = "HTTP://images.EXAMPLE.org:80/a/\u00e4 b?c=d%2Fe&f#part"
    assert await fetch(fetcher, url) == PICTURE
    assert network.asked == [(PUBLIC, 80)]
    assert names.asked == ["images.example.org"]  # once: what was checked is what was connected to
    lines = host.heads[0].decode().lower().split("\r\n")
    assert "host: images.example.org" in lines
    assert "accept-encoding: identity" in lines
    sent = {line.split(":")[0] for line in lines[1:] if line}
    assert sent == {"host", "accept", "accept-encoding", "user-agent", "connection"}


async def test_names_that_change_between_check_and_connection_gain_nothing(host: PictureHost) -> None:
    host.pages["/again"] = redirect("/secret")
    fetcher, network, names = routed(host, [PUBLIC], ["127.0.0.1"])
    assert UNREACHABLE in await refuse(fetcher, "http://images.example.org/again")
    assert names.asked == ["images.example.org"] * 2
    assert network.asked == [(PUBLIC, 80)]
    assert host.paths == ["/again"]


LOCATIONS = [
    "http://127.0.0.1:{port}/secret",
    "//127.0.0.1:{port}/secret",
    "http://localhost:{port}/secret",
    "http://[::1]:{port}/secret",
    "http://2130706433:{port}/secret",
    "http://images.example.org@127.0.0.1:{port}/secret",
    "http://inside.example.org/secret",
    "http://images.example.org:{port}/secret",
    "http://example.org/secret",
    "http://images.example.com/secret",
    "http://images.example.org.example.com/secret",
    "http://127.0.0.1:{port}\\.example.org/secret",
    "file:///etc/passwd",
    "ftp://images.example.org/secret",
    "data:image/png;base64,AAAA",
    "javascript:0",
    "http://[",
    "http://\x00127.0.0.1/",
]


@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("chain", [1, 3])
async def test_redirects_have_the_rules_of_urls(host: PictureHost, location: str, chain: int) -> None:
    place = location.format(port=host.port)
    for step in range(1, chain):
        host.pages[f"/{step}"] = redirect(f"/{step + 1}", "307 Temporary Redirect")
    host.pages[f"/{chain}"] = redirect(place, "301 Moved Permanently")
    fetcher, network, _ = routed(host)
    message = await refuse(fetcher, "http://images.example.org/1")
    assert "127.0.0.1" not in message
    assert "passwd" not in message
    assert set(network.asked) == {(PUBLIC, 80)}
    assert host.paths == [f"/{step + 1}" for step in range(chain)]


async def test_redirects_within_the_listed_hosts_are_followed_three_times(host: PictureHost) -> None:
    fetcher, *_ = routed(host)
    for step in range(4):
        host.pages[f"/{step}"] = redirect(f"/{step + 1}")
    host.pages["/4"] = respond(PICTURE)
    assert await fetch(fetcher, "http://images.example.org/1") == PICTURE
    assert "more than 3 redirects" in await refuse(fetcher, "http://images.example.org/0")
    host.pages["/circle"] = redirect("circle")
    assert "more than 3 redirects" in await refuse(fetcher, "http://images.example.org/circle")


UNLISTED = [
    "http://images.example.org:8080/",
    "http://images.example.org:22/",
    "http://example.org/",
    "http://badexample.org/",
    "http://images.example.org.example.com/",
    "http://example.com/images.example.org/",
    "http://93.184.216.34/",
]


@pytest.mark.parametrize("url", UNLISTED)
async def test_hosts_and_ports_that_are_not_listed_are_not_asked(host: PictureHost, url: str) -> None:
    fetcher, network, names = routed(host)
    assert "a host or a port that this server fetches no pictures from" in await refuse(fetcher, url)
    assert (names.asked, network.asked) == ([], [])


async def test_messages_do_not_tell_what_there_is_inside(host: PictureHost) -> None:
    """A name that is inside, one that is not, and a closed port have the same message."""
    fetcher, *_ = routed(host, ["10.0.0.1"])
    inside = await refuse(fetcher, "http://images.example.org/")
    unknown = await refuse(fetcher, "http://unknown.example.org/")
    closed, *_ = routed(host, ["93.184.216.35"])
    assert inside == unknown == await refuse(closed, "http://images.example.org/")


async def test_proxies_of_the_environment_are_not_asked(
    host: PictureHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{host.port}")
    fetcher, network, _ = routed(host)
    assert await fetch(fetcher, "http://images.example.org/secret") == PICTURE
    assert network.asked == [(PUBLIC, 80)]
    assert host.heads[0].startswith(b"GET /secret HTTP/1.1\r\n")


async def test_tls_is_verified_and_begins_before_anything_is_asked(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "images.example.org", "DNS")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    names = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    pages = {"/a": respond(PICTURE), "/plain": redirect("http://images.example.org/a")}
    with serve_pictures(pages, tls=tls) as host:
        fetcher, network, scripted = routed(host)
        scripted.names = {each: [[PUBLIC]] for each in ("images.example.org", "other.example.org")}
        network.routes = {(PUBLIC, 443): host.port, (PUBLIC, 80): host.port}
        assert "TLS does not work" in await refuse(fetcher, "https://images.example.org/a")
        assert host.heads == []
        fetcher._tls = ssl.create_default_context(cafile=certificate)
        assert await fetch(fetcher, "https://images.example.org/a") == PICTURE
        assert "TLS does not work" in await refuse(fetcher, "https://other.example.org/a")
        assert "leads from https to http" in await refuse(fetcher, "https://images.example.org/plain")
        assert host.paths == ["/a", "/plain"]
    assert set(names) == {"images.example.org", "other.example.org"}


async def test_a_host_that_does_not_speak_tls_is_refused(
    host: PictureHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_network, "CONNECT_S", 0.2)
    fetcher, network, _ = routed(host)
    network.routes = {(PUBLIC, 443): host.port}
    assert "TLS does not work" in await refuse(fetcher, "https://images.example.org/secret")
    assert "/secret" not in host.paths


PUBLIC_ADDRESSES = ("8.8.8.8", "1.1.1.1", PUBLIC, "2606:4700:4700::1111", "64:ff9b::808:808", "198.17.0.1")
OTHER_ADDRESSES = """
0.0.0.0 0.1.2.3 10.255.255.255 100.64.0.1 100.127.255.254 127.0.0.1 127.8.8.8 168.63.129.16 169.254.169.254
172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.9 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1
198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::ffff:8.8.8.8 ::ffff:127.0.0.1 ::8.8.8.8 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b::6440:1
64:ff9b:1::808:808 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 2002:808:808::1
2002:7f00:1::
3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%1 fec0::1 ff02::1 ff0e::1 2606:4700::1%eth0
localhost 1.2.3 1.2.3.4.5 0x7f.0.0.1 127.1
"""


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", OTHER_ADDRESSES.split())
def test_other_addresses(address: str) -> None:
    assert not is_public(address)


def forbid_namespaces() -> str | None:
    """Return why this machine lets nobody make a network namespace; `None` if it does."""
    try:
        done = subprocess.run(["unshare", "-rn", "ip", "link"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() if done.returncode else None


@pytest.mark.linux
def test_what_is_in_a_network_of_its_own_is_not_reached() -> None:
    """There the addresses of clouds, private networks and links answer, and so does a public one."""
    reason = forbid_namespaces()
    if reason is not None:
        pytest.skip(f"no network namespace: {reason}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS), *filter(None, sys.path)))}
    command = ["unshare", "-rn", sys.executable, "-m", "security.namespace_probe"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["fetched"] == ["http://public.example/", "http://[2606:2800:220:1::1]/"]
    assert len(found["refused"]) >= 20
    assert {UNREACHABLE in message for message in found["refused"].values()} == {True}
    # Each of them answers to a program without these rules.
    assert found["reached"] == 0
    assert found["reachable"] == len(found["refused"])


def test_the_resolver_of_the_system_is_the_one_that_is_asked() -> None:
    fetcher = PictureFetcher(PictureHosts.of(["images.example.org"]), ByteBudget(2**26), FetchLimits())
    assert fetcher._network._resolve is resolve_by_system

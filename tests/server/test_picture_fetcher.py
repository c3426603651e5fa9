"""What a host sends is bounded in bytes, time and pieces, and clients take turns."""

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from support.callback_time import longest_callback
from support.picture_host import (
    PictureHost,
    RoutedNetwork,
    ScriptedNames,
    Send,
    endlessly,
    respond,
    serve_pictures,
)
from vecmill.errors import InvalidRequest
from vecmill.requests import PictureUrl
from vecmill_server.base.byte_budget import ByteBudget, HeldBytes
from vecmill_server.base.errors import BodyTooLarge, BuffersFull
from vecmill_server.base.picture_urls import PictureHosts, is_listed_host
from vecmill_server.service.picture_fetcher import FetchLimits, PictureFetcher

PUBLIC = "93.184.216.34"
PICTURE = bytes(range(256)) * 4
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LIMITS = FetchLimits(bytes=100_000, seconds=0.5)


@pytest.fixture
def host() -> Iterator[PictureHost]:
    with serve_pictures({"/": respond(PICTURE)}) as found:
        yield found


@pytest.fixture
def budget() -> ByteBudget:
    return ByteBudget(2**26)


@pytest.fixture
def make(host: PictureHost, budget: ByteBudget) -> Callable[..., PictureFetcher]:
    def make(limits: FetchLimits = LIMITS) -> PictureFetcher:
        return PictureFetcher(
            PictureHosts.of(["images.example.org"]),
            budget,
            limits,
            resolve=ScriptedNames({"images.example.org": [[PUBLIC]]}),
            inner=RoutedNetwork({(PUBLIC, 80): host.port}),
        )

    return make


def until_left(send: Send, has_left: threading.Event) -> Send:
    """Return what sends until the client has left, and then says so."""

    def wrapped(connection: socket.socket) -> None:
        with suppress(OSError):
            send(connection)
        has_left.set()

    return wrapped


def url(path: str = "/") -> PictureUrl:
    return PictureUrl(f"http://images.example.org{path}", "input[0]")


async def refuse(fetcher: PictureFetcher, budget: ByteBudget) -> str:
    with budget.hold() as held, pytest.raises(InvalidRequest) as caught:
        await fetcher.fetch(None, held, [url("/page")])
    assert budget.held == 0
    return caught.value.message


GZIPPED = gzip.compress(bytes(50_000_000))
PAGES: dict[str, tuple[bytes | Send, str]] = {
    "missing": (respond(b"no", "404 Not Found"), "answers with status 404"),
    "no body": (respond(status="204 No Content"), "answers with status 204"),
    "partial": (respond(PICTURE, "206 Partial Content"), "answers with status 206"),
    "gzip": (respond(GZIPPED, content_encoding="gzip"), "compresses what it sends"),
    "brotli": (respond(PICTURE, content_encoding="br"), "compresses what it sends"),
    "gzip in transfer": (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", "does not speak HTTP"),
    "page": (respond(b"<html>", content_type="text/html; charset=utf-8"), "its media type is another"),
    "json": (respond(b"{}", content_type="application/json"), "its media type is another"),
    "long": (respond(PICTURE, content_length=str(10**15)), "has more than 100000 bytes"),
    "negative length": (respond(PICTURE, content_length="-1"), "does not speak HTTP"),
    "two lengths": (HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", "does not speak HTTP"),
    "cut": (respond(PICTURE, content_length="2000"), "breaks off"),
    "cut chunk": (CHUNKED + b"ff\r\nabc", "breaks off"),
    "nothing": (b"", "breaks off"),
    "garbage": (b"\x00\x01\x02\r\n\r\n", "does not speak HTTP"),
    "other protocol": (b"220 smtp.example.org ESMTP\r\n", "does not speak HTTP"),
    "switch": (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", "does not speak HTTP"),
    "endless body": (endlessly(bytes(10_000), HEAD + b"\r\n"), "has more than 100000 bytes"),
    "endless chunks": (
        endlessly(b"2710\r\n" + bytes(10_000) + b"\r\n", CHUNKED),
        "has more than 100000 bytes",
    ),
    "tiny chunks": (endlessly(b"1\r\na\r\n" * 5000, CHUNKED), "too small pieces"),
    "endless extension": (endlessly(b"a" * 9000, CHUNKED + b"1;"), "does not speak HTTP"),
    "endless head": (endlessly(b"a: b\r\n" * 1000, HEAD), "a response that is too large"),
    "endless line": (endlessly(b"a" * 10_000, HEAD), "a response that is too large"),
    "endless early hints": (
        endlessly(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100),
        "a response that is too large",
    ),
    "slow body": (endlessly(b"a", HEAD + b"\r\n", pause_s=0.02), "takes more than 0.5 seconds"),
    "slow head": (endlessly(b"a", HEAD, pause_s=0.02), "takes more than 0.5 seconds"),
    "silence": (endlessly(b"", pause_s=0.05), "takes more than 0.5 seconds"),
}


@pytest.mark.parametrize("name", PAGES)
async def test_what_hostile_hosts_send_is_bounded(
    host: PictureHost, make: Callable[..., PictureFetcher], budget: ByteBudget, name: str
) -> None:
    host.pages["/page"], message = PAGES[name]
    fetcher = make()
    async with longest_callback() as longest:
        assert message in await refuse(fetcher, budget)
    assert longest.took_s < 0.1, longest  # it was 0.02
    with budget.hold() as held:  # the place is free again
        assert [each.data for each in await fetcher.fetch(None, held, [url()])] == [PICTURE]


@pytest.mark.parametrize(
    "page",
    [
        respond(PICTURE, content_type="application/octet-stream"),
        respond(PICTURE, content_encoding="identity", content_type="IMAGE/PNG"),
        HEAD + b"\r\n" + PICTURE,
        CHUNKED + b"400\r\n" + PICTURE + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + respond(PICTURE),
        b"HTTP/1.0 200 OK\r\n\r\n" + PICTURE,
    ],
    ids=["octets", "identity", "no length", "chunks", "hints", "HTTP/1.0"],
)
async def test_what_honest_hosts_send_is_read(
    host: PictureHost, make: Callable[..., PictureFetcher], budget: ByteBudget, page: bytes
) -> None:
    host.pages["/page"] = page
    with budget.hold() as held:
        assert [each.data for each in await make().fetch(None, held, [url("/page")])] == [PICTURE]
        assert held.count == budget.held == len(PICTURE)


async def test_a_large_picture_is_held_as_it_arrives(
    host: PictureHost, make: Callable[..., PictureFetcher], budget: ByteBudget
) -> None:
    content = bytes(5_000_000)
    host.pages["/page"] = HEAD + b"\r\n" + content
    fetcher = make(FetchLimits())
    with budget.hold() as held:
        (found,) = await fetcher.fetch(None, held, [url("/page")])
        assert found.data == content
        assert held.count == len(content)
    small = ByteBudget(2**21)
    with HeldBytes(small) as held, pytest.raises(BodyTooLarge, match="--max-buffered-bytes"):
        await fetcher.fetch(None, held, [url("/page")])
    assert small.held == 0
    other = small.hold()
    other.add(2**21)
    with HeldBytes(small) as held, pytest.raises(BuffersFull):
        await fetcher.fetch(None, held, [url()])


async def test_a_url_that_stands_twice_is_asked_for_once(
    host: PictureHost, make: Callable[..., PictureFetcher], budget: ByteBudget
) -> None:
    host.pages["/other"] = respond(b"other")
    with budget.hold() as held:
        found = await make().fetch(None, held, [url(), url("/other"), url(), url()])
    assert [each.data for each in found] == [PICTURE, b"other", PICTURE, PICTURE]
    assert sorted(host.paths) == ["/", "/other"]


async def test_one_that_fails_ends_the_others(
    host: PictureHost, make: Callable[..., PictureFetcher], budget: ByteBudget
) -> None:
    has_left = threading.Event()
    host.pages["/slow"] = until_left(endlessly(b"a", HEAD + b"\r\n", pause_s=0.01), has_left)
    fetcher = make(FetchLimits(seconds=60))
    with budget.hold() as held:
        await fetcher.fetch(None, held, [url()])  # a new client has one place until this is there
    began = time.monotonic()
    with budget.hold() as held, pytest.raises(InvalidRequest, match="status 404"):
        await fetcher.fetch(None, held, [url("/slow"), url("/missing")])
    assert time.monotonic() - began < 20
    assert budget.held == 0
    assert await asyncio.to_thread(has_left.wait, 20)


async def test_a_client_that_leaves_ends_its_fetch(
    host: PictureHost, make: Callable[..., PictureFetcher], budget: ByteBudget
) -> None:
    arrived, has_left, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def send(connection: socket.socket) -> None:
        loop.call_soon_threadsafe(arrived.set)
        endlessly(b"a", HEAD + b"\r\n", pause_s=0.01)(connection)

    host.pages["/slow"] = until_left(send, has_left)
    fetcher = make(FetchLimits(seconds=60, at_a_time=1))

    async def ask() -> None:
        with budget.hold() as held:
            await fetcher.fetch("one", held, [url("/slow")])

    first, waiting = asyncio.create_task(ask()), asyncio.create_task(ask())
    await arrived.wait()
    waiting.cancel()
    first.cancel()
    assert [type(each).__name__ for each in await asyncio.gather(first, waiting, return_exceptions=True)] == [
        "CancelledError"
    ] * 2
    assert await asyncio.to_thread(has_left.wait, 20)
    assert budget.held == 0
    with budget.hold() as held:
        assert len(await fetcher.fetch("two", held, [url()])) == 1


async def test_slow_urls_of_one_client_leave_a_place_to_others(
    host: PictureHost, make: Callable[..., PictureFetcher], budget: ByteBudget
) -> None:
    """When it is known that they are slow, one place of those that there are is not theirs."""
    now, loop, arrived = [0.0], asyncio.get_running_loop(), asyncio.Event()

    def send(connection: socket.socket) -> None:
        loop.call_soon_threadsafe(arrived.set)
        endlessly(b"a", HEAD + b"\r\n", pause_s=0.01)(connection)

    for index in range(8):
        host.pages[f"/{index}"] = send
    fetcher = make(FetchLimits(seconds=60, at_a_time=2))
    fetcher._places._clock = lambda: now[0]

    async def ask(client: str, path: str, seconds: float) -> list[bytes]:
        with budget.hold() as held:
            async with asyncio.timeout(seconds):
                return [each.data for each in await fetcher.fetch(client, held, [url(path)])]

    slow = [asyncio.create_task(ask("flood", f"/{index}", 60)) for index in range(2)]
    await arrived.wait()
    now[0] = 10.0
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    arrived.clear()
    flood = [asyncio.create_task(ask("flood", f"/{index}", 60)) for index in range(2, 8)]
    await arrived.wait()
    assert await ask("other", "/", 20) == [PICTURE]
    for each in flood:
        each.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


@pytest.mark.parametrize(
    "text",
    [
        "images.example.org",
        "IMAGES.example.org:8443",
        "*.example.org",
        "*.b.example:80",
        "8.8.8.8",
        "[2606:4700::1]:80",
    ],
)
def test_hosts_that_can_be_listed(text: str) -> None:
    assert is_listed_host(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "*",
            "*.",
            "*.*.org",
            "a.*.org",
            "https://example.org",
            "example.org/",
            "example.org:0",
            "a:99999",
        ),
        *("10.0.0.5", "127.0.0.1:8080", "[fd00::1]", "[64:ff9b::7f00:1]"),
        *(
            "user@example.org",
            "example.org.",
            "127.1",
            "0x7f.1",
            "*.8.8.8.8",
            "::1",
            "*.[::1]",
            "b\u00fccher.example",
        ),
    ],
)
def test_hosts_that_cannot_be_listed(text: str) -> None:
    assert not is_listed_host(text)


def test_a_listed_port_is_the_only_one_and_names_below_are_not_the_name_itself() -> None:
    hosts = PictureHosts.of(["a.example:8443", "*.b.example"])
    for text, is_listed in (
        ("https://a.example:8443/", True),
        ("https://a.example/", False),
        ("http://x.b.example/", True),
        ("https://x.y.b.example/", True),
        ("http://x.b.example:443/", True),
        ("http://x.b.example:8443/", False),
        ("http://b.example/", False),
    ):
        found = None
        try:
            hosts.check(PictureUrl(text, "input"))
        except InvalidRequest as error:
            found = error
        assert (found is None) == is_listed, text

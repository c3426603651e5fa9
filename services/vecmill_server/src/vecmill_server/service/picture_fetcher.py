"""Fetches the pictures that requests name by URLs, from the hosts of `--image-urls`.

Who names a URL decides what this server asks for, and from where. So the hosts are listed, their addresses
are public (`pinned_network`), both again after each redirect, and all that a host sends is bounded. A request
carries nothing of this server: no key, no cookie, no proxy of the environment. Errors tell the sender what is
wrong with the URL, and nothing about the network of this server.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpcore2

from vecmill.pictures.client_turns import ClientTurns
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.requests import FetchPictures, Picture, PictureUrl
from vecmill.values.clock import Clock, monotonic
from vecmill_server.base.byte_budget import ByteBudget, HeldBytes
from vecmill_server.base.picture_urls import PictureHosts, UnusableUrl, WebUrl, refuse_url
from vecmill_server.service.pinned_network import BoundedStream, PublicNetwork, Resolve, resolve_by_system

_HEADERS = [
    (b"Accept", b"image/webp, image/png, image/jpeg, image/gif"),
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"vecmill"),
    (b"Connection", b"close"),
]
_REDIRECTS = (301, 302, 303, 307, 308)
_MEDIA_TYPES = (b"image/", b"application/octet-stream", b"binary/octet-stream")

# Held for a body whose length is not told, and again whenever it is longer.
_STEP_BYTES = 256 * 1024
# Pieces of a body that may be small. Each takes as long as many bytes.
_FEW_PIECES = 1000
_LEAST_PIECE_BYTES = 256

_EXPECTED_S = 0.2
_LONG_S = 2.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits on one fetch, and on those of this process. `seconds` are for one URL with its redirects."""

    bytes: int = PictureLimits().max_bytes
    seconds: float = 10.0
    redirects: int = 3
    at_a_time: int = 16


class PictureFetcher:
    """Fetches pictures for requests. Use from one event loop.

    `inner` makes the connections to the addresses that `resolve` finds.
    """

    def __init__(
        self,
        hosts: PictureHosts,
        budget: ByteBudget,
        limits: FetchLimits | None = None,
        *,
        resolve: Resolve = resolve_by_system,
        inner: httpcore2.AsyncNetworkBackend | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._hosts, self._budget, self._limits = hosts, budget, limits or FetchLimits()
        self._network = PublicNetwork(resolve, inner or httpcore2.AnyIOBackend())
        self._tls = httpcore2.default_ssl_context()
        self._places = _Places(self._limits.at_a_time, clock)

    @contextmanager
    def for_client(self, client: str | None) -> Iterator[FetchPictures]:
        """Return what fetches for a client. The bytes are held as long as the context."""
        with self._budget.hold() as held:
            yield partial(self.fetch, client, held)

    async def fetch(
        self, client: str | None, held: HeldBytes, pictures: Sequence[PictureUrl]
    ) -> list[Picture]:
        """Return the pictures of URLs, each of which is asked for once. Counts their bytes in `held`.

        Raises `InvalidRequest`, and the errors of `HeldBytes.reserve`.
        """
        by_url = {each.url: each for each in reversed(pictures)}  # the first is the one that errors name
        tasks = [asyncio.ensure_future(self._fetch_one(client, held, each)) for each in by_url.values()]
        try:
            found = dict(zip(by_url, await asyncio.gather(*tasks), strict=True))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [found[each.url] for each in pictures]

    async def _fetch_one(self, client: str | None, held: HeldBytes, picture: PictureUrl) -> Picture:
        seconds = self._limits.seconds
        async with self._places.hold(client):
            try:
                async with asyncio.timeout(seconds):
                    return Picture(await self._follow(picture.url, held))
            except TimeoutError:
                raise refuse_url(picture, f"takes more than {seconds:g} seconds to fetch") from None
            except UnusableUrl as error:
                raise refuse_url(picture, error) from None

    async def _follow(self, text: str, held: HeldBytes) -> bytes:
        url = self._hosts.require(WebUrl.read(text))
        for _ in range(self._limits.redirects + 1):
            found = await self._ask(url, held)
            if isinstance(found, bytes):
                return found
            url = self._hosts.require(found)
        raise UnusableUrl(f"leads through more than {self._limits.redirects} redirects")

    async def _ask(self, url: WebUrl, held: HeldBytes) -> bytes | WebUrl:
        """Return the content of a URL, or where it leads. Raises `UnusableUrl`."""
        try:
            async with self._open(url) as response:
                if response.status in _REDIRECTS:
                    location = _header(response, b"location")
                    return url.follow(location.decode("ascii", errors="replace"))
                if response.status != 200:
                    raise UnusableUrl(f"has a host that answers with status {response.status}")
                return await self._read(response, held)
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError):
            raise UnusableUrl("has a host that breaks off, or does not speak HTTP") from None

    @asynccontextmanager
    async def _open(self, url: WebUrl) -> AsyncIterator[httpcore2.Response]:
        asked = httpcore2.URL(
            scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode()
        )
        headers = [(b"Host", url.authority.encode()), *_HEADERS]
        async with (
            httpcore2.AsyncConnectionPool(self._tls, network_backend=self._network, retries=0) as pool,
            pool.stream("GET", asked, headers=headers) as response,
        ):
            yield response

    async def _read(self, response: httpcore2.Response, held: HeldBytes) -> bytes:
        """Read a body, and count its bytes in `held`. Raises `UnusableUrl`."""
        most = self._limits.bytes
        length = _check_head(response, most)
        stream = response.extensions["network_stream"]
        assert isinstance(stream, BoundedStream)
        stream.allow(most)
        reserved = length or _STEP_BYTES
        held.reserve(reserved)
        data, pieces = bytearray(), 0
        async for piece in response.aiter_stream():
            data += piece
            pieces += 1
            if len(data) > most:
                raise _too_large(most)
            if pieces > _FEW_PIECES + len(data) // _LEAST_PIECE_BYTES:
                raise UnusableUrl("has a host that sends too small pieces")
            if len(data) > reserved:
                held.reserve(_STEP_BYTES)
                reserved += _STEP_BYTES
        held.add(len(data) - reserved)
        return bytes(data)


def _check_head(response: httpcore2.Response, most: int) -> int:
    """Return the length that a response has, 0 if it does not tell. Raises `UnusableUrl`."""
    if _header(response, b"content-encoding").lower() not in (b"", b"identity"):
        raise UnusableUrl("has a host that compresses what it sends, although it was asked not to")
    media_type = _header(response, b"content-type").lower()
    if media_type and not media_type.startswith(_MEDIA_TYPES):
        raise UnusableUrl("is not of a picture: its media type is another")
    length = int(_header(response, b"content-length") or 0)  # h11 accepts only digits
    if length > most:
        raise _too_large(most)
    return length


def _header(response: httpcore2.Response, name: bytes) -> bytes:
    """Return the first header of a name, empty if there is none."""
    return next((value.strip() for key, value in response.headers if key.lower() == name), b"")


def _too_large(most: int) -> UnusableUrl:
    return UnusableUrl(f"has more than {most} bytes")


class _Places:
    """The places for fetches, which clients take in turns, by the time that they have had."""

    def __init__(self, places: int, clock: Clock) -> None:
        self._free, self._clock = places, clock
        # The result of a future is its turn.
        self._turns: ClientTurns[asyncio.Future[Any]] = ClientTurns(places, _EXPECTED_S, _LONG_S)

    @asynccontextmanager
    async def hold(self, client: str | None) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._turns.add(client, asked)
        self._fill()
        began = self._clock()
        try:
            await asked
            began = self._clock()
            yield
        finally:
            if asked.done() and not asked.cancelled():
                self._turns.end(asked.result(), self._clock() - began)
                self._free += 1
                self._fill()
            else:
                self._turns.remove(client, asked)

    def _fill(self) -> None:
        while self._free and (turn := self._turns.take()) is not None:
            if turn.work.cancelled():
                self._turns.end(turn, 0.0)
                continue
            self._free -= 1
            turn.work.set_result(turn)

"""An HTTP server whose responses a test chooses, on a loopback socket in a thread of the test's process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

# Takes the request's head and body; gives the bytes of the response, or `None` to close the connection.
Respond = Callable[[bytes, bytes], Awaitable[bytes | None]]


@dataclass(slots=True)
class ScriptedServer:
    """The address, and the requests that arrived."""

    url: str
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)


def response(body: bytes, *, status: str = "200 OK", headers: str = "") -> bytes:
    """A response with a length."""
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


@contextmanager
def scripted_server(respond: Respond) -> Iterator[ScriptedServer]:
    """Serve until the block ends."""
    found = ScriptedServer("")
    is_open = threading.Event()
    thread_loop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    talks: set[asyncio.Task[None] | None] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while await _exchange(reader, writer, respond, found):
                pass
        writer.transport.abort()

    async def serve() -> None:
        stop = asyncio.Event()
        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            thread_loop.append((asyncio.get_running_loop(), stop))
            is_open.set()
            await stop.wait()
            # A connection that was just accepted gets its transport, which a closed server would refuse it.
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in others & talks:
                    task.cancel()
                await asyncio.wait(others)
            server.close()
            await asyncio.sleep(0)  # the transports of the last ones close

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    is_open.wait()
    try:
        yield found
    finally:
        loop, stop = thread_loop[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, respond: Respond, found: ScriptedServer
) -> bool:
    """Answer one request; `False` if the connection is to be closed then."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    body = await reader.readexactly(int(lengths[0][15:])) if lengths else b""
    found.requests.append((head, body))
    answer = await respond(head, body)
    if answer is None:
        return False
    writer.write(answer)
    await writer.drain()
    return b"connection: close" not in answer

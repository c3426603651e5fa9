"""The sending side of a connection, apart from requests."""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from vecmill_server.http1.client_output import ClientOutput


async def test_a_lost_connection_needs_no_reset() -> None:
    """An application can fail, or be cancelled, after its client has left."""
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[ClientOutput] = loop.create_future()

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._output = ClientOutput(transport, FlowControl(transport), loop, 1.0)

        def connection_lost(self, exc: Exception | None) -> None:
            self._output.close()
            lost.set_result(self._output)

    async with await loop.create_server(Connection, "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.close()
        await writer.wait_closed()
        (await lost).abort()

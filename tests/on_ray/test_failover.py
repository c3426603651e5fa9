"""The request of a lost replica is sent to another one: without Ray, with replicas that follow a script."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from vecmill_ray.serving.forwarding import (
    MOST_SENDS,
    Failover,
    ForwardedResponse,
    with_heartbeats,
)
from vecmill_ray.serving.ray_settings import RaySettings
from vecmill_server.base.errors import ModelUnavailable

ANSWER = ForwardedResponse(200, [], b"rows")
BEAT = None
SILENCE_S = 0.02


class Died(Exception):
    """The process of a replica has ended."""


class Replica:
    """What a replica does with a request: its items in order, then silence, or its death."""

    def __init__(self, *script: ForwardedResponse | type[Died] | None) -> None:
        self._script = list(script)
        self.is_cancelled = False

    async def __anext__(self) -> ForwardedResponse | None:
        if not self._script:
            await asyncio.get_running_loop().create_future()
        item = self._script.pop(0)
        if isinstance(item, type):
            raise item
        return item

    def cancel(self) -> None:
        self.is_cancelled = True


def sender(replicas: Sequence[Replica]) -> Callable[[], Replica]:
    left = iter(replicas)
    return lambda: next(left)


async def ask(*replicas: Replica, limit_s: float = 30.0) -> ForwardedResponse:
    return await Failover((Died,), SILENCE_S).ask(sender(replicas), "docs", limit_s)


@pytest.mark.parametrize("lost", [(), (BEAT,), (BEAT, BEAT), (Died,), (BEAT, Died)], ids=str)
async def test_a_request_of_a_lost_replica_is_answered_by_another_one(
    lost: tuple[type[Died] | None, ...],
) -> None:
    first = Replica(*lost)
    assert await ask(first, Replica(BEAT, ANSWER)) == ANSWER
    assert first.is_cancelled is (Died not in lost)  # so that a replica that comes back computes nothing


async def test_a_replica_that_lives_is_given_all_the_time_that_it_needs() -> None:
    # Each heartbeat starts the wait again, so the limit on waiting for a replica has no effect.
    assert await ask(Replica(*[BEAT] * 1000, ANSWER), limit_s=SILENCE_S) == ANSWER


async def test_a_request_that_ends_processes_ends_two_of_them_at_most() -> None:
    with pytest.raises(ModelUnavailable, match="No replica of the model `docs` has answered"):
        await ask(Replica(Died), Replica(Died))


async def test_replicas_that_fall_silent_one_after_the_other_are_an_error() -> None:
    silent = [Replica(BEAT) for _ in range(MOST_SENDS)]
    with pytest.raises(ModelUnavailable, match="No replica of the model `docs` has answered"):
        await ask(*silent)
    assert all(replica.is_cancelled for replica in silent)


async def test_the_wait_for_a_replica_has_a_limit() -> None:
    waiting = [Replica() for _ in range(MOST_SENDS)]
    with pytest.raises(ModelUnavailable, match=r"`docs` has had no replica for 0\.01 seconds"):
        await ask(*waiting, limit_s=0.01)
    assert waiting[0].is_cancelled


async def test_the_last_attempt_waits_until_there_is_a_replica() -> None:
    class Late(Replica):
        async def __anext__(self) -> ForwardedResponse | None:
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=3 * SILENCE_S)
            return ANSWER

    assert await ask(*(Replica() for _ in range(MOST_SENDS - 1)), Late()) == ANSWER


async def test_a_client_that_leaves_ends_the_request_at_the_replica() -> None:
    replica = Replica(BEAT)
    asking = asyncio.create_task(Failover((Died,)).ask(sender([replica]), "docs", 30.0))
    await asyncio.wait({asking}, timeout=0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert replica.is_cancelled


async def test_a_replica_sends_heartbeats_while_it_computes() -> None:
    loop = asyncio.get_running_loop()
    computed: asyncio.Future[ForwardedResponse] = loop.create_future()

    async def compute() -> ForwardedResponse:
        return await computed

    items = with_heartbeats(compute(), period_s=0.001)
    assert [await anext(items) for _ in range(3)] == [None] * 3
    computed.set_result(ANSWER)
    assert [item async for item in items][-1] == ANSWER


async def test_a_request_that_the_router_gives_up_is_cancelled_in_the_replica() -> None:
    never: asyncio.Future[ForwardedResponse] = asyncio.get_running_loop().create_future()

    async def compute() -> ForwardedResponse:
        return await never

    items = with_heartbeats(compute(), period_s=0.001)
    assert await anext(items) is None
    await items.aclose()
    await asyncio.wait({never}, timeout=1)
    assert never.cancelled()


@pytest.mark.parametrize(
    ("settings", "alive", "routers"),
    [
        (RaySettings(), 1, 1),
        (RaySettings(), 5, 5),
        (RaySettings(nodes=4), 1, 4),  # the others have not started yet
        (RaySettings(nodes=1), 3, 3),
        (RaySettings(routers=2), 5, 2),
    ],
)
def test_each_node_has_a_router(settings: RaySettings, alive: int, routers: int) -> None:
    assert settings.count_routers(alive) == routers

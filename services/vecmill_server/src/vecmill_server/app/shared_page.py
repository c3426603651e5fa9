"""A page that is rendered once for all who ask for it at about the same time.

How it works. The first request starts a rendering. Requests that come while it runs, or while its page is
young enough, get the same page. Nothing runs while nobody asks.

Rules:
1. At most one rendering of a page runs. A request that comes when the one under way is too old waits for the
   next one.
2. Everybody who waits for a rendering that fails gets its error. The next request starts another.
3. A request that is cancelled does not cancel the rendering, because others may wait for it.
4. One reader goes on in each pass of the event loop, however many wait. To write a large page a hundred times
   in one pass would keep everything else waiting.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from vecmill.values.clock import Clock, monotonic
from vecmill.values.shared_task import share_task

Render = Callable[[], Coroutine[Any, Any, bytes]]


@dataclass(frozen=True, slots=True)
class _Rendering:
    began_at: float
    page: asyncio.Task[bytes]

    @property
    def has_failed(self) -> bool:
        page = self.page
        return page.done() and (page.cancelled() or page.exception() is not None)


class SharedPage:
    """The page that `render` returns, at most `longest_age_s` old when it is asked for.

    The age counts from the moment at which `render` is called. Used from one event loop.
    """

    def __init__(self, render: Render, longest_age_s: float, clock: Clock = monotonic) -> None:
        self._render = render
        self._longest_age_s = longest_age_s
        self._clock = clock
        self._latest: _Rendering | None = None
        self._turn = asyncio.Lock()

    async def read(self) -> bytes:
        """Return the page. Raises what `render` raises."""
        page = await self._find()
        async with self._turn:
            await asyncio.sleep(0)
        return page

    async def _find(self) -> bytes:
        asked_at = self._clock()
        while (latest := self._latest) is not None and not latest.has_failed:
            if asked_at - latest.began_at < self._longest_age_s:
                return await share_task(latest.page)
            if latest.page.done():
                break
            await asyncio.wait((latest.page,))
        return await share_task(self._begin())

    def _begin(self) -> asyncio.Task[bytes]:
        page = asyncio.create_task(self._render())
        self._latest = _Rendering(self._clock(), page)
        return page

"""The synchronous interface, for notebooks and scripts.

    with SyncMill() as mill:
        embeddings = mill.embed(["a text", "another"])

A `SyncMill` runs its own event loop in its own thread. So it also works where an event loop already runs, as
in a notebook, and may be called from any thread.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from vecmill.config import MillConfig
from vecmill.errors import NotReady, mill_closed
from vecmill.mill import Mill
from vecmill.models import ModelDescription
from vecmill.models.space import ModelIdentity
from vecmill.values.engine_plan import EngineInfo

P = ParamSpec("P")
T = TypeVar("T")


def _synchronous(
    method: Callable[Concatenate[Mill, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncMill", P], T]:
    """Return a method of `SyncMill` that waits for the same method of its mill."""

    @functools.wraps(method)
    def call(self: "SyncMill", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self._mill, *args, **kwargs))

    return call


class SyncMill:
    """A `Mill` whose methods block. The constructor loads the model.

    Call `close` at the end, or use `with`.
    """

    def __init__(
        self, model: str | Path | ModelDescription | None = None, config: MillConfig | None = None
    ) -> None:
        """Load the model. Raises `SetupError`."""
        self._mill = Mill(model, config)
        self._loop = asyncio.new_event_loop()
        # No call begins after `close` waits for those that have begun. A signal handler may close within one.
        self._lock = threading.RLock()
        self._is_closing = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="vecmill-loop", daemon=True)
        self._thread.start()
        try:
            self._wait(self._mill.start())
        except BaseException:
            self.close()
            raise

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts of the model by name, which `prompt_name` chooses from."""
        return self._mill.prompts

    @property
    def description(self) -> ModelDescription:
        """The description of the model."""
        return self._mill.description

    @property
    def info(self) -> EngineInfo:
        """The properties of the engine."""
        return self._mill.info

    @property
    def identity(self) -> ModelIdentity:
        """The space of the model's vectors, and how they are computed."""
        return self._mill.identity

    run = _synchronous(Mill.run)
    embed = _synchronous(Mill.embed)
    rerank = _synchronous(Mill.rerank)
    classify = _synchronous(Mill.classify)

    def close(self) -> None:
        """Release all resources. May be called twice, also by several threads."""
        if self._is_forked:
            return
        with self._lock:
            is_closing, self._is_closing = self._is_closing, True
        if is_closing:
            self._thread.join()
            return
        try:
            _wait_for(asyncio.run_coroutine_threadsafe(self._finish(), self._loop))
        except BaseException:
            self._is_closing = False  # it was interrupted: a later call goes on
            raise
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _is_forked(self) -> bool:
        """Whether the loop has no thread: in a child of the process that made the mill, or after `close`."""
        return not self._thread.is_alive()

    async def _finish(self) -> None:
        """Close the mill, and let the calls of other threads end, with `ShuttingDown` if they wait."""
        await self._mill.close()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*calls, return_exceptions=True)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_forked and not self._is_closing:
            work.close()
            raise NotReady("The mill was made before this process was forked. Make one in each process.")
        with self._lock:
            if self._is_closing:
                work.close()
                raise mill_closed()
            try:
                call = asyncio.run_coroutine_threadsafe(work, self._loop)
            except RuntimeError:  # a signal handler of this thread has closed it since
                work.close()
                raise mill_closed() from None
        return _wait_for(call)


def _wait_for(call: Future[T]) -> T:
    try:
        return call.result()
    except BaseException:
        call.cancel()  # unless it has ended: an interrupted call needs no answer
        raise

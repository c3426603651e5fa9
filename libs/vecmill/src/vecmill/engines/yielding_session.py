"""A session for long texts, whose threads give way to those of other calls.

A long text uses all cores, and a short text that arrives meanwhile shares one of them with it
(`batching.scheduler`). The operating system would give each of the two half of the core. A session of this
module has a lower priority, so that the short text gets almost all of it, and the long text what is left.

Linux gives each thread a priority of its own. A new thread inherits it from the thread that starts it, and
only a privileged process may raise it again. So one thread of low priority opens the session, whose threads
inherit it, and runs all its calls. On other systems the thread has the priority of the process.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecmill.engines.session_calls import Shrinking

# Linux gives a thread of this value a tenth of a core that it shares with a usual thread.
NICENESS = 10

_Task = tuple[Callable[[], Any], Future[Any]]


class YieldingSession:
    """The session that `open_session` opens, in a thread of low priority. One call runs at a time.

    The thread ends when the object is no longer used.
    """

    def __init__(self, open_session: "Callable[[], Shrinking]") -> None:
        """Open the session. Raises any error of `open_session`."""
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        # A daemon, so that a call that hangs does not keep the process.
        threading.Thread(target=_work, args=(self._tasks,), name="vecmill-long-texts", daemon=True).start()
        self._session = self._do(open_session)

    def run(self, names: list[str] | None, feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        """Compute the outputs with these `names`, by default all outputs, and wait for them."""
        outputs: list[Any] = self._do(lambda: self._session.run(names, feed, run_options))
        return outputs

    def _do(self, task: Callable[[], Any]) -> Any:
        future: Future[Any] = Future()
        self._tasks.put((task, future))
        return future.result()

    def __del__(self) -> None:
        self._tasks.put(None)


def _work(tasks: "SimpleQueue[_Task | None]") -> None:
    _lower_priority()
    while (entry := tasks.get()) is not None:
        task, future = entry
        try:
            future.set_result(task())
        except BaseException as error:  # the caller gets it, and the thread goes on
            future.set_exception(error)
        del entry, task, future  # they hold the arrays of a call


def _lower_priority() -> None:
    """Lower the priority of this thread, where threads have priorities of their own."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it; the session then works as any other
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)

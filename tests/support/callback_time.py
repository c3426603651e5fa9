"""The processor time that callbacks of an asyncio event loop take of the loop's thread.

A callback that waits for a processor, or for the interpreter lock, takes no processor time, so a busy machine
does not disturb the measurement. Only loops of asyncio itself can be measured, not those of uvloop.
"""

import asyncio
import gc
import threading
import time
from asyncio import events
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from unittest.mock import patch


@dataclass(slots=True)
class LongestCallback:
    """The longest callback so far: its time in seconds, and its name."""

    took_s: float = 0.0
    name: str = ""


@asynccontextmanager
async def longest_callback() -> AsyncIterator[LongestCallback]:
    """Measure every callback of the loop in this thread until the block ends.

    Objects from before are not collected any more: their number is that of the process of the tests, and
    looking through all of them takes longer than most measurements.
    """
    found, thread, run = LongestCallback(), threading.get_ident(), events.Handle._run

    def measure(handle: events.Handle) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        began = time.thread_time()
        run(handle)
        took_s = time.thread_time() - began
        if took_s > found.took_s:
            found.took_s, found.name = took_s, repr(handle)

    gc.collect()
    gc.freeze()
    with patch.object(events.Handle, "_run", measure):
        yield found
        await asyncio.sleep(0)  # ends the callback that runs the end of the block

"""How many cores a call on the processor takes.

torch keeps that number for each calling thread (it is OpenMP's), so calls of different widths go on side by
side. A thread that is new to torch takes over the number of the last thread that set one, at its first
call; asking for the number makes that happen before it is set.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch compute on `count` threads in the calling one, and afterwards on as many as before."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

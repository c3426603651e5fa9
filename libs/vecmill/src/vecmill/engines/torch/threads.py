"""The number of cores of a torch call on the CPU.

OpenMP keeps this number for each calling thread, so calls of different widths can run at once. At its first
torch call a new thread inherits the number that another thread set last. So the number is read before it is
set, which triggers this inheritance early.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Have the calling thread's torch calls use `count` threads; restore the number afterwards."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

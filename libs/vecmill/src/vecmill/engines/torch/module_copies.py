"""Copies of a torch module, each for one call at a time, which is computed as by a module just loaded.

Some classes keep values of a call in their modules: BigBird's attention is full for good after a short text,
Funnel's modules have the length of the text. So a call has a copy for itself, and afterwards the copy is put
back into the state that it had. Copies share the parameters, which are almost all of the memory.
"""

import copy
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

logger = logging.getLogger(__name__)

_SMALL_BUFFER = 1 << 16


class ModuleCopies:
    """Copies of `module`, made when as many calls run at once.

    `module` itself computes the first call. If that changes parameters, as RWKV divides its weights once, the
    state after it counts as the first. A module that cannot be copied computes all calls, one at a time.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._original = _RestoredModule(module)
        self._original_lock = threading.Lock()
        self._has_run = False
        self._is_copyable = True
        self._free: list[_RestoredModule] = []

    @contextmanager
    def take(self) -> Iterator[Any]:
        """Take a module for one call, which puts it back into its first state."""
        taken = self._find_copy()
        if taken is not None:
            with taken.restored():
                yield taken.module
            self._free.append(taken)
            return
        with self._original_lock, self._original.restored():
            yield self._original.module
        self._has_run = True

    def _find_copy(self) -> "_RestoredModule | None":
        """Return a copy that no other call has; `None` if the original has to compute the call."""
        try:
            return self._free.pop()  # one step for the interpreter, so no two threads get the same
        except IndexError:
            pass
        if not self._has_run or not self._is_copyable:
            return None
        with self._original_lock:
            try:
                return _RestoredModule(_copy_module(self._original.module))
            except Exception as error:  # of a class of a model's own
                logger.debug("a module cannot be copied", exc_info=error)
                self._is_copyable = False
        return None


class _RestoredModule:
    """A module, and the state that it had: the attributes of all its parts and of their settings."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._state = [(values, dict(values)) for values in _list_attributes(module)]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put the module back into its first state at the end, unless its parameters have changed.

        Other values of tensors stay as they are: a class that writes them computes them for each call.
        """
        before = _count_changes(self.module)
        try:
            yield
        finally:
            if _count_changes(self.module) == before:
                for values, first in self._state:
                    if values or first:  # most modules have no hooks
                        values.clear()
                        values.update(first)


def _copy_module(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy with the same parameters and large buffers, and with small buffers of its own.

    Classes write to small buffers, such as rotary frequencies; large ones are masks of all pairs of tokens.
    """
    large = [buffer for buffer in module.buffers() if buffer.numel() > _SMALL_BUFFER]
    return copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *large)})


def _count_changes(module: torch.nn.Module) -> int:
    # A parameter that was made in a call has no count.
    return sum(parameter._version for parameter in module.parameters() if not parameter.is_inference())


def _list_attributes(module: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """Yield the dictionaries of a module: attributes, and parts, parameters, buffers and hooks among them."""
    settings = {}
    for part in module.modules():
        yield part.__dict__
        yield from (values for values in part.__dict__.values() if isinstance(values, dict))
        if hasattr(getattr(part, "config", None), "__dict__"):
            settings[id(part.config)] = vars(part.config)
    yield from settings.values()

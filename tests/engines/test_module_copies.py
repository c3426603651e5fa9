"""What a call leaves in a module is not there for the next call, nor for one beside it."""

import threading
from typing import Any

import torch

from vecmill.engines.torch.module_copies import ModuleCopies


class Forgetful(torch.nn.Module):  # type: ignore[misc]
    """Keeps what it is called with: in attributes, in a buffer, in a part, and in its settings."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.config = Settings()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(1))
        self.part = torch.nn.Identity()
        self.longest = 0

    def forward(self, length: int) -> tuple[int, int, str, int]:
        found = (self.longest, int(self.seen), type(self.part).__name__, self.config.longest)
        self.longest = self.config.longest = length
        self.seen = torch.tensor([float(length)])
        self.part = torch.nn.ReLU()
        return found


class Settings:
    longest = 0


FRESH = (0, 0, "Identity", 0)


def call(copies: ModuleCopies, *arguments: Any) -> Any:
    with copies.take() as module:
        return module(*arguments)


def test_each_call_finds_the_module_as_it_was_loaded() -> None:
    copies = ModuleCopies(Forgetful())
    assert [call(copies, length) for length in (5, 9, 2)] == [FRESH] * 3


def test_calls_at_once_have_modules_of_their_own_with_one_set_of_parameters() -> None:
    copies = ModuleCopies(Forgetful())
    call(copies, 1)
    with copies.take() as one, copies.take() as other:
        one(7)
        assert other(8) == FRESH
        assert one is not other
        assert one.weight is other.weight
        assert one.seen is not other.seen


def test_a_call_that_fails_leaves_nothing_behind() -> None:
    copies = ModuleCopies(Forgetful())
    for _ in range(3):
        try:
            with copies.take() as module:
                module(4)
                raise RuntimeError("the text is too long")
        except RuntimeError:
            pass
    assert call(copies, 1) == FRESH


class Hooked(torch.nn.Module):  # type: ignore[misc]
    """Adds a hook in its first call, as classes of transformers that collect the states of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Identity()
        self.is_hooked = False

    def forward(self) -> int:
        if not self.is_hooked:
            self.part.register_forward_hook(lambda *_: None)
            self.is_hooked = True
        return len(self.part._forward_hooks)


def test_hooks_do_not_become_more_with_each_call() -> None:
    copies = ModuleCopies(Hooked())
    assert [call(copies) for _ in range(4)] == [1] * 4


class Rescaled(torch.nn.Module):  # type: ignore[misc]
    """Halves its weights in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.is_halved = False

    def forward(self) -> float:
        if not self.is_halved:
            with torch.no_grad():
                self.weight.div_(2)
            self.is_halved = True
        return float(self.weight.detach())


def test_weights_that_the_first_call_changes_are_changed_once() -> None:
    copies = ModuleCopies(Rescaled())
    assert [call(copies) for _ in range(3)] == [0.5] * 3
    with copies.take() as one, copies.take() as other, torch.inference_mode():
        assert (one(), other()) == (0.5, 0.5)


class Locked(Forgetful):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_calls_of_a_module_that_cannot_be_copied_take_turns() -> None:
    copies = ModuleCopies(Locked())
    call(copies, 1)
    found = []
    with copies.take() as module:
        module(3)
        other = threading.Thread(target=lambda: found.append(call(copies, 5)))
        other.start()
        assert not found
    other.join()
    assert found == [FRESH]

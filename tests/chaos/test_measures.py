"""The measures of the hostile clients find what they look for, and nothing else."""

import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable
from subprocess import PIPE, Popen

import pytest

from chaos.comparison import Comparison, compare
from chaos.hostile_clients import PeakMemory, send_and_wait
from support.livez_gap import idle_process, livez_gap

PAIRS = 400


def hold_interpreter(seconds: float) -> None:
    """Compute without letting another thread of this process run."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(10 * seconds)
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
    finally:
        sys.setswitchinterval(usual)


def test_a_gap_of_the_server_is_found_while_the_test_itself_is_busy() -> None:
    with idle_process() as (server, port), livez_gap(port) as gap:
        server.send_signal(signal.SIGSTOP)
        hold_interpreter(0.5)
        server.send_signal(signal.SIGCONT)
    assert gap.server_s > 0.4
    assert gap.beyond_control_s > 0.25


ALLOCATING = """
import os
input()
block = bytearray(os.urandom(64)) * (1024 * 1024)
del block
print("freed", flush=True)
input()
"""


@pytest.mark.linux
def test_a_short_peak_of_memory_is_found() -> None:
    # A process of its own: this one may free the models of an earlier test meanwhile, and hide the peak.
    with Popen([sys.executable, "-c", ALLOCATING], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        memory = PeakMemory(process.pid)
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "freed\n"
        grown_mib = memory.grown_mib()
        print(file=process.stdin, flush=True)
    assert grown_mib > 60


def latencies(seed: int, rule: Callable[[int, random.Random], float]) -> list[float]:
    """Latencies with the noise of a busy machine: usually 3 ms, sometimes ten times as long."""
    dice = random.Random(seed)
    noise = (0.003 * dice.lognormvariate(0, 0.3) * (10 if dice.random() < 0.02 else 1) for _ in range(PAIRS))
    return [usual + rule(place, dice) for place, usual in enumerate(noise)]


def compared(seed: int, rule: Callable[[int, random.Random], float]) -> Comparison:
    return compare(latencies(2 * seed, rule), latencies(2 * seed + 1, lambda *_: 0.0))


def test_noise_is_no_rise() -> None:
    found = [compared(seed, lambda *_: 0.0) for seed in range(8)]
    assert not any(each.is_slower for each in found)
    assert any(each.slowest.ratio > 1.1 for each in found), "the noise is too small to be a proof"


@pytest.mark.parametrize(
    "rule",
    [
        lambda place, dice: 0.003,  # each request takes twice as long
        lambda place, dice: 0.030 if dice.random() < 0.08 else 0.0,  # some wait for a client that is slow
        lambda place, dice: 0.040 if place % 20 == 0 else 0.0,
    ],
    ids=["all", "some", "regularly"],
)
def test_a_burden_is_a_rise(rule: Callable[[int, random.Random], float]) -> None:
    assert all(compared(seed, rule).is_slower for seed in range(4))


async def test_a_connection_that_is_closed_without_an_answer_keeps_nobody_waiting() -> None:
    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    answered = asyncio.Event()
    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        end = await send_and_wait(port, b"x", on_first=answered.set)
    assert end.status == 0
    assert answered.is_set()

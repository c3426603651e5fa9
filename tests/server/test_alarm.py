"""A sleep ends at its time, or when a thread or a signal handler rings."""

import asyncio
import os
import signal
import threading
import time

from vecmill_server.process.alarm import Alarm

LONG_S = 60.0


async def test_a_sleep_that_nobody_ends_lasts_its_time() -> None:
    began = time.monotonic()
    await Alarm(asyncio.get_running_loop()).sleep(0.05)
    assert time.monotonic() - began >= 0.045


async def test_a_thread_and_a_signal_handler_end_the_sleep() -> None:
    alarm = Alarm(asyncio.get_running_loop())
    before = signal.signal(signal.SIGUSR1, lambda number, frame: alarm.ring())
    try:
        for ring in (alarm.ring, lambda: os.kill(os.getpid(), signal.SIGUSR1)):
            timer = threading.Timer(0.05, ring)
            timer.start()
            async with asyncio.timeout(LONG_S / 2):
                await alarm.sleep(LONG_S)
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_who_rings_before_the_sleep_ends_this_one_and_not_the_one_after() -> None:
    alarm = Alarm(asyncio.get_running_loop())
    alarm.ring()
    async with asyncio.timeout(LONG_S / 2):
        await alarm.sleep(LONG_S)
    began = time.monotonic()
    await alarm.sleep(0.05)
    assert time.monotonic() - began >= 0.045


def test_ringing_after_the_end_of_the_loop_does_nothing() -> None:
    async def make() -> Alarm:
        return Alarm(asyncio.get_running_loop())

    asyncio.run(make()).ring()

"""The synchronous face has the calls of a mill, in any thread, and leaves nothing behind."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pytest

from support.failing_library import POISON, library_panics
from vecmill import Mill, MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import hash_row
from vecmill.errors import InvalidConfig, ShuttingDown, TokenizationFailed
from vecmill.models import ModelDescription, locate_model

HELLO = hash_row(np.array([101, 7592, 102]), 384)


@pytest.fixture(scope="module")
def description() -> ModelDescription:
    return replace(describe_model(locate_model()), prompts={"query": "query: "})


@pytest.mark.parametrize("name", ["run", "embed", "rerank", "classify"])
def test_the_synchronous_face_has_the_same_parameters(name: str) -> None:
    assert signature(getattr(SyncMill, name)) == signature(getattr(Mill, name))


def test_the_synchronous_face_raises_the_failure_of_a_library(description: ModelDescription) -> None:
    with library_panics(), SyncMill(description, MillConfig(engine="fake")) as mill:
        for _ in range(2):
            with pytest.raises(TokenizationFailed, match="The tokenizer failed for this text"):
                mill.embed(["hello", POISON])
            np.testing.assert_array_equal(mill.embed("hello")[0], HELLO)


async def test_the_synchronous_face_works_where_a_loop_runs_already(description: ModelDescription) -> None:
    with SyncMill(description, MillConfig(engine="fake")) as mill:
        np.testing.assert_array_equal(mill.embed("hello")[0], HELLO)
        assert mill.rerank("hello", ["query: hello"]).scores == pytest.approx([1.0])
        assert mill.prompts == {"query": "query: "}
    mill.close()


FORKED = """
import os
from vecmill import MillConfig, NotReady, SyncMill
with SyncMill(config=MillConfig(engine="fake")) as mill:
    child = os.fork()
    if child == 0:
        try:
            mill.embed("hello")
        except NotReady as error:
            print(error.message, flush=True)
        mill.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert mill.embed("hello").shape == (1, 384)
"""


def test_a_child_of_a_process_with_a_synchronous_mill_is_told_so() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "The mill was made before this process was forked. Make one in each process.\n"


def test_a_synchronous_face_that_cannot_start_leaves_no_thread_behind(description: ModelDescription) -> None:
    before = threading.enumerate()
    with pytest.raises(InvalidConfig):
        SyncMill(description, MillConfig(engine="there is none"))
    assert "vecmill-loop" not in [thread.name for thread in threading.enumerate() if thread not in before]


def test_a_call_that_begins_when_all_others_have_ended_is_refused(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = SyncMill(description, MillConfig(engine="fake"))
    loop, post = mill._loop, mill._loop.call_soon_threadsafe
    refused, is_posted = list[ShuttingDown](), threading.Event()

    def ask() -> None:
        try:
            mill.embed("hello")
        except ShuttingDown as error:
            refused.append(error)
        is_posted.set()

    caller = threading.Thread(target=ask, daemon=True)

    def call_before_the_stop(callback: Any, *arguments: Any, **options: Any) -> Any:
        if callback == loop.stop:
            caller.start()
            assert is_posted.wait(60)
        posted = post(callback, *arguments, **options)
        if threading.current_thread() is caller:
            is_posted.set()
        return posted

    monkeypatch.setattr(loop, "call_soon_threadsafe", call_before_the_stop)
    mill.close()
    caller.join(60)
    assert len(refused) == 1


def test_a_signal_handler_may_close_within_a_call(
    description: ModelDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = SyncMill(description, MillConfig(engine="fake"))
    post, errors = asyncio.run_coroutine_threadsafe, list[BaseException]()

    def close_before(work: Any, loop: Any) -> Any:
        monkeypatch.undo()
        mill.close()  # as a handler would, between two instructions of the call
        return post(work, loop)

    def ask() -> None:
        try:
            mill.embed("hello")
        except BaseException as error:
            errors.append(error)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", close_before)
    caller = threading.Thread(target=ask, daemon=True)
    caller.start()
    caller.join(60)
    assert [type(error) for error in errors] == [ShuttingDown]

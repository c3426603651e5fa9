"""Mistakes of a program get an error that says what to do, not one of Python."""

import asyncio
import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vecmill import (
    BatchConfig,
    Chunking,
    Embed,
    InputConfig,
    InputTooLong,
    InvalidConfig,
    InvalidRequest,
    Mill,
    MillConfig,
    NotReady,
    QueueConfig,
    QueueFull,
    Rerank,
    SetupError,
    ShuttingDown,
    SyncMill,
    TextOptions,
    Truncation,
    VecmillError,
    quantize,
)
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import FakeEngine
from vecmill.models import locate_model

WRONG: dict[str, tuple[Any, str]] = {
    "a string for a tuple": (Embed("eight letters"), "inputs"),  # type: ignore[arg-type]
    "a mapping": (Embed({"a": 1}), "inputs"),  # type: ignore[arg-type]
    "a number for a text": (Embed(("a", 1)), "inputs[1]"),  # type: ignore[arg-type]
    "bytes for a text": (Rerank(("a",), (b"b",)), "documents[0]"),  # type: ignore[arg-type]
    "nothing for a text": (Embed((None,)), "inputs[0]"),  # type: ignore[arg-type]
    "an unknown priority": (Embed(("a",), priority="urgent"), "priority"),  # type: ignore[arg-type]
    "a mode for a chunking": (Embed(("a",), chunking="chunks"), "chunking"),  # type: ignore[arg-type]
    "no time": (Embed(("a",), timeout_s=0), "timeout_s"),
    "less than no time": (Embed(("a",), timeout_s=-1), "timeout_s"),
    "no number of seconds": (Embed(("a",), timeout_s=float("nan")), "timeout_s"),
    "a text for seconds": (Embed(("a",), timeout_s="x"), "timeout_s"),  # type: ignore[arg-type]
    "a list for a text": (Embed((["a"],)), "inputs[0]"),  # type: ignore[arg-type]
    "a pair for a text": (Embed(("a", ("b", "c"))), "inputs[1]"),  # type: ignore[arg-type]
    "an iterator": (Embed(iter("ab")), "inputs"),  # type: ignore[arg-type]
    "a text for a number": (Embed(("a",), dimensions="8"), "dimensions"),  # type: ignore[arg-type]
    "a truth for a number": (Embed(("a",), dimensions=True), "dimensions"),
    "a number for a name": (Embed(("a",), client=7), "client"),  # type: ignore[arg-type]
    "one type": (Embed(("a",), dtypes="int8"), "dtypes"),  # type: ignore[arg-type]
    "a name for options": (Embed(("a",), options="query"), "options"),  # type: ignore[arg-type]
    "a truth for options": (
        Embed(("a",), options=TextOptions(truncation=True)),  # type: ignore[arg-type]
        "options.truncation",
    ),
    "a text for a truth": (
        Embed(("a",), options=TextOptions(truncation=Truncation("no"))),  # type: ignore[arg-type]
        "options.truncation.is_allowed",
    ),
    "a number for a prompt": (Embed(("a",), options=TextOptions(7)), "options.prompt_name"),  # type: ignore[arg-type]
}


def make_mill() -> Mill:
    return Mill(describe_model(locate_model()), engine=FakeEngine(dim=384))


async def test_wrong_types_are_named_by_field(subtests: pytest.Subtests) -> None:
    async with make_mill() as mill:
        for name, (request, field) in WRONG.items():
            with subtests.test(msg=name):
                with pytest.raises(InvalidRequest) as caught:
                    await mill.run(request)
                assert caught.value.field == field
                assert f"`{field}`" in caught.value.message
        with pytest.raises(InvalidRequest, match="no str"):
            await mill.run("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="`documents` is of type str"):
            await mill.rerank("query", "one document")
        for wrong in (5, None, b"bytes", {"a": 1}):
            with pytest.raises(InvalidRequest, match=r"`texts` is .* It must be a text, or a list"):
                await mill.embed(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="`inputs` is of type str"):
            await mill.classify("a text, not its letters")
        assert (await mill.embed("what is right goes on")).shape == (1, 384)
        of_numpy = Embed(("a",), np.int64(8), dtypes=["int8"], options=TextOptions(purpose="query"))  # type: ignore[arg-type]
        assert (await mill.run(of_numpy)).embeddings.shape == (1, 8)
        column = np.array(["a", "b", "c"])  # as a table of texts has it
        assert len((await mill.rerank("query", column)).scores) == 3  # type: ignore[arg-type]
        assert len((await mill.rerank("query", iter("abc"))).scores) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Mill, SyncMill])
@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ((MillConfig(),), r"first argument is the model.*config=MillConfig\(\.\.\.\)"),
        ((MillConfig,), "The model is of type type"),
        ((["owner/name"],), "The model is of type list. Give a directory, or a name"),
        ((None, {"precision": "int8"}), r"`config` is of type dict. Give a MillConfig, such as MillConfig\("),
        (("owner/name", "int8"), "`config` is of type str"),
    ],
)
def test_arguments_of_a_wrong_type_say_what_to_write(kind: Any, arguments: Any, advice: str) -> None:
    before = {*threading.enumerate()}
    with pytest.raises(InvalidConfig, match=advice):
        kind(*arguments)
    assert {*threading.enumerate()} <= before


@pytest.mark.parametrize(
    ("kind", "settings", "advice"),
    [
        (MillConfig, {"cores": "4"}, "cores is '4'; it must be a whole number, or None"),
        (MillConfig, {"cores": 2.5}, "cores is 2.5; it must be a whole"),
        (MillConfig, {"queue": 30}, "queue is 30; it must be a QueueConfig"),
        (MillConfig, {"precision": 8}, "precision is 8; it must be one of fp32, fp16,"),
        (QueueConfig, {"timeout_s": "30"}, "timeout_s is '30'; it must be a number"),
        (InputConfig, {"max_inputs": None}, "max_inputs is None; it must be a whole"),
        (BatchConfig, {"bulk_s": "x" * 500}, "bulk_s is '.{49}; it must be a number$"),
    ],
)
def test_settings_of_a_wrong_type_are_named(kind: Any, settings: dict[str, Any], advice: str) -> None:
    with pytest.raises(InvalidConfig, match=advice):
        kind(**settings)


async def test_a_mill_says_what_it_waits_for() -> None:
    mill = make_mill()
    with pytest.raises(NotReady, match="call `start`"):
        await mill.embed("a")
    async with mill:
        with pytest.raises(NotReady, match="another event loop"):
            await asyncio.to_thread(asyncio.run, mill.embed("a"))
    with pytest.raises(ShuttingDown):
        await mill.start()


def test_quantize_takes_names_and_says_where_ranges_are() -> None:
    rows = np.array([[0.5, -0.5] * 4], np.float32)
    assert quantize(rows, "ubinary").tolist() == [[0b10101010]]
    with pytest.raises(InvalidRequest, match="one of float"):
        quantize(rows, "int4")
    with pytest.raises(InvalidRequest, match=r"result\.ranges"):
        quantize(rows, "int8")


async def test_a_mill_says_why_it_is_not_loaded(tmp_path: Path) -> None:
    mill = Mill(tmp_path)
    for ask in (lambda: mill.info, lambda: mill.identity, lambda: mill.prompts):
        with pytest.raises(NotReady, match="Start the mill: use `async with`, or call `start`"):
            ask()
    with pytest.raises(SetupError):
        await mill.start()
    with pytest.raises(NotReady, match=r"The model was not loaded\. .* is not a model directory"):
        await mill.embed("a")
    with pytest.raises(NotReady, match="is not a model directory"):
        _ = mill.info
    await mill.close()
    with pytest.raises(ShuttingDown, match=r"does not start again\. Make a new one"):
        await mill.start()


@pytest.mark.parametrize(
    "error",
    [
        InputTooLong("`input[0]` is long.", token_count=9, max_tokens=8, where="`input[0]`", field="input"),
        QueueFull("Wait.", retry_after_s=0.5),
        InvalidRequest("`a` is wrong.", field="a"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_another_process_whole(error: VecmillError) -> None:
    """A copy is made as another process makes it: by what `__reduce__` says."""
    found = copy.copy(error)
    assert type(found) is type(error)
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))


def test_numbers_that_cut_nothing_and_ranges_of_other_embeddings_are_refused() -> None:
    with pytest.raises(
        InvalidRequest, match=r"`chunking\.tokens` is of type str\. It must be a whole number"
    ):
        Chunking("chunks", tokens="64")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"`ranges` has the shape \(2, 3\); embeddings of 4 dimensions"):
        quantize(np.zeros((1, 4), np.float32), "int8", np.zeros((2, 3), np.float32))


async def test_choices_that_do_not_exist_are_shown() -> None:
    async with Mill(engine=FakeEngine(dim=384)) as mill:
        with pytest.raises(InvalidRequest, match=r"`priority` is 'high'\. It must be one of interactive"):
            await mill.run(Embed(("a",), priority="high"))  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match=r"`dtypes` is 'int4'\. It must be one of float"):
            await mill.run(Embed(("a",), dtypes=("int4",)))  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match=r"max_tokens` is 0\. It must be at least 1"):
            await mill.run(Embed(("a",), options=TextOptions(truncation=Truncation(max_tokens=0))))
        with pytest.raises(InvalidRequest, match="a text, or a list or tuple of texts"):
            await mill.embed(5)  # type: ignore[arg-type]

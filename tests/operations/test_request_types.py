"""Mistakes of a program get an error that says what to do, not one of Python."""

import asyncio
from typing import Any

import numpy as np
import pytest

from vecmill import (
    Embed,
    InvalidRequest,
    Mill,
    NotReady,
    Rerank,
    ShuttingDown,
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
        assert (await mill.embed("what is right goes on")).shape == (1, 384)
        column = np.array(["a", "b", "c"])  # as a table of texts has it
        assert len((await mill.rerank("query", column)).scores) == 3  # type: ignore[arg-type]
        assert len((await mill.rerank("query", iter("abc"))).scores) == 3  # type: ignore[arg-type]


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

"""Parts are computed once, several at a time, and a text that cannot be embedded is named."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from vecmill.bulk import pipeline
from vecmill.bulk.embedder import EmbeddedTexts
from vecmill.bulk.picture_inputs import EmbedInput
from vecmill.bulk.pipeline import PARTS_AT_ONCE, embed_parts
from vecmill.bulk.records import PART_TEXTS, InputPart, Record, cut_parts
from vecmill.commands.embed.parts import PartStore
from vecmill.errors import (
    DeviceLost,
    InferenceFailed,
    InvalidCorpus,
    InvalidRequest,
    LaneLost,
    NonFiniteOutput,
    TokenizationFailed,
    VecmillError,
)
from vecmill.values.aliases import JsonValue

DIM = 2


class NumberEmbedder:
    """The row of a text is its number. Fails for the texts that it is told to."""

    call_texts = 10
    similarity = "cosine"
    dim = DIM
    dtype = np.dtype(np.float32)

    def __init__(self, failures: Mapping[str, VecmillError] | None = None) -> None:
        self.identity: Mapping[str, JsonValue] = {}
        self.seen: list[str] = []
        self._failures = failures or {}

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        texts = [one for one in inputs if isinstance(one, str)]
        self.seen += texts
        await asyncio.sleep(0)
        for text in texts:
            if text in self._failures:
                raise self._failures[text]
        return EmbeddedTexts(np.array([[float(text), 1] for text in texts], np.float32), 3 * len(texts))


class Tally:
    """Counts."""

    def __init__(self) -> None:
        self.texts_existing = self.texts_embedded = self.tokens = 0

    def add_existing(self, texts: int) -> None:
        self.texts_existing += texts

    def add_embedded(self, texts: int, tokens: int) -> None:
        self.texts_embedded += texts
        self.tokens += tokens


@pytest.fixture
def parts(tmp_path: Path) -> PartStore:
    return PartStore(tmp_path / "a.npy", tmp_path, DIM)


def some_parts(count: int) -> list[InputPart]:
    return list(cut_parts(Record(number + 1, (str(number),)) for number in range(count)))


def numbers(parts: PartStore, count: int) -> list[float]:
    found = [parts.read(part.number).embeddings for part in some_parts(count)]
    return [float(number) for number in np.concatenate(found)[:, 0]]


async def test_each_text_is_embedded_once_and_in_its_place(parts: PartStore) -> None:
    count = 5 * PART_TEXTS + 7
    embedder, tally = NumberEmbedder(), Tally()
    await embed_parts(iter(some_parts(count)), embedder, parts, tally)
    assert numbers(parts, count) == list(range(count))
    assert sorted(map(int, embedder.seen)) == list(range(count))
    assert (tally.texts_embedded, tally.tokens, tally.texts_existing) == (count, 3 * count, 0)


async def test_what_an_earlier_run_has_done_is_not_done_again(parts: PartStore) -> None:
    count = 4 * PART_TEXTS
    for part in some_parts(count)[1:3]:
        parts.write(part.number, np.array([[float(text), 1] for text in part.texts], np.float32))
    embedder, tally = NumberEmbedder(), Tally()
    await embed_parts(iter(some_parts(count)), embedder, parts, tally)
    assert numbers(parts, count) == list(range(count))
    assert (tally.texts_embedded, tally.texts_existing) == (2 * PART_TEXTS, 2 * PART_TEXTS)
    assert len(embedder.seen) == 2 * PART_TEXTS


class PatientEmbedder(NumberEmbedder):
    """Answers nothing before so many texts have come."""

    def __init__(self, texts: int) -> None:
        super().__init__()
        self._texts = texts
        self._enough = asyncio.Event()

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        if len(self.seen) + len(inputs) >= self._texts:
            self._enough.set()
        found = await super().embed(inputs)
        async with asyncio.timeout(20):
            await self._enough.wait()
        return found


async def test_parts_overlap(parts: PartStore) -> None:
    assert PARTS_AT_ONCE * PART_TEXTS >= 2_048  # enough to sort by length
    count = 2 * PARTS_AT_ONCE * PART_TEXTS
    await embed_parts(iter(some_parts(count)), PatientEmbedder(count // 2), parts, Tally())
    assert numbers(parts, count) == list(range(count))


async def test_the_number_of_parts_under_way_is_bounded(
    parts: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "PARTS_AT_ONCE", 3)
    most = 0

    def watched() -> Iterator[InputPart]:
        nonlocal most
        for part in some_parts(12 * PART_TEXTS):
            most = max(most, part.number + 1 - len(list(parts.folder.glob("part-*.npz"))))
            yield part

    await embed_parts(watched(), NumberEmbedder(), parts, Tally())
    assert 1 <= most <= 3


@pytest.mark.parametrize(
    "failure", [InferenceFailed("The engine fails."), InvalidRequest("It has no tokens.")], ids=str
)
async def test_the_one_text_that_fails_is_named(failure: VecmillError, parts: PartStore) -> None:
    with pytest.raises(InvalidCorpus, match=rf"The text of line 14 cannot be embedded: {failure.message}"):
        await embed_parts(
            iter(some_parts(PART_TEXTS)), NumberEmbedder({"13": failure}), parts, Tally(), unit="line"
        )
    assert not list(parts.folder.glob("part-*.npz"))


@pytest.mark.parametrize(
    "failure",
    [
        NonFiniteOutput("It is not a number."),
        InvalidRequest("It has no tokens."),
        TokenizationFailed("It panics."),
    ],
    ids=str,
)
@pytest.mark.parametrize("failing", [[13], [0, 9, 255], list(range(20, 40)), list(range(256))], ids=len)
async def test_texts_that_fail_are_left_out_where_that_is_asked(
    failing: list[int], failure: VecmillError, parts: PartStore, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = NumberEmbedder({str(number): failure for number in failing})
    for _ in range(2):
        await embed_parts(iter(some_parts(300)), embedder, parts, Tally(), unit="line", skips_invalid=True)
    assert numbers(parts, 300) == [number for number in range(300) if number not in failing]
    assert parts.read(0).left_out == failing
    assert len(caplog.records) == len(failing)
    assert f"line {failing[0] + 1} cannot be embedded: {failure.message} The text is left out." in caplog.text


async def test_an_engine_that_fails_leaves_nothing_out(parts: PartStore) -> None:
    embedder = NumberEmbedder({"13": InferenceFailed("The engine fails.")})
    with pytest.raises(InvalidCorpus, match="The engine fails"):
        await embed_parts(iter(some_parts(20)), embedder, parts, Tally(), skips_invalid=True)


@pytest.mark.parametrize("failure", [DeviceLost("The card is gone."), LaneLost("A worker is gone.")], ids=str)
async def test_what_no_text_is_at_fault_for_ends_it_at_once(failure: VecmillError, parts: PartStore) -> None:
    embedder = NumberEmbedder({"13": failure})
    with pytest.raises(type(failure)):
        await embed_parts(iter(some_parts(PART_TEXTS)), embedder, parts, Tally())
    assert len(embedder.seen) == len(set(embedder.seen))


async def test_a_failure_leaves_nothing_running(parts: PartStore) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(InvalidCorpus):
        await embed_parts(
            iter(some_parts(6 * PART_TEXTS)),
            NumberEmbedder({"700": InferenceFailed("No.")}),
            parts,
            Tally(),
        )
    assert asyncio.all_tasks() == before

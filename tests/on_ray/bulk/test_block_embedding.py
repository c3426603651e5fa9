"""The embedding of blocks by one process, without Ray."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from support.corpora import numbered_rows, write_corpus
from vecmill.bulk.embed_model import EmbedModel
from vecmill.bulk.embedder import EmbeddedTexts, EmbedParameters
from vecmill.bulk.input_scan import Columns, ColumnType
from vecmill.bulk.picture_inputs import EmbedInput
from vecmill.bulk.records import Record
from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig, InvalidCorpus, InvalidRequest, VecmillError
from vecmill.values.aliases import JsonValue
from vecmill_ray.bulk.block_embedding import BulkJob, BulkModel, embed_sorted, find_identity, open_embedder
from vecmill_ray.bulk.blocks import BulkBlock, RejectedRow
from vecmill_ray.bulk.inputs import InputAddress

CHOICE = BulkModel(EmbedModel(None, MillConfig(engine="fake")), EmbedParameters())


class LengthEmbedder:
    """Each vector is the length of its text; texts with an x are refused."""

    dim = 1
    dtype = np.dtype(np.float32)
    call_texts = 2
    similarity = "cosine"

    def __init__(self) -> None:
        self.identity: dict[str, JsonValue] = {}
        self.calls: list[list[str]] = []

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        texts = [one for one in inputs if isinstance(one, str)]
        self.calls.append(texts)
        if any("x" in text for text in texts):
            raise InvalidRequest("No x.")
        return EmbeddedTexts(np.array([[len(text)] for text in texts], np.float32), len(texts))


async def job_of(folder: Path, rows: int, *, skips_invalid: bool = True) -> BulkJob:
    file = write_corpus(folder / "texts.jsonl", numbered_rows(rows))
    address = InputAddress(str(file))
    return BulkJob(
        address,
        [found.identity for found in address.open()],
        str(folder / "out"),
        Columns("text", ("id",)),
        {"id": ColumnType.INTEGER},
        CHOICE,
        await find_identity(CHOICE),
        "12345678",
        skips_invalid,
    )


async def test_texts_of_like_length_are_computed_together() -> None:
    embedder = LengthEmbedder()
    texts = ["a", "bbbb", "cc", "ddd", "eeeee"]
    found = await embed_sorted(
        [Record(1, (text,)) for text in texts],
        embedder,
        refuse=lambda record, error: pytest.fail(error.message),
    )
    assert embedder.calls == [["eeeee", "bbbb"], ["ddd", "cc"], ["a"]]
    assert found.embeddings.ravel().tolist() == [1, 4, 2, 3, 5]
    assert found.token_count == 5


async def test_a_refused_text_leaves_the_others_in_order() -> None:
    refused: list[tuple[int, str]] = []

    def refuse(record: Record, error: VecmillError) -> None:
        refused.append((record.place, error.message))

    texts = ["a", "xxxx", "cc", "x", "eeeee"]
    records = [Record(place, (text,)) for place, text in enumerate(texts, 1)]
    found = await embed_sorted(records, LengthEmbedder(), refuse)
    assert found.embeddings.ravel().tolist() == [1, 2, 5]
    assert list(found.left_out) == [1, 3]
    assert sorted(refused) == [(2, "No x."), (4, "No x.")]


async def test_a_block_is_one_file(tmp_path: Path) -> None:
    job = await job_of(tmp_path, 10)
    async with open_embedder(job, "here") as embedder:
        counts = await embedder.embed(BulkBlock(0, 0, 0, None, 1, 10))
    table = parquet.read_table(tmp_path / "out/part-0000000-12345678.parquet")
    assert table["id"].to_pylist() == list(range(10))
    assert counts.rows == len(table) == 10
    about = json.loads(table.schema.metadata[b"vecmill"])
    assert about["block"] == 0
    assert about["engine"] == "fake"


async def test_invalid_rows_are_rejected_with_their_reasons(tmp_path: Path) -> None:
    job = await job_of(tmp_path, 3)
    (tmp_path / "texts.jsonl").write_text('{"text": "a", "id": 1}\n{"id": 2}\nnonsense\n', "utf-8")
    job = replace(job, inputs=[found.identity for found in job.address.open()])
    async with open_embedder(job, "here") as embedder:
        counts = await embedder.embed(BulkBlock(0, 0, 0, None, 1, 3))
    assert counts.rows == 1
    assert counts.rejected[0] == RejectedRow(0, 2, "has no text")
    assert counts.rejected[1].reason.startswith("is not JSON")


async def test_a_changed_input_is_refused(tmp_path: Path) -> None:
    job = await job_of(tmp_path, 3)
    write_corpus(tmp_path / "texts.jsonl", numbered_rows(4))
    with pytest.raises(InvalidCorpus, match=r"texts\.jsonl has changed since the start"):
        async with open_embedder(job, "here"):
            pytest.fail("the input was accepted")


async def test_a_node_with_another_model_is_refused(tmp_path: Path) -> None:
    job = await job_of(tmp_path, 3)
    job = replace(job, identity=replace(job.identity, precision="int8"))
    with pytest.raises(InvalidConfig, match=r"10\.0\.0\.7 would compute with precision .* instead of int8"):
        async with open_embedder(job, "10.0.0.7"):
            pytest.fail("the model was accepted")


async def test_the_engine_of_the_run_is_pinned() -> None:
    identity = replace(await find_identity(CHOICE), engine="onnx", precision="int8")
    pinned = CHOICE.pinned_to(identity).config
    assert (pinned.engine, pinned.precision) == ("onnx", "int8")

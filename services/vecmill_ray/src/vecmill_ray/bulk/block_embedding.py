"""The embedding of blocks by one process: it holds one model, and writes each block into its file.

The process takes the engine and the precision from the job, and refuses to work if its model has another
identity than that of the job. Otherwise a node with another processor could write embeddings of another
vector space.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from vecmill.bulk.embed_model import EmbedModel
from vecmill.bulk.embedder import EmbeddedTexts, Embedder, EmbedParameters
from vecmill.bulk.input_scan import Columns, ColumnType, check_record
from vecmill.bulk.local import open_local
from vecmill.bulk.outputs import TRUNCATED, OutputSchema
from vecmill.bulk.pipeline import Refuse, cut_calls, embed_records, gather_all, refuse_record
from vecmill.bulk.records import InputPart, Record
from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig, InvalidCorpus, VecmillError
from vecmill.values.aliases import JsonValue
from vecmill.values.engine_plan import Precision
from vecmill_ray.bulk.blocks import BlockCounts, BulkBlock, RejectedRow, encode_block, order_by_length
from vecmill_ray.bulk.bulk_manifest import Identity
from vecmill_ray.bulk.inputs import BulkInput, InputAddress, arrow_types, open_inputs
from vecmill_ray.bulk.storage import SharedStorage


@dataclass(frozen=True, slots=True)
class BulkModel:
    """The model of a run, and the settings of its embeddings."""

    embed_model: EmbedModel
    parameters: EmbedParameters

    @property
    def config(self) -> MillConfig:
        """The settings of the model."""
        return self.embed_model.config

    def with_config(self, **changes: Any) -> "BulkModel":
        """Return the choice with other settings of the model."""
        config = replace(self.config, **changes)
        return replace(self, embed_model=replace(self.embed_model, config=config))

    def pinned_to(self, identity: Identity) -> "BulkModel":
        """Return the choice with the engine and the precision of `identity`."""
        # The graph of an exported model has a precision of its own, which is not an option.
        known = identity.precision in [precision.value for precision in Precision]
        precision = Precision(identity.precision) if known else None
        return self.with_config(engine=identity.engine, precision=precision)


@dataclass(frozen=True, slots=True)
class BulkJob:
    """Everything that a process needs to embed blocks. `inputs` are the identities of the inputs."""

    address: InputAddress
    inputs: Sequence[JsonValue]
    output: str
    columns: Columns
    column_types: dict[str, ColumnType]
    choice: BulkModel
    identity: Identity
    digest: str
    skips_invalid: bool


def identity_of(embedder: Embedder) -> Identity:
    """Return the identity of a loaded model."""
    found = embedder.identity
    return Identity(
        str(found["name"]),
        str(found["fingerprint"]),
        str(found["engine"]),
        str(found["precision"]),
        embedder.dim,
    )


async def find_identity(choice: BulkModel) -> Identity:
    """Load the model, and return its identity. Raises `SetupError`."""
    async with open_local(choice.embed_model, choice.parameters) as embedder:
        return identity_of(embedder)


@asynccontextmanager
async def open_embedder(job: BulkJob, node: str) -> AsyncIterator["BlockEmbedder"]:
    """Load the model of a job on the node with this name or address. Raises `SetupError`."""
    inputs = open_inputs(job.address, job.inputs)
    choice = job.choice
    async with open_local(choice.embed_model, choice.parameters) as embedder:
        others = identity_of(embedder).differences(job.identity)
        if others:
            raise InvalidConfig(
                f"The node {node} would compute with {' and '.join(others)}, so its embeddings would not be "
                "comparable with those of other nodes. Give all nodes the same model files and packages, or "
                "choose --engine and --precision in a new output."
            )
        yield BlockEmbedder(job, inputs, SharedStorage(job.output), embedder)


class BlockEmbedder:
    """A loaded model that embeds blocks of a job. Use `open_embedder`."""

    def __init__(
        self, job: BulkJob, inputs: Sequence[BulkInput], output: SharedStorage, embedder: Embedder
    ) -> None:
        self._job = job
        self._inputs = inputs
        self._output = output
        self._embedder = embedder

    async def embed(self, block: BulkBlock) -> BlockCounts:
        """Embed a block and write its file.

        Raises `InvalidCorpus` for a row that cannot be embedded, unless such rows are skipped; other errors
        as `Embedder.embed`.
        """
        found = self._inputs[block.source]
        records = await asyncio.to_thread(self._read, found, block)
        rejected = [
            RejectedRow(block.source, record.place, record.problem)
            for record in records
            if record.problem is not None
        ]
        valid = [record for record in records if record.problem is None]
        unit = found.unit

        def refuse(record: Record, error: VecmillError) -> None:
            refuse_record(unit, self._job.skips_invalid, record, error)
            rejected.append(RejectedRow(block.source, record.place, error.message))

        result = await embed_sorted(valid, self._embedder, refuse)
        counts = BlockCounts(
            block.number,
            len(result.embeddings),
            result.token_count,
            sum(map(bool, result.dropped)),
            sorted(rejected, key=lambda row: row.place),
        )
        kept = InputPart(block.number, valid).without(result.left_out)
        await asyncio.to_thread(self._write, block, found, counts, result, kept)
        return counts

    def _read(self, found: BulkInput, block: BulkBlock) -> list[Record]:
        """Read the rows of a block. Raises `InvalidCorpus` if their number is not that of the scan."""
        columns = self._job.columns
        rows = found.read(columns.names, block.start, block.stop, block.first_place)
        folder = found.find_pictures() if columns.has_pictures else None
        records = [check_record(row.record, columns, folder) for row in rows if row.record is not None]
        if len(records) != block.records:
            raise InvalidCorpus(
                f"{found.source.path} has changed since the start of the run: {block.records} rows from "
                f"{found.unit} {block.first_place} on are now {len(records)}."
            )
        return records

    def _write(
        self, block: BulkBlock, found: BulkInput, counts: BlockCounts, result: EmbeddedTexts, kept: InputPart
    ) -> None:
        job, embedder = self._job, self._embedder
        schema = OutputSchema(
            embedder.dim,
            embedder.dtype,
            {**job.column_types, TRUNCATED: ColumnType.INTEGER},
            arrow_types(found.source, job.columns.copies),
            {**embedder.identity, "dtype": job.choice.parameters.kind},
        )
        columns = {name: kept.column(index) for index, name in enumerate(job.columns.copies, 1)}
        content = encode_block(schema, counts, result.embeddings, {**columns, TRUNCATED: result.dropped})
        self._output.write(block.file_name(job.digest), content)


async def embed_sorted(records: Sequence[Record], embedder: Embedder, refuse: Refuse) -> EmbeddedTexts:
    """Embed the inputs of records in calls of similar lengths; the result is in the order of the records.

    Calls `refuse` for inputs that cannot be embedded. Raises the same errors as `Embedder.embed`.
    """
    order = order_by_length([record.values[0] for record in records])
    cut = cut_calls([records[index] for index in order], embedder.call_texts)
    starts = accumulate(map(len, cut), initial=0)
    calls = [order[start : start + len(one)] for start, one in zip(starts, cut, strict=False)]
    found = await gather_all([embed_records(one, embedder, refuse) for one in cut])
    embeddings = np.empty((len(records), embedder.dim), embedder.dtype)
    left_out: list[int] = []
    dropped: dict[int, int | None] = {}
    for call, one in zip(calls, found, strict=True):
        out = frozenset(one.left_out)
        left_out.extend(call[at] for at in out)
        kept = [index for at, index in enumerate(call) if at not in out]
        embeddings[kept] = one.embeddings
        dropped |= zip(kept, one.dropped, strict=True)
    return EmbeddedTexts(
        np.delete(embeddings, left_out, axis=0),
        sum(one.token_count for one in found),
        sorted(left_out),
        [dropped[index] for index in range(len(records)) if index in dropped],
    )

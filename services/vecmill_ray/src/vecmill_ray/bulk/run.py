"""The run of `vecmill ray embed`: scan the input, embed the missing blocks, check the output."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import click

from vecmill.bulk.input_scan import Columns
from vecmill.bulk.outputs import check_output
from vecmill.commands.embed.progress import ProgressBar, show_progress
from vecmill.commands.embed.run import DONE, INTERRUPTED
from vecmill.errors import InvalidConfig
from vecmill_ray.bulk import cluster
from vecmill_ray.bulk.block_embedding import BulkJob
from vecmill_ray.bulk.blocks import BlockCounts
from vecmill_ray.bulk.bulk_manifest import (
    MANIFEST_FILE,
    REJECTED_FILE,
    SUCCESS_FILE,
    BulkManifest,
    Identity,
    Settings,
    read_manifest,
    refuse_differences,
    refuse_foreign,
)
from vecmill_ray.bulk.bulk_options import ActorPool, BulkOptions, refuse_local_files, refuse_overlap
from vecmill_ray.bulk.inputs import BulkInput, open_inputs
from vecmill_ray.bulk.rounds import complete_blocks
from vecmill_ray.bulk.scan import choose_input_columns, join_scans
from vecmill_ray.bulk.storage import SharedStorage

# Blocks end seldom and on many machines, so a reader of the log wants to hear of them.
LINE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class BulkSummary:
    """The result of a run: `texts` embeddings of `dim` dimensions; `summary` is a sentence about the work."""

    texts: int
    rejected: int
    truncated: int
    dim: int
    summary: str


def run_with_progress(options: BulkOptions) -> int:
    """Embed with progress on standard error, and return the exit status. Raises `SetupError`."""
    try:
        cluster.connect()
        try:
            result = embed_inputs(options)
        finally:
            cluster.disconnect()
    except KeyboardInterrupt:
        click.echo("Interrupted. The same command continues with the finished blocks.", err=True)
        return INTERRUPTED
    name = SharedStorage(options.output).name
    left_out = f", {result.rejected:,} left out ({REJECTED_FILE})" if result.rejected else ""
    cut = f" Texts cut to the longest input of the model: {result.truncated:,}." if result.truncated else ""
    click.echo(
        f"{name}: {result.texts:,} embeddings of {result.dim} dimensions{left_out}.{cut} {result.summary}"
    )
    return DONE


def embed_inputs(options: BulkOptions) -> BulkSummary:
    """Write the output on the connected cluster, reusing the blocks of earlier runs. Raises `SetupError`."""
    inputs = options.address.open()
    output = SharedStorage(options.output)
    refuse_overlap(options.address, inputs, output)
    if not options.has_shared_files:
        refuse_local_files(inputs, output, cluster.count_nodes())
    check_output(Path("part.parquet"), options.columns)
    columns = choose_input_columns(inputs, options.columns)
    settings = settings_of(options, inputs, columns)
    pool = cluster.plan_pool(options.choice.config.cores, options.actors, options.choice.config.device)
    options = replace(options, choice=options.choice.with_config(cores=pool.cores))
    manifest = read_manifest(output)
    if manifest is None:
        refuse_foreign(output)
        manifest = _start(options, inputs, columns, settings, pool)
        output.write(MANIFEST_FILE, manifest.to_json())
    refuse_differences(output, manifest.settings, settings)
    refuse_other_engine(output, options, manifest.identity)
    if manifest.scan.skipped and not options.columns.skips_invalid:
        raise InvalidConfig(
            f"{output.name} has blocks without the {manifest.scan.skipped:,} invalid rows of the input. To "
            "continue, add --skip-invalid."
        )
    return _embed(options, inputs, output, manifest, pool)


def settings_of(options: BulkOptions, inputs: Sequence[BulkInput], columns: Columns) -> Settings:
    """Return all settings that the output depends on. The keys are the names for error messages."""
    parameters = options.choice.parameters
    return {
        "version of vecmill": version("vecmill"),
        "input": [found.identity for found in inputs],
        "model": options.choice.embed_model.model,
        "text column": columns.text,
        **({"pictures": True} if columns.has_pictures else {}),
        "choice of columns": list(columns.copies),
        "prompt": [parameters.prompt_name, parameters.purpose],
        "on-long-input": parameters.on_long_input,
        "number of dimensions": parameters.dimensions,
        "dtype": parameters.kind,
        "number of rows in a block": options.block_rows,
    }


def refuse_other_engine(output: SharedStorage, options: BulkOptions, identity: Identity) -> None:
    """Raise `InvalidConfig` if the options name another engine or precision than that of the output."""
    config = options.choice.config
    for name, asked, known in (
        ("--engine", config.engine, identity.engine),
        ("--precision", config.precision, identity.precision),
    ):
        if asked is not None and asked != known:
            raise InvalidConfig(
                f"{output.name} has blocks that were made with {name} {known}, not {asked}. Choose another "
                "output, or remove this folder to start again."
            )


def _start(
    options: BulkOptions,
    inputs: Sequence[BulkInput],
    columns: Columns,
    settings: Settings,
    pool: ActorPool,
) -> BulkManifest:
    """Load the model once, scan the inputs, and return the manifest of the run. Raises `SetupError`."""
    identity = cluster.probe_identity(options.choice, pool)
    spans = [span for index, found in enumerate(inputs) for span in found.spans(index)]
    scanned = (options.address, [found.identity for found in inputs], columns, options.block_rows)
    running = cluster.scan_spans(scanned, spans)
    scans = dict(show_progress(running, "Reading", len(spans)))
    ordered = [scans[index] for index in range(len(spans))]
    return BulkManifest(
        settings, identity, columns, join_scans(inputs, spans, ordered, options.columns, columns)
    )


def _embed(
    options: BulkOptions,
    inputs: Sequence[BulkInput],
    output: SharedStorage,
    manifest: BulkManifest,
    pool: ActorPool,
) -> BulkSummary:
    """Embed the missing blocks, in as many rounds as are needed. Raises `SetupError`."""
    identities = [found.identity for found in inputs]
    job = BulkJob(
        options.address,
        identities,
        options.output,
        manifest.columns,
        dict(manifest.scan.column_types),
        options.choice.pinned_to(manifest.identity),
        manifest.identity,
        manifest.digest,
        options.columns.skips_invalid,
    )
    noun = "pictures" if manifest.columns.has_pictures else "texts"
    with ProgressBar(manifest.scan.rows, noun=noun, line_every_s=LINE_EVERY_S) as bar:
        done = complete_blocks(cluster.RayBlocks(job, pool), manifest.scan.blocks, bar)
        summary = bar.summary() if bar.texts_embedded else "The output was already complete."
    open_inputs(options.address, identities)
    finish(output, inputs, manifest, done)
    counts = done.values()
    return BulkSummary(
        sum(one.rows for one in counts),
        sum(len(one.rejected) for one in counts),
        sum(one.truncated for one in counts),
        manifest.identity.dim,
        summary,
    )


def finish(
    output: SharedStorage,
    inputs: Sequence[BulkInput],
    manifest: BulkManifest,
    done: Mapping[int, BlockCounts],
) -> None:
    """Write the rejected rows, and mark the output as complete.

    Raises `InvalidConfig` if the folder has block files of another run.
    """
    expected = manifest.file_names()
    names = set(output.list_names())
    others = sorted(name for name in names - expected if name.startswith("part-"))
    lost = sorted(expected - names)
    if others or lost or output.read(MANIFEST_FILE) != manifest.to_json():
        example = (others or lost or [MANIFEST_FILE])[0]
        raise InvalidConfig(
            f"Another process has changed {output.name}, for example {example}. Remove the folder to "
            "start again."
        )
    rejected = [row for number in sorted(done) for row in done[number].rejected]
    if rejected:
        lines = [
            json.dumps(
                {
                    "file": str(inputs[row.source].source.path),
                    inputs[row.source].unit: row.place,
                    "reason": row.reason,
                },
                ensure_ascii=False,
            )
            for row in rejected
        ]
        output.write(REJECTED_FILE, "".join(f"{line}\n" for line in lines).encode())
    output.remove_unfinished()
    output.write(SUCCESS_FILE, b"")

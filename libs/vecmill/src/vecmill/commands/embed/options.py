"""The options of every command that embeds files, and the model that they name.

The model may be one of a configuration file of the server. The server package reads that file: the library
finds its function through the entry-point group `vecmill.served_models`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from vecmill.bulk.embed_model import EmbedModel
from vecmill.commands.options import CACHE_DIR, PRECISIONS, TRUST
from vecmill.config import MillConfig, OnLongInput
from vecmill.errors import MissingExtra
from vecmill.values.engine_plan import Precision
from vecmill.values.messages import pip_command
from vecmill.values.output_kinds import OutputDtype
from vecmill.values.request_choices import ChunkingMode, Purpose

PURPOSES = [purpose.value for purpose in Purpose]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _joined(*decorators: Decorator) -> Decorator:
    """Return a decorator that adds several options, in this order."""
    return lambda command: reduce(lambda decorated, add: add(decorated), reversed(decorators), command)


# The columns to read, and the settings of the embeddings.
TEXT_OPTIONS = _joined(
    click.option("--model", help="A directory, or a model on a hub. Default: the embedded model."),
    click.option(
        "--text-column", help="The column of the texts. Default: text, or the only column of strings."
    ),
    click.option(
        "--picture-column", help="The column of pictures, as bytes or as paths, which are embedded, no texts."
    ),
    click.option("--id-column", help="The column of ids, copied to the output. Default: id, if it exists."),
    click.option("--copy-column", "copied_columns", multiple=True, help="Also copy this column. Repeatable."),
    click.option(
        "--skip-invalid", "skips_invalid", is_flag=True, help="Skip rows without a valid text or picture."
    ),
    click.option("--prompt-name", help="Use the model's prompt with this name."),
    click.option("--purpose", type=click.Choice(PURPOSES), help="Use the model's prompt for this purpose."),
    click.option(
        "--dimensions", type=click.IntRange(min=1), help="Cut embeddings to this number of dimensions."
    ),
    click.option(
        "--on-long-input",
        type=click.Choice([each.value for each in OnLongInput]),
        help="Cut a text that is longer than the model reads, or report an error. Default: as the server or "
        "its configuration file says, else cut.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(
            ["float32", *(kind.value for kind in OutputDtype if kind is not OutputDtype.FLOAT)]
        ),
        default="float32",
        show_default=True,
        help="The type of the written numbers. The binary types hold eight dimensions in a byte.",
    ),
)

# The chunks of texts, and what becomes of them.
CHUNK_OPTIONS = _joined(
    click.option(
        "--chunking",
        type=click.Choice([mode.value for mode in ChunkingMode]),
        help="Cut texts into chunks instead of truncating them. pooled: one embedding of each text. chunks, "
        "late: an embedding of each chunk, with its place in the text.",
    ),
    click.option(
        "--chunk-tokens",
        type=click.IntRange(min=1),
        help="The tokens of a chunk. Default: as many as the model reads; for late at most 256.",
    ),
    click.option(
        "--chunk-overlap",
        type=click.IntRange(min=0),
        help="The tokens that each chunk shares with the next. Default: none.",
    ),
    click.option(
        "--chunk-sentences",
        is_flag=True,
        help="Let chunks end at the end of a sentence where they can, which makes them shorter.",
    ),
)

# The collection of a store, and what is done with it.
STORE_OPTIONS = _joined(
    click.option(
        "--to",
        "address",
        help="A collection to bring up to date: lancedb:FOLDER/TABLE, qdrant:FOLDER-OR-URL/COLLECTION, "
        "chroma:FOLDER-OR-URL/COLLECTION, pgvector:postgresql://HOST/DATABASE/TABLE or FILE.parquet.",
    ),
    click.option(
        "--source", help="With --to: the name of this source in each row. Default: the name of the file."
    ),
    click.option(
        "--delete-vanished",
        "deletes_vanished",
        is_flag=True,
        help="With --to: delete rows of this source that are no longer in the input. Needs --source.",
    ),
    click.option(
        "--adopt",
        "adopts",
        is_flag=True,
        help="With --to: write into a collection that vecmill did not make.",
    ),
    click.option(
        "--vectors",
        type=click.Choice(["dense", "sparse", "tokens"]),
        default="dense",
        show_default=True,
        help="With --to: one dense vector of a text, weights over the vocabulary, or a vector of each token.",
    ),
    click.option(
        "--distance",
        type=click.Choice(["cosine", "dot", "euclidean", "manhattan"]),
        help="With --to: how the collection compares vectors. Default: as the model says.",
    ),
)

# The engine that computes the embeddings.
ENGINE_OPTIONS = _joined(
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="A configuration file of vecmill serve: embed as that server does. --model is then one of its "
        "models. Options given here go first.",
    ),
    click.option("--engine", help="The engine. Default: the engine that would serve the model."),
    click.option("--precision", type=click.Choice(PRECISIONS), help="The precision of the engine."),
    click.option("--device", help="The device of the engine. Default: the best that it finds."),
    click.option("--cores", type=click.IntRange(min=1), help="The number of cores to use. Default: all."),
    CACHE_DIR,
    TRUST,
)

ENTRY_POINT_GROUP = "vecmill.served_models"

_ENGINE_SETTINGS = ("engine", "precision", "device", "cores", "cache_dir")


# Takes a file, the name of a model in it, and values of settings that go before those of the file.
ServedModelReader = Callable[[Path, str | None, Mapping[str, Any]], EmbedModel]


def choose_model(options: Mapping[str, Any], **fixed: Any) -> EmbedModel:
    """Return the model that the options of the command line name.

    With the option `config`, the model that a server with this file serves under the name `model`. `fixed`
    are settings that the file cannot change. Raises `SetupError`.
    """
    given = {name: options[name] for name in _ENGINE_SETTINGS if options[name] is not None} | fixed
    if "precision" in given:
        given["precision"] = Precision(given["precision"])
    if options["config"] is None:
        return EmbedModel(options["model"], MillConfig(**given), trusts_code=options["trusts_code"])
    found = _find_reader()(options["config"], options["model"], given)
    return replace(found, trusts_code=found.trusts_code or options["trusts_code"])


def _find_reader() -> ServedModelReader:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        reader: ServedModelReader = entry.load()
        return reader
    command = pip_command("install", "vecmill-server")
    raise MissingExtra(f"--config names a file of the server, which is not installed: {command}")

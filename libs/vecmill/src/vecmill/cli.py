"""The `vecmill` command: a group whose subcommands come from whoever is installed.

The library brings its own; other distributions add theirs through the entry-point group
`vecmill.commands` (name -> click command), as the server does with `serve`. A command's module is
imported when that command is asked for, so that one of them never slows another down.
"""

import signal
import sys
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import Any, TextIO

import click

from vecmill.errors import SetupError
from vecmill.plan import Precision
from vecmill.reading import Purpose
from vecmill.rows import RowKind

ENTRY_POINT_GROUP = "vecmill.commands"

# Commands that we know of but do not bring, and the distribution that does.
_ELSEWHERE = {"serve": "vecmill-server"}

# Of an enumeration click would ask for the names of its members.
_PRECISIONS = [precision.value for precision in Precision]
_PURPOSES = [purpose.value for purpose in Purpose]

_TRUST = click.option(
    "--trust-remote-code",
    "trusts_code",
    is_flag=True,
    help="Run the code that comes with MODEL. Read it first.",
)

_TEXTS = click.option(
    "--texts", "file", type=click.File(encoding="utf-8"), help="Your own texts, one a line."
)

_CACHE_DIR = click.option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    envvar="VECMILL_CACHE_DIR",
    show_envvar=True,
    help="Where prepared models are kept.",
)


class SetupFailure(click.ClickException):
    """A `SetupError` as the command line reports it."""

    exit_code = 2


class CommandGroup(click.Group):
    """A group that finds more commands among the installed distributions.

    A `SetupError` from any command becomes one sentence on standard error and exit status 2.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, ours and theirs, sorted."""
        return sorted({*super().list_commands(ctx), *_installed_commands()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Our own command of that name, or the installed one, imported now."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = _installed_commands().get(cmd_name)
        if found is not None:
            return _load_command(found)
        if cmd_name in _ELSEWHERE:
            distribution = _ELSEWHERE[cmd_name]
            ctx.fail(f"`vecmill {cmd_name}` comes with another package: pip install {distribution}")
        return None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; turn what the person can fix into a sentence."""
        try:
            return super().invoke(ctx)
        except SetupError as error:
            raise SetupFailure(error.message) from error


def _installed_commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def _load_command(entry: EntryPoint) -> click.Command:
    try:
        command = entry.load()
    except ImportError as error:
        return _broken_command(entry, str(error))
    if not isinstance(command, click.Command):
        return _broken_command(entry, f"{entry.value} is not a click command")
    return command


def _broken_command(entry: EntryPoint, reason: str) -> click.Command:
    """Stands in for a command that cannot be loaded, so that `--help` and the others still work."""
    message = f"`vecmill {entry.name}` is installed but cannot be loaded: {reason}"

    @click.command(entry.name, help=message, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1)
    def explain(arguments: tuple[str, ...]) -> None:
        raise click.ClickException(message)

    return explain


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"vecmill {version('vecmill')}")
        ctx.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and stop.",
)
def main() -> None:
    """Text in, vectors out: embeddings and reranking."""


@main.command()
@click.argument("model", required=False)
@_TRUST
def describe(model: str | None, trusts_code: bool) -> None:
    """Print what the directory of MODEL says, without reading its weights.

    MODEL is a sentence-transformers directory; without it, the embedded all-MiniLM-L6-v2.
    """
    from vecmill.models import describe_model, locate_model

    said = describe_model(locate_model(model, trusts_code=trusts_code))
    lines = {
        "name": said.name,
        "directory": said.directory,
        "task": said.task,
        "architecture": said.architecture,
        "dimensions": said.dim,
        "longest input": f"{said.max_tokens} tokens",
        "vocabulary": f"{said.vocab_size} tokens",
        "stages": ", ".join(type(stage).__name__ for stage in said.stages) or "none",
        "normalised": "yes" if said.normalize else "no",
        "prompts": ", ".join(sorted(said.prompts)) or "none",
    }
    for label, value in lines.items():
        click.echo(f"{label:<15}{value}")


@main.command()
@click.argument("model", required=False)
@click.option("--task", help="What MODEL is for, where its directory says something else.")
@click.option("--engine", help="The engine to check; the one that would serve MODEL if not given.")
@click.option(
    "--precision", type=click.Choice(_PRECISIONS), help="What the engine multiplies; fp32 if not given."
)
@_TRUST
@_TEXTS
@click.option("--count", default=300, show_default=True, help="How many texts to make where you give none.")
@_CACHE_DIR
def check(model: str | None, file: TextIO | None, **options: Any) -> None:
    """Compare MODEL's rows, scores or labels with their reference.

    The reference is sentence-transformers or transformers where it is installed, else our own fp32 engine.
    Exits with 1 if a number is off by more than 1e-4; where numbers are larger than 1, of the largest.
    """
    from vecmill.config import MillConfig
    from vecmill.fidelity.command import compare_model

    texts = [line.rstrip("\n") for line in file] if file is not None else None
    precision = options["precision"]
    config = MillConfig(
        engine=options["engine"],
        precision=None if precision is None else Precision(precision),
        cache_dir=options["cache_dir"],
    )
    report = compare_model(
        model,
        config,
        task=options["task"],
        trusts_code=options["trusts_code"],
        texts=texts,
        count=options["count"],
    )
    for line in report.lines():
        click.echo(line)
    sys.exit(0 if report.is_within(1e-4) else 1)


@main.command()
def engines() -> None:
    """List the engines: whether they are installed, the devices that they find here, their precisions."""
    from vecmill.engines.listing import list_engines

    for line in list_engines():
        click.echo(line)


@main.command()
@click.argument("model")
@click.option("--onnx", "exported", is_flag=True, help="Fetch the repository's ONNX graph too.")
def pull(model: str, exported: bool) -> None:
    """Fetch MODEL from a hub, so that it can be served without one.

    MODEL is owner/name or owner/name@revision. What a stopped attempt has fetched is kept. Mirrors,
    proxies, tokens and the cache's place are set as for the hub's own client: HF_ENDPOINT, HF_TOKEN, HF_HOME.
    """
    from vecmill.models import describe_model, locate_model

    location = locate_model(model, exported=exported)
    said = describe_model(location)
    click.echo(f"{location.name} is in {location.directory}, a model for {said.task}.")


@main.command(context_settings={"show_default": True})
@click.argument("model", required=False)
@click.option(
    "-o",
    "--output",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A new directory, to be served by `vecmill serve`.",
)
@click.option(
    "--objective",
    type=click.Choice(["throughput", "latency", "balanced"]),
    default="balanced",
    help="What to be best at: texts a second, the time of a lone text, or both alike.",
)
@click.option(
    "--min-cosine",
    type=click.FloatRange(0, 1),
    default=0.999,
    help="Against fp32, the least cosine of the worst text.",
)
@click.option(
    "--min-neighbours", type=click.FloatRange(0, 1), help="Against fp32, the least share of neighbours kept."
)
@_TEXTS
@click.option("--engine", "engines", multiple=True, help="Try this engine, and others named so, alone.")
@click.option(
    "--time-limit-s", type=click.FloatRange(min=1), default=300.0, help="When to be done with measuring."
)
@_CACHE_DIR
def optimize(
    model: str | None,
    directory: Path,
    file: TextIO | None,
    objective: str,
    min_cosine: float,
    min_neighbours: float | None,
    **options: Any,
) -> None:
    """Find out how MODEL is computed best on this machine, and write a directory that serves it so.

    Measures every engine, precision, lanes and token budget that this machine can run, and leaves out what is
    less accurate than asked. Wants an otherwise idle machine. Interrupted, it keeps what it has; the same
    command goes on there. Exits with 3 where the machine was too noisy to choose.
    """
    from vecmill.tuning.choice import Demand, Objective
    from vecmill.tuning.command import Order
    from vecmill.tuning.progress import run_shown

    # Whoever stops it politely gets what Ctrl-C gives: what is known is kept, and nothing is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    texts = [line.rstrip("\n") for line in file] if file is not None else []
    demand = Demand(Objective(objective), min_cosine, min_neighbours)
    sys.exit(run_shown(Order(model, directory, demand, texts, **options)))


@main.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="What to write: .parquet, .npy or .jsonl.",
)
@click.option("--model", help="A directory, or a model of a hub; the embedded one if not given.")
@click.option("--text-column", "text", help="Where the texts are; text, or the only column of texts.")
@click.option("--id-column", "identity", help="What names each row in the output; id, where there is one.")
@click.option(
    "--copy-column", "copies", multiple=True, help="Write this column too; may be given several times."
)
@click.option(
    "--skip-invalid",
    "skips_invalid",
    is_flag=True,
    help="Leave out rows without a text that can be embedded.",
)
@click.option("--prompt-name", help="The model's prompt of this name goes before each text.")
@click.option("--purpose", type=click.Choice(_PURPOSES), help="The model's prompt for this goes there.")
@click.option("--dimensions", type=click.IntRange(min=1), help="Cut each row to so many numbers.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", *(kind.value for kind in RowKind if kind is not RowKind.FLOAT)]),
    default="float32",
    show_default=True,
    help="What each number is written as; of the binary ones eight are a byte.",
)
@click.option("--engine", help="The engine that computes; the one that would serve the model if not given.")
@click.option("--precision", type=click.Choice(_PRECISIONS), help="What the engine multiplies.")
@click.option("--device", help="What the engine runs on; the best it finds if not given.")
@click.option("--cores", type=click.IntRange(min=1), help="Cores to compute on; all if not given.")
@_CACHE_DIR
@_TRUST
@click.option("--server", help="Have this server embed, such as http://127.0.0.1:7997, not this process.")
@click.option(
    "--api-key", envvar="VECMILL_API_KEY", show_envvar=True, help="The key that the server asks for."
)
def embed(corpus: Path, output: Path, **options: Any) -> None:
    """Embed the texts of CORPUS, a file of JSON lines, CSV or Parquet, into another file.

    Rows are in the order of the input. The output gets its name when it is complete; until then parts are
    kept in a folder beside it, and the same command goes on with them, however it was stopped.
    """
    from vecmill.corpus.command import read_order, run_shown

    sys.exit(run_shown(read_order(corpus, output, options)))

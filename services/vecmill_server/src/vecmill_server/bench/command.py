"""The command `vecmill bench`."""

import sys
from pathlib import Path
from typing import Any

import click

from vecmill_server.bench.request_sets import ServerApi, TextSet

_SETS = ", ".join(TextSet)
_APIS = [api.value for api in ServerApi]


@click.command(context_settings={"show_default": True, "auto_envvar_prefix": "VECMILL_BENCH"})
@click.option("--url", default="http://127.0.0.1:7997", help="The base URL, as OpenAI's clients take it.")
@click.option("--api", type=click.Choice(_APIS), default=ServerApi.EMBEDDINGS.value, help="The API.")
@click.option("--model", help="The model that requests name.  [default: the first that the server lists]")
@click.option(
    "--api-key",
    help="The API key. Other users can see the command line, so use the variable.",
    show_envvar=True,
)
@click.option(
    "--texts",
    multiple=True,
    default=(TextSet.MIXED.value,),
    help=f"A file with a text on each line, or one of {_SETS}. Can be repeated.",
)
@click.option("--batch", type=click.IntRange(min=1), default=1, help="The number of texts in each request.")
@click.option(
    "--clients",
    type=click.IntRange(min=1),
    multiple=True,
    help="A closed loop with this number of connections. Can be repeated.  [default: 1, 32]",
)
@click.option(
    "--rate",
    "rates_hz",
    type=click.FloatRange(0, min_open=True),
    multiple=True,
    help="An open loop with this number of requests a second. Can be repeated.",
)
@click.option(
    "--bulk-clients",
    type=click.IntRange(min=0),
    default=0,
    help="Clients with bulk requests beside each load.",
)
@click.option(
    "--bulk-batch", type=click.IntRange(min=1), default=256, help="The number of texts in each bulk request."
)
@click.option(
    "--encoding",
    type=click.Choice(["base64", "float", "bytes", "bytes_only"]),
    default="base64",
    help="The encoding of embeddings. Servers other than vecmill and vLLM have no raw bytes.",
)
@click.option("--seconds", type=click.IntRange(min=1), default=10, help="The counted time of each load.")
@click.option(
    "--warm-seconds", type=click.IntRange(min=0), default=2, help="The time before, which is not counted."
)
@click.option("--timeout-s", type=click.IntRange(min=1), default=60, help="The time limit of a request.")
@click.option("--seed", default=0, help="The seed of the texts and of the times of an open loop.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory for JSON and a plot.",
)
def bench(api: str, clients: tuple[int, ...], rates_hz: tuple[float, ...], **options: Any) -> None:
    """Measure a server that speaks OpenAI's embeddings or a rerank API.

    Sends each text set with each number of --clients, and at each --rate, and prints a table. Latencies are
    in milliseconds. Those of an open loop count from the time at which the request was due.

    The last column is the share of a core that the generator used. On the machine of the server, the server
    lacks this share.

    Exits with 1 if a request failed, if none was answered, or if the generator was slower than the server.
    """
    # Imported here, so that `vecmill --help` does not wait for the imports.
    from vecmill_server.bench.run import BenchOptions, run_bench

    if not clients and not rates_hz:
        clients = (1, 32)
    sys.exit(run_bench(BenchOptions(api=ServerApi(api), clients=clients, rates_hz=rates_hz, **options)))

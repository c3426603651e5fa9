"""The command `vecmill evaluate`, which measures how well models find the right texts of labelled queries."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from vecmill.commands.label_options import label_options
from vecmill.commands.options import CACHE_DIR
from vecmill.values.output_kinds import OutputDtype

WRITERS = (".md", ".json", ".html")


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@label_options
@click.option(
    "--plan",
    "plans",
    multiple=True,
    help="Evaluate with this ENGINE:PRECISION@DEVICE, such as openvino:int8 or onnx:fp32@cuda. Repeatable. "
    "Default: what would serve the model.",
)
@click.option(
    "--prompts",
    multiple=True,
    default=["purpose"],
    show_default=True,
    help="The prompts of queries and documents: purpose, none, or two names as QUERY:DOCUMENT. Repeatable.",
)
@click.option(
    "--dimensions",
    multiple=True,
    type=click.IntRange(min=1),
    help="Also cut vectors to this number of dimensions. Repeatable.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice([kind.value for kind in OutputDtype]),
    default=["float"],
    show_default=True,
    help="The type of the vectors. Repeatable.",
)
@click.option(
    "--search",
    "searches",
    multiple=True,
    type=click.Choice(["dense", "sparse", "multi-vector", "hybrid"]),
    help="Which embeddings are compared. Repeatable. Default: those for which the model is made.",
)
@click.option("--rerank", "reranker", metavar="MODEL", help="Also order what was found by this reranker.")
@click.option(
    "--rerank-top",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="The documents to rerank.",
)
@click.option(
    "--recall-at",
    multiple=True,
    type=click.IntRange(min=1),
    default=[10, 100],
    show_default=True,
    help="The numbers of documents of which the recall is measured. Repeatable.",
)
@click.option(
    "--document-vectors",
    type=click.Path(path_type=Path),
    help="A Parquet file of `vecmill embed` with the vectors of the corpus, by _id or id.",
)
@click.option(
    "--skip-same-id",
    "skips_same_id",
    is_flag=True,
    help="Never find the document with the id of the query, for corpora that contain the queries.",
)
@click.option("--api-key", envvar="VECMILL_API_KEY", show_envvar=True, help="The API key of servers.")
@CACHE_DIR
@click.option("--seed", default=0, show_default=True, help="The seed of intervals and tests.")
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the report to a file: .md, .json, or .html with plots. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    models: tuple[str, ...],
    queries: Path | None,
    qrels: Path | None,
    corpus: Path | None,
    pairs: Path | None,
    outputs: tuple[Path, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Measure how well each MODEL finds the right texts of labelled queries: nDCG@10, recall and MRR@10.

    MODEL is a directory, a model on a hub, or the address of a server, which may end in #NAME. The labelled
    texts are files in the forms of BEIR, MTEB and TREC, or one file of pairs. Every row is compared with the
    first one.
    """
    from vecmill.commands.embed.progress import StepProgress
    from vecmill.evaluation.quality import EvaluationOptions
    from vecmill.evaluation.quality import evaluate as evaluate_models

    _check(outputs)
    with closing(StepProgress()) as progress:
        report = evaluate_models(
            list(models),
            queries,
            qrels,
            corpus,
            pairs=pairs,
            options=EvaluationOptions(**options),
            on_progress=progress.tell,
        )
    texts = {".md": report.markdown, ".html": report.html}
    written = json.dumps(report.document(), indent=2)
    for output in outputs:
        kind = output.suffix.lower()
        _write(output, f"{written}\n" if kind == ".json" else texts[kind]())
    click.echo(written if as_json else report.markdown(), nl=as_json)


def _check(outputs: Sequence[Path]) -> None:
    """Raise `InvalidConfig` before anything is computed for what cannot be written."""
    from vecmill.errors import InvalidConfig

    for output in outputs:
        if output.suffix.lower() not in WRITERS:
            raise InvalidConfig(f"{output}: the file name extension must be one of {', '.join(WRITERS)}.")
        if not output.resolve().parent.is_dir():
            raise InvalidConfig(f"There is no folder {output.resolve().parent} for {output.name}.")


def _write(output: Path, text: str) -> None:
    from vecmill.errors import InvalidConfig

    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"{output} cannot be written: {error.strerror}.") from error

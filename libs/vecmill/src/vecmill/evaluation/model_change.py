"""The comparison of two models over the same texts, before one takes the place of the other.

Vectors of two models cannot be compared, but what is near in each can: the share of nearest neighbours that
are the same, and whether both put the other texts into the same order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vecmill.bulk.input_scan import ColumnOptions, choose_columns, valid_records
from vecmill.bulk.local_inputs import open_input
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.evaluation.corpus_search import Progress, SearchTask, search_corpus
from vecmill.evaluation.labelled_texts import Judgements
from vecmill.evaluation.neighbour_agreement import (
    ComparedVectors,
    correlate_ranks,
    find_overlaps,
    order_of_numbers,
)
from vecmill.evaluation.quality import TextsSource, evaluate
from vecmill.evaluation.quality_report import QualityReport
from vecmill.evaluation.quality_tables import format_estimate
from vecmill.evaluation.significance import Estimate, estimate_mean
from vecmill.evaluation.text_encoders import EvaluatedModel, PromptPair, SearchKind, open_encoder
from vecmill.models.heads import Similarity
from vecmill.values.aliases import FloatArray
from vecmill.vectors import normalize_embeddings

NEIGHBOURS_AT = (1, 10, 100)
FEWEST_TEXTS = 3
STORED_TEXTS = 1_000_000


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """One of the models: its name, engine and precision, space, and what its vectors cost.

    `texts_per_s` is the speed of this run. `stored_hours` and `stored_bytes` are those of so many texts as a
    store has.
    """

    model: str
    plan: str
    space: str | None
    dimensions: int
    bytes_per_text: int
    texts_per_s: float
    stored_hours: float
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class ModelChange:
    """The differences between two models.

    `overlaps` are the shares of the nearest neighbours of a text that are the same, by their number.
    `rank_correlation` is Spearman's, of the similarities of a text with all others. Both are means over the
    texts. `quality` is the evaluation of both, if labelled texts were given.
    """

    first: ComparedModel
    second: ComparedModel
    texts: int
    stored_texts: int
    overlaps: Mapping[int, Estimate]
    rank_correlation: Estimate
    quality: QualityReport | None = None

    def markdown(self) -> str:
        """Return the comparison in Markdown."""
        both = (self.first, self.second)
        stored = f"for {self.stored_texts:,} texts"
        rows = [
            ["", *(one.model for one in both)],
            ["engine", *(one.plan for one in both)],
            ["space", *(one.space or "not told" for one in both)],
            ["dimensions", *(f"{one.dimensions:,}" for one in both)],
            ["bytes a text", *(f"{one.bytes_per_text:,}" for one in both)],
            ["texts/s", *(f"{one.texts_per_s:,.1f}" for one in both)],
            [f"hours {stored}", *(f"{one.stored_hours:,.2f}" for one in both)],
            [f"GB {stored}", *(f"{one.stored_bytes / 1e9:,.2f}" for one in both)],
        ]
        lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
        parts = [
            f"# From {self.first.model} to {self.second.model}",
            "\n".join([lines[0], "|---|---|---|", *lines[1:]]),
            f"Over {self.texts:,} texts, each with all others (means with 95% intervals):",
            "\n".join(
                [
                    *(
                        f"- the same of the {number} nearest: {format_estimate(share, 3)}"
                        for number, share in self.overlaps.items()
                    ),
                    f"- rank correlation of the similarities: {format_estimate(self.rank_correlation, 3)}",
                ]
            ),
            _describe_spaces(self.first, self.second),
            "Texts/s and hours are those of this run on this machine.",
        ]
        if self.quality is not None:
            parts.append(self.quality.markdown().rstrip())
        return "\n\n".join(parts) + "\n"

    def document(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "first": asdict(self.first),
            "second": asdict(self.second),
            "texts": self.texts,
            "stored_texts": self.stored_texts,
            "overlaps": {str(number): asdict(share) for number, share in self.overlaps.items()},
            "rank_correlation": asdict(self.rank_correlation),
            "quality": None if self.quality is None else self.quality.document(),
        }


def compare(
    first: EvaluatedModel,
    second: EvaluatedModel,
    texts: str | Path | Sequence[str],
    *,
    neighbours_at: Sequence[int] = NEIGHBOURS_AT,
    stored_texts: int = STORED_TEXTS,
    labels: tuple[TextsSource, str | Path | Judgements, TextsSource] | str | Path | None = None,
    on_progress: Progress = lambda what, done, total: None,
    **settings: Any,
) -> ModelChange:
    """Compare two models over `texts`, a file or a sequence; for models see `evaluate`.

    A file is JSON lines, CSV or Parquet with a column of texts, or another file with a text on each line.
    Texts are embedded as documents. `labels` are queries, qrels and corpus, or a file of pairs, on which both
    models are evaluated too. `stored_texts` are the texts to embed again. `settings` are the keywords
    `api_key`, `cache_dir` and `seed`, and for labels all of `evaluate`. Raises `SetupError`, and the errors
    of the models.
    """
    given = read_texts(Path(texts)) if isinstance(texts, str | Path) else list(dict.fromkeys(texts))
    if len(given) < FEWEST_TEXTS:
        raise InvalidCorpus(
            f"There are {len(given)} different texts, and at least {FEWEST_TEXTS} are needed."
        )
    seed = settings.get("seed", 0)
    sides = [_embed(model, given, settings, stored_texts, on_progress) for model in (first, second)]
    ours, theirs = (ComparedVectors(rows, similarity) for _, rows, similarity in sides)
    depths = [number for number in dict.fromkeys(neighbours_at) if number < len(given)] or [1]
    shares = find_overlaps(ours, theirs, depths)
    correlations = correlate_ranks(ours, theirs, seed=seed)
    return ModelChange(
        sides[0][0],
        sides[1][0],
        len(given),
        stored_texts,
        {number: estimate_mean(each, seed=seed) for number, each in shares.items()},
        estimate_mean(correlations, seed=seed),
        None if labels is None else _evaluate([first, second], labels, on_progress, settings),
    )


def read_texts(path: Path) -> list[str]:
    """Read the different texts of a file. Raises `InvalidCorpus`, `InvalidConfig`, `MissingExtra`."""
    if path.suffix.lower() in (".txt", "") and not path.is_dir():
        if not path.is_file():
            raise InvalidCorpus(f"There is no file {path}.")
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidCorpus(f"{path} cannot be read as UTF-8: {error}.") from error
        return list(dict.fromkeys(line for line in lines if line.strip()))
    source = open_input(path)
    columns = choose_columns(source, ColumnOptions())
    return list(dict.fromkeys(record.values[0] for record in valid_records(source, columns)))


def _embed(
    model: EvaluatedModel,
    texts: Sequence[str],
    settings: Mapping[str, Any],
    stored_texts: int,
    tell: Progress,
) -> tuple[ComparedModel, FloatArray, Similarity]:
    prompts = PromptPair.parse("purpose")
    places = {name: settings.get(name) for name in ("api_key", "cache_dir")}
    # No query: the texts are compared with each other.
    task = SearchTask([], order_of_numbers(len(texts)), 1)
    with open_encoder(model, None, prompts, **places) as encoder:
        traits = encoder.traits
        if SearchKind.DENSE not in traits.searches:
            raise InvalidConfig(f"{traits.model} has no dense vectors, which are what is compared.")
        found = search_corpus(encoder, prompts, [SearchKind.DENSE], task, texts, tell)
    rows, speed = found.documents, found.texts_per_s
    assert rows is not None
    assert speed is not None
    size = rows.shape[1] * rows.itemsize
    told = ComparedModel(
        traits.model,
        traits.plan,
        traits.space,
        rows.shape[1],
        size,
        speed,
        stored_texts / speed / 3600,
        stored_texts * size,
    )
    is_cosine = traits.similarity is Similarity.COSINE
    return told, normalize_embeddings(rows) if is_cosine else rows, traits.similarity


def _evaluate(
    models: Sequence[EvaluatedModel],
    labels: tuple[TextsSource, str | Path | Judgements, TextsSource] | str | Path,
    tell: Progress,
    settings: Mapping[str, Any],
) -> QualityReport:
    if isinstance(labels, str | Path):
        return evaluate(models, pairs=labels, on_progress=tell, **settings)
    return evaluate(models, *labels, on_progress=tell, **settings)


def _describe_spaces(first: ComparedModel, second: ComparedModel) -> str:
    if first.space is None or second.space is None:
        return "Whether both are in one space is not known. Do not mix their vectors: embed all texts again."
    if first.space == second.space:
        return "Both are in one space: their vectors may stand in one collection."
    return "They are in two spaces: never put vectors of both into one collection. Embed all texts again."

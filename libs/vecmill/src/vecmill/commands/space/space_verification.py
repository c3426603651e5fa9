"""The run of `vecmill space verify`: read a sample, embed it again, and say what the stored vectors are."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecmill.bulk.embed_model import EmbedModel
from vecmill.commands.embed.options import choose_model
from vecmill.commands.embed.run import refuse_engine_options
from vecmill.commands.space.sample_embedders import (
    DEFAULT,
    NewVectors,
    SampleEmbedder,
    TriedPrompt,
    VectorForm,
    open_local_sample,
    open_remote_sample,
)
from vecmill.commands.space.space_verdict import VectorComparison, Verdict, compare_vectors, find_kind
from vecmill.commands.space.stored_vectors import StoredColumns, StoredSample, read_sample
from vecmill.errors import InvalidConfig
from vecmill.models.location import locate_model, locate_stored_model
from vecmill.requests import Purpose
from vecmill.values.download_log import show_downloads
from vecmill.values.embeddings import OutputDtype

# A cosine of the means from which vectors are probably those of other texts, and not of another space.
LIKELY_CENTROID = 0.8
# The rows that a report names.
MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of the command. `prompt` is the one that the user names, `None` to find out.

    `server` is a URL; without a URL this process embeds with `choice`. Unless `names_model`, the
    user named no model, and the one that the file names embeds.
    """

    file: Path
    columns: StoredColumns = field(default_factory=StoredColumns)
    choice: EmbedModel = field(default_factory=EmbedModel)
    names_model: bool = False
    server: str | None = None
    api_key: str | None = field(default=None, repr=False)
    prompt: TriedPrompt | None = None
    count: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """What the vectors of a file are.

    `comparison` is that of the prompt which fits best, `None` if the vectors have more dimensions than the
    model. `asked` is the prompt that the vectors should have, `None` if nothing names it.
    """

    sample: StoredSample
    about: str
    verdict: Verdict
    prompt: TriedPrompt
    asked: TriedPrompt | None = None
    comparison: VectorComparison | None = None
    space: str | None = None
    exact: str | None = None

    @property
    def is_of_this_space(self) -> bool:
        """Whether the vectors are those that this model gives, as far as the sample and the file tell."""
        return self.verdict in (Verdict.SAME_VALUES, Verdict.SAME_SPACE)


def parse_verify_options(file: Path, options: Mapping[str, Any]) -> VerifyOptions:
    """Convert the options of the command line, which are given by name. Raises `SetupError`."""
    server, name, purpose = options["server"], options["prompt_name"], options["purpose"]
    if server is not None:
        refuse_engine_options(options)
    if name is not None and purpose is not None:
        raise InvalidConfig("Name --prompt-name or --purpose, not both.")
    prompt = None if name is None else TriedPrompt.named(name)
    if purpose is not None:
        prompt = TriedPrompt.for_purpose(Purpose(purpose))
    columns = StoredColumns(options["vector_column"], options["text_column"], options["corpus"])
    return VerifyOptions(
        file,
        columns,
        choose_model(options),
        options["model"] is not None or options["config"] is not None,
        server,
        options["api_key"],
        prompt,
        options["count"],
        options["seed"],
    )


def verify_space(options: VerifyOptions) -> SpaceReport:
    """Compare a sample of stored vectors with new ones. Runs an event loop. Raises `SetupError`."""
    sample = read_sample(options.file, options.columns, count=options.count, seed=options.seed)
    return asyncio.run(_verify(options, sample))


async def _verify(options: VerifyOptions, sample: StoredSample) -> SpaceReport:
    async with _open_embedder(options, sample) as embedder:
        kind = find_kind(sample.vectors, sample.metadata.get("dtype"), embedder.dim)
        numbers = sample.vectors.shape[1] * (8 if kind.needs_bytes else 1)
        asked = options.prompt or _prompt_of_file(sample, embedder)
        first = asked or embedder.prompts[0]
        if numbers > embedder.dim:
            return SpaceReport(sample, embedder.about, Verdict.OTHER_SPACE, first, asked)
        form = VectorForm(None if numbers == embedder.dim else numbers, kind)
        new = await embedder.embed(sample.texts, first, form)
        prompt, comparison = first, compare_vectors(sample.vectors, new.vectors, kind)
        if not comparison.is_equal:
            # Also if all fit: of long texts, those with another prompt differ little.
            prompt, comparison = await _try_prompts(embedder, sample, form, first, comparison)
    verdict = comparison.verdict
    is_same = verdict in (Verdict.SAME_VALUES, Verdict.SAME_SPACE)
    if is_same and asked is not None and prompt != asked:
        verdict = Verdict.OTHER_PROMPT
    elif is_same and _names_other(sample, new):
        verdict = Verdict.OTHER_NAME
    return SpaceReport(sample, embedder.about, verdict, prompt, asked, comparison, new.space, new.exact)


def _open_embedder(
    options: VerifyOptions, sample: StoredSample
) -> AbstractAsyncContextManager[SampleEmbedder]:
    choice, name = options.choice, sample.metadata.get("name")
    if options.server is not None:
        return open_remote_sample(options.server, choice.model, options.api_key)
    with show_downloads():
        if not options.names_model and isinstance(name, str):
            # Nothing that a file names is downloaded.
            location = locate_stored_model(name, None, options.file)
        else:
            location = locate_model(choice.model, trusts_code=choice.trusts_code)
    return open_local_sample(location, choice.config, choice.task)


def _prompt_of_file(sample: StoredSample, embedder: SampleEmbedder) -> TriedPrompt | None:
    """Return the prompt that the metadata of a file name, `None` if they do not tell."""
    if "space" not in sample.metadata:
        return None
    name = sample.metadata.get("prompt_name")
    if isinstance(name, str):
        return TriedPrompt.named(name)
    return None if embedder.bare == DEFAULT else embedder.bare


async def _try_prompts(
    embedder: SampleEmbedder,
    sample: StoredSample,
    form: VectorForm,
    first: TriedPrompt,
    found: VectorComparison,
) -> tuple[TriedPrompt, VectorComparison]:
    """Return the prompt that fits best, and its comparison; `found` is that of the prompt `first`."""
    best, comparison = first, found
    for prompt in embedder.prompts:
        if prompt == first:
            continue
        try:
            new = await embedder.embed(sample.texts, prompt, form)
        except InvalidConfig:  # the model has no such prompt
            continue
        other = compare_vectors(sample.vectors, new.vectors, form.kind)
        if (other.share, other.median) > (comparison.share, comparison.median):
            best, comparison = prompt, other
    return best, comparison


def _names_other(sample: StoredSample, new: NewVectors) -> bool:
    """Return whether the file names another space than that of the new vectors, by the same scheme."""
    named = sample.metadata.get("space")
    if not isinstance(named, str) or new.space is None:
        return False
    return named != new.space and named.partition("-")[0] == new.space.partition("-")[0]


def describe_report(report: SpaceReport) -> dict[str, Any]:
    """Return a report as values for JSON."""
    sample, comparison = report.sample, report.comparison
    named = {name: sample.metadata.get(name) for name in ("name", "space", "exact", "prompt_name")}
    page: dict[str, Any] = {
        "verdict": report.verdict,
        "is_of_this_space": report.is_of_this_space,
        "rows": sample.rows,
        "sampled": len(sample.places),
        "numbers": sample.vectors.shape[1],
        "file": named,
        "model": {"about": report.about, "space": report.space, "exact": report.exact},
        "prompt": report.prompt.label,
    }
    if comparison is not None:
        worst = int(comparison.cosines.argmin())
        page |= {
            "dtype": comparison.kind,
            "cosine_median": comparison.median,
            "cosine_worst": float(comparison.cosines[worst]),
            "worst_row": sample.places[worst],
            "unlike_rows": [
                place for place, fits in zip(sample.places, comparison.fits, strict=True) if not fits
            ],
            "lengths": {"stored": comparison.lengths[0], "new": comparison.lengths[1]},
            "centroid_cosine": comparison.centroid_cosine,
        }
    return page


def lay_out_report(report: SpaceReport) -> Iterator[str]:
    """Yield the lines of a report for a terminal."""
    sample, comparison = report.sample, report.comparison
    yield f"{'vectors':<18}{sample.rows:,} of {sample.vectors.shape[1]} numbers"
    for name, word in (("name", "model"), ("space", "space"), ("exact", "exact")):
        if sample.metadata.get(name) is not None:
            yield f"{f'{word} of the file':<18}{sample.metadata[name]}"
    yield f"{'model here':<18}{report.about}"
    for word, value in (("space here", report.space), ("exact here", report.exact)):
        if value is not None:
            yield f"{word:<18}{value}"
    if comparison is not None:
        worst = int(comparison.cosines.argmin())
        yield f"{'sample':<18}{len(sample.places)} rows, {comparison.kind}"
        yield f"{'prompt':<18}{report.prompt.label}"
        yield f"{'cosine, median':<18}{comparison.median:.8f}"
        yield f"{'cosine, worst':<18}{comparison.cosines[worst]:.8f} (row {sample.places[worst]})"
        if comparison.kind is OutputDtype.FLOAT and comparison.is_scaled:
            stored, new = comparison.lengths
            yield f"{'length, median':<18}{stored:.4g} in the file, {new:.4g} here: normalised in another way"
    yield explain_verdict(report)


def explain_verdict(report: SpaceReport) -> str:
    """Return the verdict as a sentence."""
    comparison = report.comparison
    if comparison is None:
        return (
            f"OTHER SPACE: the vectors have {report.sample.vectors.shape[1]} numbers, more than this model "
            "has dimensions."
        )
    match report.verdict:
        case Verdict.SAME_VALUES:
            return "SAME: the vectors are of this space, and have the same values."
        case Verdict.SAME_SPACE:
            return "SAME: the vectors are of this space, within the error of the precision."
        case Verdict.OTHER_PROMPT:
            asked = "" if report.asked is None else f", not with {report.asked.label}"
            return (
                f"OTHER PROMPT: the vectors are of this space, and were made with the prompt "
                f"{report.prompt.label}{asked}."
            )
        case Verdict.OTHER_NAME:
            return (
                "OTHER SPACE: the sample fits, but the file names another space. `vecmill describe --space` "
                "lists the parts of a space, such as the table of prompts."
            )
        case Verdict.OTHER_TEXTS:
            return _explain_other_texts(report, comparison)
        case Verdict.OTHER_SPACE:
            return _explain_other_space(comparison)


def _explain_other_texts(report: SpaceReport, comparison: VectorComparison) -> str:
    unlike = [place for place, fits in zip(report.sample.places, comparison.fits, strict=True) if not fits]
    more = ", ..." if len(unlike) > MOST_NAMED else ""
    rows = ", ".join(map(str, unlike[:MOST_NAMED])) + more
    return (
        f"OTHER TEXTS: {len(unlike)} of {len(comparison.cosines)} vectors are not those of their texts, in "
        f"the rows {rows}. The others are of this space."
    )


def _explain_other_space(comparison: VectorComparison) -> str:
    sentence = f"OTHER SPACE: the median cosine of the same text is {comparison.median:.3f}."
    if comparison.centroid_cosine < LIKELY_CENTROID:
        return sentence
    return (
        f"{sentence} But the means of both have a cosine of {comparison.centroid_cosine:.3f}: the vectors "
        "may be of this space and belong to other texts, for example in another order."
    )

"""Checking an engine against a reference, over texts, whoever shares the batch."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vecmill.engines.base import Engine
from vecmill.fidelity.comparison import Comparison, compare_rows
from vecmill.fidelity.reference import Reference
from vecmill.models import ModelDescription
from vecmill.tokens import Tokenizer
from vecmill.types import Batch, FloatArray, TokenSequence

LARGEST_BATCH = 12


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """What was compared with what, and how far apart they are."""

    model: str
    engine: str
    precision: str
    reference: str
    comparison: Comparison

    def is_within(self, tolerance: float) -> bool:
        """Whether no component is off by more."""
        return self.comparison.largest_difference <= tolerance

    def lines(self) -> list[str]:
        """The report for a terminal."""
        found = self.comparison
        kept = "too few texts" if found.neighbours_kept is None else f"{found.neighbours_kept:.4f}"
        return [
            f"{self.model}: engine {self.engine}, {self.precision}, against {self.reference}",
            f"texts               {found.texts}",
            f"largest difference  {found.largest_difference:.2e}",
            f"cosine, worst text  {found.cosine_min:.8f} (text {found.worst_text})",
            f"cosine, mean        {found.cosine_mean:.8f}",
            f"neighbours kept     {kept}",
        ]


def check_fidelity(
    description: ModelDescription,
    engine: Engine,
    reference: Reference,
    texts: Sequence[str],
    *,
    seed: int = 0,
) -> FidelityReport:
    """Embed `texts` through `engine`, in batches of random company, and compare with `reference`."""
    sequences = Tokenizer.load(description).encode(texts, prompt=description.default_prompt)
    rows = embed_in_company(engine, sequences, seed=seed)
    return FidelityReport(
        model=description.name,
        engine=engine.info.name,
        precision=engine.info.precision,
        reference=reference.name,
        comparison=compare_rows(rows, reference.embed(texts)),
    )


def embed_in_company(engine: Engine, sequences: Sequence[TokenSequence], *, seed: int) -> FloatArray:
    """The rows of all `sequences`, (texts, dim), computed in batches that `seed` draws."""
    rows: list[FloatArray | None] = [None] * len(sequences)
    for members in _draw_batches(len(sequences), seed):
        found = engine.run(
            Batch.of([sequences[member] for member in members]), width=engine.info.lane_widths[0]
        )
        for place, member in enumerate(members):
            rows[member] = found.row(place)
    return np.concatenate([row for row in rows if row is not None])


def _draw_batches(count: int, seed: int) -> Iterator[list[int]]:
    chance = random.Random(seed)
    members = list(range(count))
    chance.shuffle(members)
    while members:
        size = chance.randint(1, LARGEST_BATCH)
        yield members[:size]
        members = members[size:]

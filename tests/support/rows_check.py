"""The one check of rows against a reference, whatever the batch-mates."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings

TOLERANCE = 1e-4
PLANS = ("alone", "random", "sorted")

Run = Callable[[Batch], Embeddings]


def batch_plans(lengths: Sequence[int], seed: int) -> Mapping[str, list[list[int]]]:
    """Ways to put texts into batches, as lists of their indices: each text once in each plan."""
    chance = random.Random(seed)
    anyhow = list(range(len(lengths)))
    chance.shuffle(anyhow)
    ordered = sorted(range(len(lengths)), key=lengths.__getitem__)
    mixed = []
    while anyhow:
        size = chance.randint(2, 12)
        mixed.append(anyhow[:size])
        anyhow = anyhow[size:]
    return {
        "alone": [[index] for index in range(len(lengths))],
        "random": mixed,
        "sorted": [ordered[start : start + 8] for start in range(0, len(ordered), 8)],
    }


def compute_rows(run: Run, sequences: Sequence[TokenSequence], plan: Sequence[Sequence[int]]) -> FloatArray:
    """The rows of all texts, (texts, dim), computed in the batches of `plan`."""
    found: dict[int, FloatArray] = {}
    for indices in plan:
        rows = run(Batch.of([sequences[index] for index in indices]))
        assert len(rows) == len(indices)
        found |= {index: rows.of_text(place)[0] for place, index in enumerate(indices)}
    return np.stack([found[index] for index in range(len(sequences))])


def assert_same_rows(
    run: Run,
    sequences: Sequence[TokenSequence],
    expected: FloatArray,
    *,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    plans: Collection[str] = PLANS,
) -> float:
    """Every row within `tolerance` of the expected one, in every plan. Returns the largest difference."""
    largest = 0.0
    for name, plan in batch_plans([len(sequence) for sequence in sequences], seed).items():
        if name not in plans:
            continue
        rows = compute_rows(run, sequences, plan)
        assert rows.shape == expected.shape
        differences = np.abs(rows - expected).max(axis=1)
        worst = int(np.argmax(np.nan_to_num(differences, nan=np.inf)))
        # Written so that NaN fails.
        assert differences[worst] <= tolerance, (
            f"batches {name} (seed {seed}): text {worst} of {len(sequences[worst])} tokens is off by "
            f"{differences[worst]:.2e}, more than {tolerance:.0e}"
        )
        largest = max(largest, float(differences[worst]))
    return largest

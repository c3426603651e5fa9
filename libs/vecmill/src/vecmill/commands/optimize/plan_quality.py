"""The retrieval quality of plans on labelled texts: `vecmill evaluate` in a process of its own for each kind.

Plans of one engine, device and precision give the same vectors, so each kind is evaluated once.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.commands.optimize.measurements import Measurements
from vecmill.errors import SetupError
from vecmill.evaluation.labelled_files import read_labelled, read_pairs
from vecmill.evaluation.retrieval_measures import NDCG, import_measures
from vecmill.evaluation.significance import Estimate, find_p_value
from vecmill.serving_plan.plans import kind_of
from vecmill.values.engine_plan import EnginePlan

# The engine, the device and the precision; see `kind_of`.
PlanKind = tuple[str, str | None, str | None]

COMMAND = (sys.executable, "-m", "vecmill", "evaluate")


@dataclass(frozen=True, slots=True)
class LabelFiles:
    """The files of labelled texts: queries, qrels and corpus, or only pairs."""

    queries: Path | None = None
    qrels: Path | None = None
    corpus: Path | None = None
    pairs: Path | None = None

    @property
    def words(self) -> list[str]:
        """The options of the command line that name the files."""
        named = {
            "--queries": self.queries,
            "--qrels": self.qrels,
            "--corpus": self.corpus,
            "--pairs": self.pairs,
        }
        return [word for option, file in named.items() if file is not None for word in (option, str(file))]

    def check(self) -> None:
        """Read the files once, so that a wrong line is told first. Raises `SetupError`, `MissingExtra`."""
        import_measures()
        if self.pairs is not None:
            read_pairs(self.pairs)
        else:
            assert self.queries is not None
            assert self.qrels is not None
            assert self.corpus is not None
            read_labelled(self.queries, self.qrels, self.corpus)


@dataclass(frozen=True, slots=True)
class PlanQuality:
    """The nDCG@10 of a plan, over so many queries, and the p-value of its difference to the safe plan."""

    ndcg: Estimate
    queries: int
    p_value: float | None


def measure_qualities(
    measured: Measurements,
    files: LabelFiles,
    model: str,
    cache_dir: str,
    on_step: Callable[[str], None],
) -> dict[PlanKind, PlanQuality]:
    """Evaluate each kind of plan that was loaded, the safe one first. Raises `SetupError` if that fails.

    Other kinds that fail are left out.
    """
    kinds = list(dict.fromkeys(kind_of(plan) for plan in (measured.safe, *measured.screenings)))
    found: dict[PlanKind, PlanQuality] = {}
    safe: Sequence[float] | None = None
    for kind in kinds:
        name = describe_kind(kind)
        on_step(f"{name}: evaluating on labelled texts")
        done = subprocess.run(
            [*COMMAND, model, *files.words, "--plan", name, "--cache-dir", cache_dir, "--json"],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            if safe is None:
                raise SetupError(f"The safe plan, {name}, cannot be evaluated: {_last_line(done.stderr)}.")
            continue
        report = json.loads(done.stdout)
        values = report["rows"][0]["ndcg_by_query"]
        found[kind] = _compare(report, values, safe)
        safe = safe or values
    return found


def describe_kind(kind: PlanKind) -> str:
    """Return a kind as `vecmill evaluate --plan` takes it."""
    engine, device, precision = kind
    return engine + (f":{precision}" if precision else "") + (f"@{device}" if device else "")


def find_quality(qualities: Mapping[PlanKind, PlanQuality], plan: EnginePlan) -> PlanQuality | None:
    """Return the quality of a plan, `None` if its kind was not evaluated."""
    return qualities.get(kind_of(plan))


def _compare(report: Mapping[str, Any], values: Sequence[float], safe: Sequence[float] | None) -> PlanQuality:
    estimate = Estimate(**report["rows"][0]["measures"][NDCG])
    p_value = None if safe is None else find_p_value(np.array(values), np.array(safe))
    return PlanQuality(estimate, len(values), p_value)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("Error: ").rstrip(".") if lines else "its process ended without a message"

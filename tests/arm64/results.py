"""What the tests in the root found out: the differences of each family, and the seconds of each test."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

_DIFFERENCES = "differences.jsonl"


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference of a number between both processors, over all texts of a model."""

    family: str
    precision: str
    largest: float
    worst_cosine: float

    def __str__(self) -> str:
        return f"{self.family:<28}{self.precision:<6}{self.largest:10.1e}  cosine {self.worst_cosine:.6f}"

    def append(self, folder: Path) -> None:
        """Write this difference after those that are in `folder`."""
        document = {name: getattr(self, name) for name in self.__slots__}
        with (folder / _DIFFERENCES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")


def read_differences(folder: Path) -> list[Difference]:
    """Return the differences in `folder`, in order; none if there are none."""
    path = folder / _DIFFERENCES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Difference(**json.loads(line)) for line in lines]


def write_report(file: Path, folder: Path, statuses: Mapping[str, int | None], seconds: float) -> None:
    """Write what is in `folder`, with the exit status of each part, as one JSON file."""
    differences = read_differences(folder)
    document = {
        "seconds": round(seconds),
        "parts": statuses,
        "largest": max((one.largest for one in differences if one.precision == "fp32"), default=None),
        "families": {
            f"{one.family} {one.precision}": {"largest": one.largest, "worst_cosine": one.worst_cosine}
            for one in differences
        },
        "tests": {name: dict(_read_tests(folder / f"{name}.xml")) for name in statuses},
    }
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _read_tests(file: Path) -> Iterator[tuple[str, dict[str, str | float]]]:
    """Yield the name of each test, how it ended and its seconds; nothing if pytest was killed."""
    if not file.exists():
        return
    for case in ElementTree.parse(file).iter("testcase"):
        ends = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = ends[0] if ends else "passed"
        yield f"{case.get('name')}", {"outcome": outcome, "seconds": float(case.get("time", 0))}

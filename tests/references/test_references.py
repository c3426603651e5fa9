"""References are read where they are recorded; one that is missing, changed or outdated is an error."""

import json
import re
import shutil
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from support.references import (
    LIBRARIES,
    VERSIONS,
    ChangedReference,
    MissingReference,
    Mode,
    Packed,
    Records,
    collect_records,
    draw_weights,
)

TESTS = Path(__file__).parents[1]
PINNED = (TESTS / "requirements.lock", TESTS / "torch.txt")


class Ask(Protocol):
    def __call__(self, mode: Mode, number: float, *, repeatable: bool = True) -> float: ...


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Ask one question in a mode, of a library that answers with a number; what was recorded is collected."""

    def in_mode(mode: Mode, number: float, *, repeatable: bool = True) -> float:
        records = Records(tmp_path, mode, tmp_path / "left")
        packed = Packed("rows", {"rows": np.array([number])})
        found = records.answer("key", lambda: packed, lambda packed: packed, repeatable=repeatable)
        collect_records(tmp_path, tmp_path / "left")
        shutil.rmtree(tmp_path / "left", ignore_errors=True)
        return float(found.arrays["rows"][0])

    return in_mode


def test_the_records_are_of_the_pinned_versions() -> None:
    pins = "\n".join(path.read_text("utf-8") for path in PINNED)
    pinned = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)", pins, re.MULTILINE))
    recorded = json.loads(VERSIONS.read_text("utf-8"))
    assert recorded == {name: pinned[name] for name in LIBRARIES}, "record again: make references-anew"


def test_a_question_without_a_record_is_an_error(ask: Ask) -> None:
    with pytest.raises(MissingReference, match="make references ARGS=tests/references/test_references"):
        ask(Mode.READ, 1.0)


def test_a_record_is_read_and_no_library_is_asked_again(ask: Ask) -> None:
    assert ask(Mode.RECORD, 1.0) == 1.0
    assert ask(Mode.READ, 2.0) == ask(Mode.RECORD, 2.0) == 1.0


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        ([{"score": 0.5, "id": 3, "text": "cat"}], 0.0),
        ([{"score": 0.5 + 1e-7, "id": 3, "text": "cat"}], 1e-7),
        ([{"score": 0.75, "id": 3, "text": "cat"}], 0.25),
        ([{"score": 0.5, "id": 4, "text": "cat"}], np.inf),
        ([{"score": 0.5, "id": 3, "text": "dog"}], np.inf),
        ([{"score": 1, "id": 3, "text": "cat"}], np.inf),
        ([{"score": 0.5, "id": 3}], np.inf),
        ([], np.inf),
    ],
)
def test_numbers_in_a_document_differ_by_as_much_as_those_of_arrays(other: object, apart: float) -> None:
    recorded = Packed([{"score": 0.5, "id": 3, "text": "cat"}])
    assert Packed(other).difference(recorded) == pytest.approx(apart)


def test_a_library_that_answers_otherwise_is_found(ask: Ask) -> None:
    ask(Mode.RECORD, 1.0)
    assert ask(Mode.COMPUTE, 1.0 + 1e-6) == 1.0 + 1e-6
    for changed in (1.001, np.nan, np.inf):
        with pytest.raises(ChangedReference, match="make references-anew"):
            ask(Mode.COMPUTE, changed)


def test_what_a_library_makes_in_another_way_each_time_stays_as_it_was_recorded(ask: Ask) -> None:
    ask(Mode.RECORD, 1.0, repeatable=False)
    assert ask(Mode.COMPUTE, 2.0, repeatable=False) == 1.0


def test_without_a_record_the_library_is_asked_where_all_is_computed(ask: Ask) -> None:
    assert ask(Mode.COMPUTE, 3.0) == 3.0
    with pytest.raises(MissingReference):  # it records nothing
        ask(Mode.READ, 3.0)


def test_records_that_nobody_asks_for_are_forgotten(ask: Ask, tmp_path: Path) -> None:
    ask(Mode.RECORD, 1.0)
    collect_records(tmp_path, tmp_path / "left", only_used=True)
    with pytest.raises(MissingReference):
        ask(Mode.READ, 1.0)


def test_weights_differ_by_name_and_seed_and_norms_are_around_one() -> None:
    draw = draw_weights(1, 0.1, {"classifier.weight": 1.0})
    dense = draw("layer.dense.weight", (64, 64))
    assert np.array_equal(dense, draw("layer.dense.weight", (64, 64)))
    assert not np.allclose(dense, draw("layer.other.weight", (64, 64)))
    assert not np.allclose(dense, draw_weights(2, 0.1)("layer.dense.weight", (64, 64)))
    assert abs(dense.mean()) < 0.02 < 0.98 < draw("layer.LayerNorm.weight", (4096,)).mean() < 1.02
    assert draw("classifier.weight", (64, 64)).std() > 0.9

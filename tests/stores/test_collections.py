"""What each store has after each run, read by its own client, and what a run is refused for."""

import json
from pathlib import Path
from typing import Any

import pytest

from stores.counted_server import DIM, vector_of
from stores.scenario import OTHER_SPACE, SPACE, play
from stores.store_places import HERE, KINDS, store_in

ID = 'it\'s "one"; --'
SCRIPT = str(Path(__file__).with_name("scenario.py"))


@pytest.fixture(scope="module", params=KINDS)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What came of each step of the scenario, in one of the stores."""
    with store_in(request.param, tmp_path_factory.mktemp(request.param)) as store:
        line = (store.kind, store.place, store.address)
        return play(*line) if store.kind in HERE else json.loads(store.run(SCRIPT, *line))


def text_of(at: int) -> str:
    return f"text {at}"


def counts(outcome: Any) -> tuple[int, ...]:
    """How many texts were embedded, got other columns only and did not change; how many rows were deleted."""
    assert "error" not in outcome, outcome["error"]
    return tuple(outcome[name] for name in ("embedded", "updated", "unchanged", "deleted"))


def test_all_rows_are_there_with_their_columns_and_vectors(outcomes: Any) -> None:
    first = outcomes["first"]
    assert counts(first) == (20, 0, 0, 0)
    assert sorted(first["rows"]) == sorted(f"n{at}" for at in range(20))
    row = first["rows"]["n12"]
    assert row["embedding"] == pytest.approx(vector_of(text_of(12)).tolist(), abs=1e-5)
    assert (row["id"], row["tag"], row["vecmill_source"]) == ("n12", 12, "a")
    # The text is kept only if it is asked for.
    assert set(row) == {"id", "tag", "vecmill_source", "vecmill_digest", "embedding"}


def test_nothing_is_embedded_again(outcomes: Any) -> None:
    assert counts(outcomes["again"]) == (0, 0, 20, 0)
    assert outcomes["again"]["seen"] == []
    assert outcomes["again"]["rows"] == outcomes["first"]["rows"]


def test_only_texts_that_changed_are_embedded(outcomes: Any) -> None:
    step = outcomes["changed"]
    assert counts(step) == (1, 2, 16, 0)
    assert step["seen"] == ["another text"]
    assert step["vanished"] == 1
    rows, before = step["rows"], outcomes["first"]["rows"]
    assert rows["n3"]["embedding"] == pytest.approx(vector_of("another text").tolist(), abs=1e-5)
    assert rows["n4"]["tag"] == 404
    assert rows["n4"]["embedding"] == before["n4"]["embedding"]
    assert "tag" not in rows["n5"]
    assert rows["n7"] == before["n7"]


def test_rows_that_vanished_are_deleted_if_that_is_asked_for(outcomes: Any) -> None:
    assert counts(outcomes["vanished"]) == (0, 0, 19, 1)
    assert "n7" not in outcomes["vanished"]["rows"]
    assert len(outcomes["vanished"]["rows"]) == 19


def test_only_rows_of_the_same_source_are_deleted(outcomes: Any) -> None:
    assert counts(outcomes["other source"]) == (1, 0, 0, 0)
    assert counts(outcomes["nothing of another"]) == (0, 0, 18, 1)
    rows = outcomes["nothing of another"]["rows"]
    assert "n19" not in rows
    assert rows[ID]["vecmill_source"] == "b"


def test_an_id_of_another_source_is_refused(outcomes: Any) -> None:
    step = outcomes["same id"]
    assert "row 1 has the id 'n1'" in step["error"]
    assert "from the source 'a', not from 'b'" in step["error"]
    assert step["seen"] == []
    assert step["rows"] == outcomes["nothing of another"]["rows"]


def test_a_column_can_be_added_without_embedding(outcomes: Any) -> None:
    assert counts(outcomes["new column"]) == (0, 1, 0, 0)
    assert outcomes["new column"]["rows"][ID]["title"] == "T"
    assert "title" not in outcomes["new column"]["rows"]["n1"]


def test_another_space_is_refused_with_both_named(outcomes: Any) -> None:
    step = outcomes["other space"]
    assert SPACE in step["error"]
    assert OTHER_SPACE in step["error"]
    assert step["seen"] == []
    assert step["rows"] == outcomes["new column"]["rows"]


def test_other_dimensions_and_distances_are_refused(outcomes: Any) -> None:
    told = outcomes["other dimensions"]["error"]
    assert f"the dimensions {DIM}, but the new ones have {DIM // 2}" in told
    if "other distance" in outcomes:
        told = outcomes["other distance"]["error"]
        assert "the distance cosine, but the new ones have euclidean" in told


def test_bits_and_sparse_vectors_are_written_where_a_store_has_them(outcomes: Any) -> None:
    bits = [(vector_of(text) > 0).astype(int).tolist() for text in ("x", "xx")]
    if "sparse" in outcomes:
        assert outcomes["bits"] == ["".join(map(str, row)) for row in bits]
        # PostgreSQL counts places from 1.
        assert outcomes["sparse"] == ["{2:0.5,1000:2}/1000", "{3:0.5,1000:2}/1000"]
    elif "bits" in outcomes:
        assert outcomes["bits"] == bits

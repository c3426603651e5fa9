"""Hostile pictures harm nobody but their sender: each is a 400 or an embedding, and the server goes on."""

from pathlib import Path

import pytest

from chaos.hostile_pictures import picture_server, send_files
from support.hostile_pictures import hostile_pictures

MOST_ADDED_MB = 200
LONGEST_GAP_S = 0.25
MOST_RATIO = 1.5


@pytest.mark.linux
@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize(
    "count", [20, pytest.param(10_000, marks=[pytest.mark.full, pytest.mark.alone])], ids=str
)
def test_every_hostile_picture_is_a_400_or_an_embedding(tmp_path: Path, count: int) -> None:
    with picture_server(tmp_path) as server:
        found = send_files(server, count, alone_s=0.2 if count < 100 else 10.0)
        assert server.process.poll() is None
    print(found)
    assert found.wrong == []
    assert set(found.statuses) == {200, 400}
    assert found.statuses.total() == count + len(hostile_pictures())
    assert found.added_mb < MOST_ADDED_MB, found
    assert found.gap.own_s < LONGEST_GAP_S, found
    if count >= 10_000:  # few texts, beside other tests, have no median that means anything
        assert found.beside_ms < MOST_RATIO * found.beside_texts_ms, found
        assert found.beside_ms < MOST_RATIO * found.alone_ms, found

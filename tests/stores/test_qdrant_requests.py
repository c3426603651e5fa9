"""What a server of Qdrant is sent: the same rows come of it as in the client's local mode."""

import json
from pathlib import Path

from stores.qdrant_server import RECORDED, play_requests, summarise
from stores.scenario import play
from stores.store_places import place_in


def test_a_server_gets_the_recorded_requests(fast_folder: Path) -> None:
    outcomes, sent = play_requests(fast_folder / "server")
    local = place_in("qdrant", fast_folder / "local")
    expected = play("qdrant", local.place, local.address)
    assert {step: found["rows"] for step, found in outcomes.items()} == {
        step: found["rows"] for step, found in expected.items()
    }
    assert summarise(sent) == json.loads(RECORDED.read_text("utf-8"))
    # Every write is answered when it is done.
    assert all("wait=true" in request["path"] for request in sent if is_write(request))


def is_write(request: dict[str, object]) -> bool:
    path = str(request["path"])
    return path.startswith("/collections/docs/points") and not any(
        name in path for name in ("scroll", "count")
    )

"""Pictures by the packages of clients: each gets the embeddings of the library for the same file.

Requests of packages that `make test` does not install are recorded in `requests/`, and sent as they are;
`python -m clients.test_pictures` records them anew.
"""

import base64
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from clients.inputs import LABELS, PICTURE_MODEL, PICTURE_TEXT, PICTURES
from clients.record_requests import FOLDER, read
from clients.request_recorder import SentRequest, recording
from clients.test_recorded_requests import comparable, read_rows
from support.client_packages import Outcome, drive, driver_and_group
from support.server import LiveServer, live_server
from support.two_towers import embed_by_library, save_clip
from vecmill import ClassifyByLabels, MillConfig, Picture, SyncMill
from vecmill.values.aliases import FloatArray

FILES = [base64.b64decode(each) for each in PICTURES]
PATCHES, SIDE = 17, 32
# The calls of each driver@group that are recorded. Each embeds `PICTURES`.
RECORDED: Mapping[str, tuple[str, ...]] = {
    "pictures_hosted@hosted": ("embed", "embed at the root"),
    "pictures_langchain@langchain": ("embed", "embed at the older route", "embed by langchain"),
}
CALLS = [(client, call) for client, calls in RECORDED.items() for call in calls]


@contextmanager
def serve(folder: Path) -> Iterator[LiveServer]:
    """A server of a model of texts and pictures."""
    model = str(save_clip(folder / PICTURE_MODEL))
    options = ("--cores", "1", "--cache-dir", str(folder / "cache"))
    with live_server(folder, arguments=(model, *options)) as running:
        yield running


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serve(tmp_path_factory.mktemp("pictures")) as running:
        yield running


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> FloatArray:
    """The embeddings of `PICTURES`, and that of `PICTURE_TEXT`."""
    model = save_clip(tmp_path_factory.mktemp("reference") / PICTURE_MODEL)
    found = embed_by_library(model, [PICTURE_TEXT], FILES)
    return np.concatenate((found[1:], found[:1]))


@pytest.fixture(scope="module")
def outcomes(pictures: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """What came of the calls by the packages that `make test` installs."""
    driver, group = driver_and_group("pictures_providers")
    return drive(driver, group, pictures.url, tmp_path_factory.mktemp("scratch"))


def near(found: Any, expected: FloatArray) -> bool:
    return bool(np.abs(np.array(found, np.float32) - expected).max() < 1e-4)


@pytest.mark.parametrize(
    ("call", "count"),
    [
        ("cohere v1", 3),
        ("cohere v2", 3),
        ("cohere v2 in parts", 4),
        ("voyage", 4),
        ("voyage at its own path", 4),
        ("openai", 3),
    ],
)
def test_packages_get_the_embeddings_of_the_library(
    outcomes: Mapping[str, Outcome], expected: FloatArray, call: str, count: int
) -> None:
    assert near(outcomes[call].unwrap(), expected[:count])


def test_messages_by_openai_s_package(outcomes: Mapping[str, Outcome], expected: FloatArray) -> None:
    assert near(outcomes["openai messages"].unwrap(), expected[0])


def test_packages_read_what_was_used(outcomes: Mapping[str, Outcome]) -> None:
    units = outcomes["cohere units"].unwrap()
    assert (units["images"], units["image_tokens"]) == (3, 3 * PATCHES)
    text, image_pixels, video_pixels, total = outcomes["voyage usage"].unwrap()
    assert (image_pixels, video_pixels) == (3 * SIDE**2, 0)
    assert text == units["input_tokens"] == total - 3 * PATCHES


def test_hugging_face_s_package_gets_labels_for_pictures_and_texts(
    outcomes: Mapping[str, Outcome], tmp_path: Path
) -> None:
    with SyncMill(save_clip(tmp_path / "model"), MillConfig(cache_dir=tmp_path / "cache")) as mill:
        inputs = (Picture(FILES[0]), PICTURE_TEXT)
        scores = mill.run(ClassifyByLabels(inputs, tuple(LABELS), "a {}")).scores
    for call, row in (("label a picture", scores[0]), ("label a text", scores[1])):
        found = {entry["label"]: entry["score"] for entry in outcomes[call].unwrap()}
        assert near([found[label] for label in LABELS], row)


def test_packages_raise_what_names_the_field(outcomes: Mapping[str, Outcome]) -> None:
    error = outcomes["error of cohere"].raised()
    assert error.types[0] == "BadRequestError"
    assert "`images[0]` is no base64" in error.message
    error = outcomes["error of voyage"].raised()
    assert error.types[0] == "InvalidRequestError"
    assert "`inputs[0].content[0]` stands beside a picture" in error.message


@pytest.mark.parametrize(("client", "call"), CALLS)
def test_recorded_requests_get_the_embeddings_of_the_library(
    pictures: LiveServer, expected: FloatArray, client: str, call: str
) -> None:
    request = read(client)[call]
    url = f"{pictures.url}{request.path}"
    answer = httpx.request(
        request.method, url, headers=dict(request.headers), content=request.body, timeout=60
    )
    assert answer.status_code == 200, answer.text
    assert "x-unknown-fields" not in answer.headers
    assert near(read_rows(answer.json()), expected[:3])


def record(client: str, url: str, scratch: Path) -> dict[str, SentRequest]:
    """The request of each recorded call of a client, which are answered by the server at `url`."""
    driver, group = driver_and_group(client)
    found = {}
    for call in RECORDED[client]:
        with recording(url) as (proxy, requests):
            drive(driver, group, proxy, scratch, call)[call].unwrap()
        (found[call],) = requests
    return found


@pytest.mark.full
@pytest.mark.parametrize("client", RECORDED)
def test_the_packages_still_send_them(pictures: LiveServer, tmp_path: Path, client: str) -> None:
    sent = {call: comparable(request) for call, request in record(client, pictures.url, tmp_path).items()}
    assert sent == {call: comparable(request) for call, request in read(client).items()}


@pytest.mark.full
def test_azure_s_package_is_told_that_a_text_is_refused(pictures: LiveServer, tmp_path: Path) -> None:
    outcome = drive("pictures_hosted", "hosted", pictures.url, tmp_path, "error")["error"]
    assert "`input[0].text` stands beside a picture" in outcome.raised().message


def main() -> None:
    """Record the requests of all clients."""
    with tempfile.TemporaryDirectory() as name, serve(Path(name)) as server:
        for client in RECORDED:
            requests = {call: asdict(sent) for call, sent in record(client, server.url, Path(name)).items()}
            (FOLDER / f"{client}.json").write_text(f"{json.dumps(requests, indent=2)}\n", "utf-8")


if __name__ == "__main__":
    main()

"""URLs of pictures at the routes: fetched from listed hosts, for requests that are not refused."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.drawn_pictures import draw_picture, write_picture
from support.http_server import PATIENCE_S, QUIET, build_service, post, run_in_thread, wait_until
from support.picture_host import (
    PictureHost,
    RoutedNetwork,
    ScriptedNames,
    endlessly,
    redirect,
    respond,
    serve_pictures,
)
from support.two_towers import save_clip
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill_server.service.picture_fetcher import FetchLimits, PictureFetcher
from vecmill_server.service.service import Service

FILE = write_picture(draw_picture("RGB", 40, 30), "PNG")
KEY = {"authorization": "Bearer a-key"}
PUBLIC = "93.184.216.34"
URL = "http://images.example.org/a.png"


@dataclass(frozen=True, slots=True)
class Fetching:
    """A server that fetches pictures, and the host that it fetches from."""

    client: httpx.Client
    host: PictureHost
    service: Service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


@pytest.fixture(scope="module")
def fetching(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetching]:
    base = tmp_path_factory.mktemp("server")
    settings = replace(
        QUIET,
        image_urls=("images.example.org", "*.inside.example:8080"),
        api_key=("a-key",),
        batch_dir=base / "batches",
    )
    config = MillConfig(cache_dir=base / "cache", cores=1)
    with serve_pictures({"/a.png": respond(FILE, content_type="image/png")}) as host:
        service = build_service(settings, [(describe_model(locate_model(folder)), None)], config=config)
        fetcher = service.picture_fetcher
        assert fetcher is not None
        fetcher._network._resolve = ScriptedNames({"images.example.org": [[PUBLIC]]})
        fetcher._network._inner = RoutedNetwork({(PUBLIC, 80): host.port})
        fetcher._limits = FetchLimits(seconds=1.0)
        with (
            run_in_thread(service) as (port, _),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, headers=KEY) as client,
        ):
            yield Fetching(client, host, service)


def embed(fetching: Fetching, inputs: Any, **body: Any) -> Any:
    answer = post(fetching.client, "/v1/embeddings", input=inputs, **body)
    return np.array([each["embedding"] for each in answer["data"]], np.float32)


def test_a_url_has_the_embedding_of_its_content(fetching: Fetching) -> None:
    expected = embed(fetching, [{"image": base64.b64encode(FILE).decode()}, "the cat"])
    fetching.host.heads.clear()
    for inputs in (
        [{"image": URL}, "the cat"],
        [{"image_url": {"url": URL}}, {"text": "the cat"}],
        [{"image_url": URL}, "the cat"],
    ):
        assert np.abs(embed(fetching, inputs) - expected).max() < 1e-6
    assert np.abs(embed(fetching, [URL, URL], modality="image") - expected[:1]).max() < 1e-6
    assert fetching.host.paths == ["/a.png"] * 4
    assert fetching.service.budget.held == 0
    head = fetching.host.heads[0].lower()
    assert b"a-key" not in head
    assert b"cookie" not in head


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org/a.png", "a host or a port that this server fetches no pictures from"),
        (
            "http://images.example.org:8080/a.png",
            "a host or a port that this server fetches no pictures from",
        ),
        ("http://user:secret@images.example.org/a.png", "is no URL of a picture"),
        ("http://127.0.0.1/", "a host or a port that this server fetches no pictures from"),
        ("http://a.inside.example:8080/", "has no public address or does not answer"),
        ("http://images.example.org/missing", "answers with status 404"),
        ("http://images.example.org/away", "a host or a port that this server fetches no pictures from"),
        ("http://images.example.org/slow", "takes more than 1 seconds to fetch"),
    ],
)
def test_a_url_that_is_not_fetched_is_a_400_that_names_its_field(
    fetching: Fetching, url: str, message: str
) -> None:
    fetching.host.pages["/away"] = redirect("http://169.254.169.254/latest/meta-data/")
    fetching.host.pages["/slow"] = endlessly(b"a: b\r\n", b"HTTP/1.1 200 OK\r\n", pause_s=0.05)
    body = {"input": ["the cat", {"image_url": {"url": url}}]}
    error = post(fetching.client, "/v1/embeddings", status=400, **body)["error"]
    assert error["param"] == "input[1].image_url.url"
    assert message in error["message"]
    assert "secret" not in error["message"]
    assert "169.254" not in error["message"]
    assert fetching.service.budget.held == 0


# A body of every form that may name a picture by its URL, and the field that does.
FORMS: list[tuple[str, Any, str]] = [
    ("/v1/embeddings", {"input": [{"url": "{}"}]}, "input[0].url"),
    ("/v1/embeddings", {"input": "{}", "modality": "image"}, "input"),
    (
        "/v1/embeddings",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "{}"}}]}]},
        "messages[0].content[0].image_url.url",
    ),
    ("/embeddings_image", {"input": ["{}"]}, "input[0]"),
    ("/v1/embed", {"images": ["{}"], "input_type": "image", "model": "any"}, "images[0]"),
    (
        "/v2/embed",
        {
            "model": "any",
            "input_type": "image",
            "embedding_types": ["float"],
            "inputs": [{"content": [{"type": "image_url", "image_url": {"url": "{}"}}]}],
        },
        "inputs[0].content[0].image_url.url",
    ),
    (
        "/v1/multimodalembeddings",
        {"model": "any", "inputs": [{"content": [{"type": "image_url", "image_url": "{}"}]}]},
        "inputs[0].content[0].image_url",
    ),
    ("/images/embeddings", {"input": [{"image": "{}"}]}, "input[0].image"),
    ("/vectorize", {"texts": [], "images": ["{}"]}, "images[0]"),
    ("/classify", {"input": [{"image": "{}"}], "candidate_labels": ["a", "b"]}, "input[0].image"),
    ("/v1/classify", {"model": "any", "input": [{"image": "{}"}], "labels": ["a", "b"]}, "input[0].image"),
    ("/", {"inputs": "{}", "parameters": {"candidate_labels": ["a", "b"]}}, "inputs"),
    (
        "/vertex",
        {"instances": [{"inputs": "{}", "parameters": {"candidate_labels": ["a", "b"]}}]},
        "inputs",
    ),
]


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize(("path", "form", "field"), FORMS)
def test_every_form_of_a_url_is_checked_and_fetched(
    fetching: Fetching, path: str, form: Any, field: str
) -> None:
    name = fetching.service.catalog.models[0].name
    written = json.dumps(form).replace('"any"', json.dumps(name))
    fetching.host.heads.clear()
    refused = json.loads(written.replace("{}", "http://example.org/a.png"))
    answer = fetching.client.post(path, json=refused)
    assert answer.status_code in (400, 422), answer.text
    assert f"`{field}`" in answer.text
    assert "a host or a port that this server fetches no pictures from" in answer.text
    assert fetching.host.paths == []
    accepted = fetching.client.post(path, json=json.loads(written.replace("{}", URL)))
    assert accepted.status_code == 200, accepted.text
    assert fetching.host.paths == ["/a.png"]
    assert fetching.service.budget.held == 0


@pytest.mark.promise("malformed-input")
def test_what_is_fetched_and_no_picture_is_named_by_its_place(fetching: Fetching) -> None:
    fetching.host.pages["/text"] = respond(b"hello", content_type="image/png")
    body = {"input": ["the cat", {"image": "http://images.example.org/text"}]}
    error = post(fetching.client, "/v1/embeddings", status=400, **body)["error"]
    assert "`input[1]` is no PNG, JPEG, WebP or GIF file" in error["message"]


def test_nothing_is_fetched_for_requests_that_are_refused(fetching: Fetching) -> None:
    fetching.host.heads.clear()
    picture = {"image": URL}
    without_key = httpx.post(f"{fetching.client.base_url}/v1/embeddings", json={"input": [picture]})
    assert without_key.status_code == 401
    for body, status in (
        ({"input": [picture], "model": "unknown"}, 404),
        ({"input": [picture], "dimensions": 10**6}, 400),
        ({"input": [picture], "output_dtype": "int8"}, 400),
        ({"input": [picture] * 257}, 400),
        ({"input": [picture, "x" * 1_000_001]}, 400),
        ({"input": [picture, {"image": "http://example.org/"}]}, 400),
        ({"input": [picture, {"audio": "x"}]}, 400),
    ):
        post(fetching.client, "/v1/embeddings", status=status, **body)
    assert fetching.host.heads == []


def test_a_client_that_leaves_has_nothing_fetched_any_more(fetching: Fetching) -> None:
    arrived, has_left = threading.Event(), threading.Event()

    def send(connection: socket.socket) -> None:
        arrived.set()
        with suppress(OSError):
            endlessly(b"a: b\r\n", b"HTTP/1.1 200 OK\r\n", pause_s=0.01)(connection)
        has_left.set()

    fetching.host.pages["/leave"] = send
    fetching.service.picture_fetcher._limits = FetchLimits(seconds=PATIENCE_S)  # type: ignore[union-attr]
    body = json.dumps({"input": [{"image": "http://images.example.org/leave"}]}).encode()
    head = "POST /v1/embeddings HTTP/1.1\r\nhost: a\r\nauthorization: Bearer a-key\r\n"
    port = fetching.client.base_url.port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert arrived.wait(PATIENCE_S)
    assert has_left.wait(PATIENCE_S)
    wait_until(lambda: fetching.service.budget.held == 0)


def test_lines_of_batches_may_have_urls(fetching: Fetching) -> None:
    lines = [
        {
            "custom_id": str(index),
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"input": [{"image": url}]},
        }
        for index, url in enumerate((URL, "http://images.example.org/missing"))
    ]
    client = fetching.client
    content = "\n".join(map(json.dumps, lines))
    uploaded = client.post(
        "/v1/files", files={"file": ("a.jsonl", content)}, data={"purpose": "batch"}
    ).json()
    batch = post(
        client,
        "/v1/batches",
        input_file_id=uploaded["id"],
        endpoint="/v1/embeddings",
        completion_window="24h",
    )
    while batch["status"] not in ("completed", "failed"):
        batch = client.get(f"/v1/batches/{batch['id']}").json()
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    (answer,) = client.get(f"/v1/files/{batch['output_file_id']}/content").text.splitlines()
    found = json.loads(answer)["response"]["body"]["data"][0]["embedding"]
    assert np.abs(np.array(found, np.float32) - embed(fetching, [{"image": URL}])[0]).max() < 1e-6
    assert fetching.service.budget.held == 0


def test_without_the_setting_the_error_names_it(folder: Path, tmp_path: Path) -> None:
    config = MillConfig(cache_dir=tmp_path / "cache", cores=1)
    service = build_service(QUIET, [(describe_model(locate_model(folder)), None)], config=config)
    assert service.picture_fetcher is None
    with (
        run_in_thread(service) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        error = post(client, "/v1/embeddings", status=400, input=[{"image": URL}])["error"]
    assert error["message"] == (
        "`input[0].image` is a URL, and this server fetches none without --image-urls. Send a picture as a "
        "data URI, data:image/png;base64,..., or as base64."
    )
    assert error["param"] == "input[0].image"


def test_the_fetcher_of_a_service_has_the_rules_of_the_settings(folder: Path) -> None:
    service = build_service(
        replace(QUIET, image_urls=("a.example",)), [(describe_model(locate_model(folder)), None)]
    )
    assert isinstance(service.picture_fetcher, PictureFetcher)
    assert service.picture_fetcher._hosts == service.dialect_options.picture_hosts

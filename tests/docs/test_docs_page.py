"""The page at `/docs`: operations in groups by client, with examples that the server answers."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from pages.vendored_files import PACKAGES, Package, digest_of
from support.batches import request_line, upload
from support.described_models import describe_tasks
from support.http_server import MODEL, QUIET, serve_in_thread
from support.server import LiveServer
from vecmill.models import Task
from vecmill_server import __version__, app
from vecmill_server.app import describe_routes
from vecmill_server.app.openapi.examples import EXAMPLES, needs_pictures, tasks_of
from vecmill_server.app.openapi.operations import ALIAS_OF, Api
from vecmill_server.app.routes import docs
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects.dialect_routes import ROUTES

DOCUMENT = describe_routes(ServerSettings(), MODEL)
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    (method, path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
MAIN = [each for each in OPERATIONS if ALIAS_OF not in each[2]]
# The ids of files and batches are random, so no example can name one.
WITHOUT_ID = [each for each in OPERATIONS if "{id}" not in each[1] or "/models/" in each[1]]
READS = [path for method, path, _ in WITHOUT_ID if method == "get"]
SENT = [
    (path, name)
    for method, path, operation in WITHOUT_ID
    if method == "post"
    for name in operation.get("requestBody", {"content": {}})["content"]
    .get("application/json", {})
    .get("examples", ())
]

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The class of each body, by the name of its schema.
BODIES = {body.component().name: body for body in EXAMPLES}


def needs_pictures_of(name: str) -> bool:
    """Whether the example of a schema needs a model that embeds pictures."""
    body = BODIES.get(name)
    return body is not None and needs_pictures(body)


def fill(path: str, operation: dict[str, Any]) -> str:
    """The path with the examples of its parameters."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    return path


def send_example(client: httpx.Client, document: dict[str, Any], path: str, name: str) -> httpx.Response:
    """The answer to what the page sends for an example."""
    operation = document["paths"][path]["post"]
    body = operation["requestBody"]["content"]["application/json"]["examples"][name]["value"]
    if "input_file_id" in body:
        body = {**body, "input_file_id": upload(client, [request_line("a", {"input": "a"})])}
    return client.post(fill(path, operation), json=body)


@pytest.fixture(scope="module")
def real(server: LiveServer) -> Iterator[httpx.Client]:
    """The embedded model on its real engine, with batches."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def every_task_with_batches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A model for each task, and batches."""
    settings = replace(QUIET, batch_dir=tmp_path_factory.mktemp("batches"))
    with serve_in_thread(settings, models=list(describe_tasks().values())) as server:
        yield server.client


def test_every_operation_is_in_a_group_that_is_described() -> None:
    described = [tag["name"] for tag in DOCUMENT["tags"]]
    assert [api for api in Api if api in described] == described
    used = {tag for _, _, operation in OPERATIONS for tag in operation["tags"]}
    assert used == set(described)
    assert all(operation["tags"] for _, _, operation in OPERATIONS)


def test_every_body_has_an_example() -> None:
    missing = {body.__name__ for route in ROUTES for body in route.bodies} - {
        body.__name__ for body in EXAMPLES
    }
    assert missing == set(), f"give {missing} an example in app/openapi/examples.py"


def test_groups_are_short_because_aliases_are_apart() -> None:
    sizes = Counter(tag for _, _, operation in MAIN for tag in operation["tags"])
    assert Api.OTHER_PATHS not in sizes
    assert len(MAIN) < 0.65 * len(OPERATIONS)
    assert sizes["OpenAI"] <= 4
    aliases = [operation for _, _, operation in OPERATIONS if ALIAS_OF in operation]
    assert all(operation["tags"] == [Api.OTHER_PATHS] for operation in aliases)


def test_an_alias_is_the_operation_of_another_path_that_names_it() -> None:
    apart = {"tags", "description", ALIAS_OF}
    for method, path, operation in OPERATIONS:
        if ALIAS_OF not in operation:
            continue
        main = DOCUMENT["paths"][operation[ALIAS_OF]][method]
        assert ALIAS_OF not in main
        assert f"`{path}`" in main["description"]
        assert {name: value for name, value in operation.items() if name not in apart} == {
            name: value for name, value in main.items() if name not in apart
        }


def test_no_field_is_filled_in_by_a_guess() -> None:
    """The page invents values for a body without an example, such as LeFT and 2147483647."""
    for method, path, operation in OPERATIONS:
        body = operation.get("requestBody", {"content": {}})["content"].get("application/json")
        assert body is None or body["examples"], f"{method} {path}"


@pytest.mark.parametrize(("path", "name"), SENT)
def test_an_example_is_answered_by_the_embedded_model(path: str, name: str, real: httpx.Client) -> None:
    answer = send_example(real, DOCUMENT, path, name)
    if answer.status_code in (400, 424):
        if needs_pictures_of(name):
            pytest.skip("needs a model that embeds pictures")
        tasks = tasks_of(BODIES[name])
        assert tasks, answer.text
        assert Task.EMBED not in tasks, answer.text
        pytest.skip(f"needs a model with the task {' or '.join(tasks)}")
    assert answer.status_code == 200, answer.text


def test_examples_are_answered_by_the_models_whose_tasks_fit(every_task_with_batches: httpx.Client) -> None:
    client = every_task_with_batches
    document = client.get("/openapi.json").json()
    # tests/http/test_picture_dialects.py sends the examples with pictures.
    sent = [(path, name) for path, name in SENT if not needs_pictures_of(name)]
    answers = {(path, name): send_example(client, document, path, name) for path, name in sent}
    assert {place: answer.text for place, answer in answers.items() if answer.status_code != 200} == {}


@pytest.mark.parametrize("path", READS)
def test_what_can_be_read_is_answered(path: str, real: httpx.Client) -> None:
    operation = DOCUMENT["paths"][path]["get"]
    assert str(real.get(fill(path, operation)).status_code) in set(operation["responses"]) & {"200", "204"}


def test_an_operation_says_which_models_answer_it() -> None:
    paths = DOCUMENT["paths"]
    assert paths["/embed_sparse"]["post"]["description"] == "Needs a model with the task sparse."
    tasks = "rerank, classify or classify_tokens"
    assert paths["/predict"]["post"]["description"] == f"Needs a model with the task {tasks}."
    assert "description" not in paths["/decode"]["post"]


def test_with_keys_the_page_is_open_and_the_calls_are_not() -> None:
    with serve_in_thread(replace(QUIET, api_key=("secret",))) as server:
        for path in ("/docs", "/docs/swagger-ui.css", "/docs/start.js", "/docs/console.css", "/openapi.json"):
            assert server.client.get(path).status_code == 200
            assert server.client.head(path).status_code == 200
            assert server.client.post(path).status_code == 401
        assert server.client.post("/v1/embeddings", json={"input": "a"}).status_code == 401
        document = server.client.get("/openapi.json").json()
        assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
        assert "security" in document["paths"]["/v1/embeddings"]["post"]
        assert "security" not in document["paths"]["/docs"]["get"]


def test_the_page_loads_files_of_this_server_only_and_nothing_inline() -> None:
    for settings, views in ((QUIET, 6), (replace(QUIET, console=False), 0)):
        with serve_in_thread(replace(settings, url_prefix="/a")) as server:
            page = server.client.get("/docs")
            assert "unsafe-inline" not in page.headers["content-security-policy"]
            assert "<style" not in page.text
            assert page.text.count("<script ") == page.text.count("<script src=")
            loaded = re.findall(r'(?:src|href)="(/a/docs/[^"]+)"', page.text)
            # With the version in the address, browsers do not mix the files of two releases.
            names = [path.rpartition("/")[2].partition("?v=") for path in loaded]
            assert {name for name, _, _ in names} == set(docs.ASSETS)
            assert {version for _, _, version in names} == {__version__}
            for path in loaded:
                asset = server.client.get(path.removeprefix("/a"))
                assert asset.status_code == 200
                assert asset.headers["content-type"] == TYPES[Path(path.partition("?")[0]).suffix]
            assert page.text.count("<a href=") == views


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_files_of_other_projects_are_as_they_were_published(package: Package) -> None:
    """`make vendored` writes them."""
    for path, digest in package.files.items():
        assert digest_of(package.target(path)) == digest, path
    assert {file.name for file in package.folder.iterdir()} == {Path(path).name for path in package.files}


def test_the_description_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may read it, and making it takes a while."""
    calls: list[str | None] = []

    def describe(settings: ServerSettings, model: str | None) -> dict[str, Any]:
        calls.append(model)
        return describe_routes(settings, model)

    monkeypatch.setattr(app, "describe_routes", describe)
    with serve_in_thread() as server:
        first, second = (server.client.get("/openapi.json").content for _ in range(2))
    assert first == second
    assert calls == [MODEL]

"""An answer with vectors says their space. A client that expects another one is refused before any work."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.described_models import describe_prompted, describe_tasks, describe_with_heads
from support.http_server import MODEL, HttpServer, serve_in_thread
from vecmill.models import Task

pytestmark = pytest.mark.promise("space-identifies")

EMBED, RERANK = MODEL, f"model/{Task.RERANK}"
SPARSE, VECTORS = f"model/{Task.SPARSE}", f"model/{Task.MULTI_VECTOR}"
OTHER = "s1-0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def spaces() -> Iterator[HttpServer]:
    """An embedding model that normalises, and a model for each other task."""
    others = [model for task, model in describe_tasks().items() if task is not Task.EMBED]
    with serve_in_thread(models=[describe_prompted({}), *others]) as server:
        yield server


def entry(client: httpx.Client, model: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/models/{model}").json()
    return found


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/v1/embeddings", {"input": ["a", "b"]}, EMBED),
        ("/openai/deployments/x/embeddings", {"input": "a"}, EMBED),
        ("/embed", {"inputs": "a"}, EMBED),
        ("/embed_sparse", {"inputs": "a"}, SPARSE),
        ("/embed_all", {"inputs": "a"}, VECTORS),
        ("/v2/embed", {"texts": ["a"]}, EMBED),
        ("/api/embed", {"input": ["a"]}, EMBED),
        ("/api/embed", {"input": []}, EMBED),
        ("/api/embeddings", {"prompt": "a"}, EMBED),
        ("/embedding", {"content": "a"}, EMBED),
        ("/pooling", {"input": "a", "task": "embed"}, EMBED),
        ("/pooling", {"input": "a", "task": "token_embed"}, VECTORS),
        ("/encode", {"sentences": ["a"]}, EMBED),
        ("/vertex", {"instances": [{"inputs": "a"}, {"inputs": "b"}]}, EMBED),
        ("/", {"inputs": "a"}, EMBED),
    ],
)
def test_every_api_names_the_space_of_its_vectors(
    spaces: HttpServer, path: str, body: dict[str, Any], model: str
) -> None:
    answer = spaces.client.post(path.replace("/x/", f"/{model}/"), json={"model": model, **body})
    assert answer.status_code == 200, answer.text
    known = entry(spaces.client, model)
    assert answer.headers["x-space"] == known["space"]
    assert answer.headers["x-space-exact"] == known["exact"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "a", "documents": ["b"], "model": EMBED}),
        ("/predict", {"inputs": "a", "model": f"model/{Task.CLASSIFY}"}),
        ("/tokenize", {"prompt": "a", "model": EMBED}),
        ("/v1/embeddings", {"input": "a", "model": RERANK}),
    ],
)
def test_an_answer_without_vectors_has_no_space(spaces: HttpServer, path: str, body: dict[str, Any]) -> None:
    answer = spaces.client.post(path, json=body, headers={"x-expected-space": OTHER})
    assert answer.status_code != 409
    assert not {"x-space", "x-space-exact", "x-prompt-name"} & set(answer.headers)


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": 8},
        {"normalize": False},
        {"output_dtype": "int8"},
        {"output_dtype": "ubinary"},
        {"output_dtype": "int8", "normalize": False},
    ],
    ids=str,
)
def test_vectors_of_another_form_are_in_a_space_of_their_own(
    spaces: HttpServer, change: dict[str, Any]
) -> None:
    plain, other, again = (
        spaces.client.post("/v1/embeddings", json={"input": "a", "model": EMBED, **fields}).headers
        for fields in ({}, change, change)
    )
    assert other["x-space"] != plain["x-space"]
    assert other["x-space-exact"] != plain["x-space-exact"]
    assert again["x-space"] == other["x-space"]


def test_a_form_that_is_the_models_own_changes_nothing(spaces: HttpServer) -> None:
    narrow = {"embed_dtype": "float16", "encoding_format": "base64"}
    bodies: list[dict[str, Any]] = [{}, {"dimensions": 384}, {"normalize": True}, narrow]
    answers = (
        spaces.client.post("/v1/embeddings", json={"input": "a", "model": EMBED, **fields})
        for fields in bodies
    )
    assert len({answer.headers["x-space"] for answer in answers}) == 1


@pytest.fixture(scope="module")
def heads() -> Iterator[httpx.Client]:
    with serve_in_thread(models=[describe_with_heads()]) as server:
        yield server.client


def test_each_output_of_bge_m3_has_a_space_and_several_have_that_of_the_model(heads: httpx.Client) -> None:
    names = {"dense": "return_dense", "sparse": "return_sparse", "vectors": "return_colbert_vecs"}

    def space(*asked: str) -> str:
        flags = {flag: name in asked for name, flag in names.items()}
        answer = heads.post("/encode", json={"sentences": ["a"], **flags})
        return str(answer.headers["x-space"])

    alone = [space(name) for name in names]
    assert len(set(alone)) == 3
    assert alone[0] == space(*names) == entry(heads, "model/heads")["space"]
    assert heads.post("/embed_sparse", json={"inputs": "a"}).headers["x-space"] == alone[1]


@pytest.fixture(scope="module")
def prompted() -> Iterator[httpx.Client]:
    prompts = {"query": "query: ", "document": "", "naïve\r\nx-evil: 1": "own: "}
    with serve_in_thread(models=[describe_prompted(prompts)]) as server:
        yield server.client


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, None),
        ({"input_type": "query"}, "query"),
        ({"prompt_name": "query"}, "query"),
        ({"input_type": "document"}, None),
        ({"prompt": "say: "}, None),
        ({"prompt_name": "naïve\r\nx-evil: 1"}, "na%C3%AFve%0D%0Ax-evil: 1"),
    ],
    ids=str,
)
def test_the_prompt_that_was_applied_is_named_and_the_space_is_the_same(
    prompted: httpx.Client, fields: dict[str, Any], name: str | None
) -> None:
    answer = prompted.post("/v1/embeddings", json={"input": "a", **fields})
    assert answer.status_code == 200, answer.text
    assert answer.headers.get("x-prompt-name") == name
    assert "x-evil" not in answer.headers
    assert answer.headers["x-space"] == prompted.get("/v1/models").json()["data"][0]["space"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "a"}),
        ("/embed", {"inputs": "a"}),
        ("/v2/embed", {"texts": ["a"]}),
        ("/api/embed", {"input": ["a"]}),
        ("/vertex", {"instances": [{"inputs": "a"}]}),
    ],
)
def test_a_client_that_expects_another_space_is_refused_before_any_work(
    spaces: HttpServer, path: str, body: dict[str, Any]
) -> None:
    client, known = spaces.client, entry(spaces.client, EMBED)
    before = spaces.metric("vecmill_texts_total", model=EMBED, outcome="completed")
    answer = client.post(path, json={"model": EMBED, **body}, headers={"x-expected-space": OTHER})
    assert answer.status_code == 409
    assert OTHER in answer.text
    assert known["space"] in answer.text
    assert answer.headers["x-should-retry"] == "false"
    assert spaces.metric("vecmill_texts_total", model=EMBED, outcome="completed") == before
    for expected in (known["space"], known["exact"]):
        answer = client.post(path, json={"model": EMBED, **body}, headers={"x-expected-space": expected})
        assert answer.status_code == 200


def test_the_error_has_the_code_of_openai_clients(spaces: HttpServer) -> None:
    headers = {"x-expected-space": OTHER.replace("s1", "e1")}
    answer = spaces.client.post("/v1/embeddings", json={"input": "a", "model": EMBED}, headers=headers)
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("other_space", "x-expected-space")
    assert entry(spaces.client, EMBED)["exact"] in error["message"]


def test_whoever_expects_the_whole_vectors_does_not_get_shorter_ones(spaces: HttpServer) -> None:
    body = {"input": "a", "model": EMBED, "dimensions": 8}
    shorter = spaces.client.post("/v1/embeddings", json=body).headers["x-space"]
    whole = entry(spaces.client, EMBED)["space"]
    for expected, status in ((shorter, 200), (whole, 409)):
        headers = {"x-expected-space": expected}
        assert spaces.client.post("/v1/embeddings", json=body, headers=headers).status_code == status


@pytest.mark.parametrize("value", ["", "s1-", "s1-zz", "0123456789abcdef0123456789abcdef", "s1-" + "a" * 33])
def test_what_is_no_space_is_the_clients_mistake(client: httpx.Client, value: str) -> None:
    answer = client.post("/v1/embeddings", json={"input": "a"}, headers={"x-expected-space": value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-expected-space")

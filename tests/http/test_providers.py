"""/embeddings with the fields of Jina, Voyage and Mistral, beside OpenAI's."""

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from support.described_models import PROMPTS, describe_prompted, describe_tasks, row_of, token_ids
from support.http_server import DIM, MODEL, HttpServer, serve_in_thread
from vecmill.engines.fake import hash_row, hash_token_rows
from vecmill.models import Task

LONG = "one two three four five"


@pytest.fixture(scope="module")
def prompted() -> Iterator[HttpServer]:
    tasks = describe_tasks()
    models = [describe_prompted(), tasks[Task.MULTI_VECTOR], tasks[Task.EMBED]]
    with serve_in_thread(models=models) as server:
        yield server


def embed(client: httpx.Client, *, status: int = 200, **body: Any) -> Any:
    answer = client.post("/v1/embeddings", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def rows(client: httpx.Client, **body: Any) -> list[Any]:
    return [entry["embedding"] for entry in embed(client, **body)["data"]]


def unpack(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype)


@pytest.mark.parametrize(
    ("field", "value", "prompt"),
    [
        ("task", "retrieval.query", PROMPTS["query"]),
        ("task", "retrieval.passage", PROMPTS["passage"]),
        ("task", "code.query", PROMPTS["query"]),
        ("task", "nl2code.query", PROMPTS["query"]),
        ("task", "nl2code.passage", PROMPTS["passage"]),
        ("task", "QUESTION_ANSWERING", PROMPTS["query"]),
        ("task", "FACT_VERIFICATION", PROMPTS["query"]),
        ("task", "CODE_RETRIEVAL_QUERY", PROMPTS["query"]),
        ("task", "RETRIEVAL_DOCUMENT", PROMPTS["passage"]),
        ("task", "SEMANTIC_SIMILARITY", ""),
        ("task", "similarity", ""),
        ("task", "separation", PROMPTS["clustering"]),
        ("task", "text-matching", ""),
        ("task", "classification", ""),
        ("task", None, ""),
        ("input_type", "query", PROMPTS["query"]),
        ("input_type", "document", PROMPTS["passage"]),
        ("input_type", "search_query", PROMPTS["query"]),
        ("input_type", "SEARCH_DOCUMENT", PROMPTS["passage"]),
        ("input_type", "passage", PROMPTS["passage"]),
        ("input_type", "clustering", PROMPTS["clustering"]),
        ("input_type", None, ""),
        ("prompt_name", "own", PROMPTS["own"]),
        ("prompt_name", "document", ""),
        ("prompt", "free: ", "free: "),
    ],
)
def test_what_texts_are_for_chooses_their_prompt(
    prompted: HttpServer, field: str, value: str | None, prompt: str
) -> None:
    (found,) = rows(prompted.client, input="hello", **{field: value})
    np.testing.assert_allclose(found, row_of(f"{prompt}hello", DIM), rtol=1e-6)


@pytest.mark.parametrize("field", ["task", "input_type"])
def test_an_unknown_purpose_is_told_which_there_are(client: httpx.Client, field: str) -> None:
    error = embed(client, status=400, input="a", **{field: "retrieval"})["error"]
    assert error["param"] == field
    assert "retrieval.query" in error["message"]


@pytest.mark.parametrize("field", ["task", "input_type"])
def test_images_are_told_that_text_alone_is_read(client: httpx.Client, field: str) -> None:
    error = embed(client, status=400, input="a", **{field: "image"})["error"]
    assert error["message"] == f"`{field}` is image, and this route reads only text."


def test_jina_names_the_numbers_by_embedding_type(client: httpx.Client) -> None:
    (plain,) = rows(client, input=[{"text": "hello"}], embedding_type="float")
    np.testing.assert_allclose(plain, row_of("hello", DIM), rtol=1e-6)
    packed = np.packbits(np.array(plain) > 0)
    for body in (
        {"embedding_type": "ubinary"},
        {"encoding_type": "ubinary"},
        {"embedding_type": ["ubinary"]},
    ):
        assert rows(client, input="hello", **body) == [packed.tolist()]
    assert rows(client, input="hello", embedding_type="binary") == [(packed.astype(int) - 128).tolist()]
    (text,) = rows(client, input="hello", embedding_type="base64")
    np.testing.assert_array_equal(unpack(text, "<f4"), np.array(plain, np.float32))
    for wrong in ("int4", ["float", "int4"], ["float", None], [["float"]], [], 1):
        assert (
            embed(client, status=400, input="a", embedding_type=wrong)["error"]["param"] == "embedding_type"
        )


def test_jina_s_texts_may_be_objects(client: httpx.Client) -> None:
    text = {"text": "hello"}
    assert rows(client, input=text) == rows(client, input=[text]) == rows(client, input="hello")
    for document in ("world", {"text": "world"}):
        body: dict[str, Any] = {"documents": [document], "model": MODEL}
        found = [
            client.post("/v1/rerank", json={**body, "query": query}).json()["results"]
            for query in ("hello", text, {"content": [{"type": "text", "text": "hello"}]})
        ]
        assert found[0] == found[1] == found[2]
    refusal = client.post("/v1/rerank", json={"query": {"image": "x"}, "documents": ["a"]})
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "query")


def test_jina_asks_for_several_types_at_once(client: httpx.Client) -> None:
    types = ["float", "base64", "int8", "ubinary"]
    found = rows(client, input=["hello", "world"], embedding_type=types)
    assert [list(row) for row in found] == [types, types]
    for name in types:
        assert [row[name] for row in found] == rows(client, input=["hello", "world"], embedding_type=name)
    refusal = client.post("/embed", json={"inputs": "a", "embedding_type": types}).json()
    assert refusal["error"].startswith("`embedding_type` must name a single type")


def test_voyage_sends_null_for_what_it_does_not_ask(client: httpx.Client) -> None:
    nulls: dict[str, Any] = {
        "input_type": None,
        "truncation": True,
        "output_dtype": None,
        "output_dimension": None,
    }
    answer = embed(client, input=["hello"], model=MODEL, encoding_format="base64", **nulls)
    np.testing.assert_allclose(unpack(answer["data"][0]["embedding"], "<f4"), row_of("hello", DIM), rtol=1e-6)
    assert answer["usage"]["total_tokens"] == 3
    assert answer["object"] == "list"


@pytest.mark.parametrize(
    ("kind", "dtype", "length"),
    [
        ("float", "<f4", 384),
        ("int8", "i1", 384),
        ("uint8", "u1", 384),
        ("binary", "i1", 48),
        ("ubinary", "u1", 48),
    ],
)
def test_bytes_of_any_type_come_in_base64_too(
    client: httpx.Client, kind: str, dtype: str, length: int
) -> None:
    (numbers,) = rows(client, input="hello", output_dtype=kind)
    (text,) = rows(client, input="hello", output_dtype=kind, encoding_format="base64")
    assert len(numbers) == length
    np.testing.assert_array_equal(unpack(text, dtype), np.array(numbers, dtype))


def test_rows_of_bits_must_fill_their_bytes(client: httpx.Client) -> None:
    assert len(rows(client, input="a", output_dtype="ubinary", output_dimension=16)[0]) == 2
    error = embed(client, status=400, input="a", output_dtype="ubinary", output_dimension=12)["error"]
    assert error["param"] == "dimensions"


def test_the_length_of_a_row_has_several_names(client: httpx.Client) -> None:
    (row,) = rows(client, input="hello", dimensions=16)
    assert len(row) == 16
    assert rows(client, input="hello", output_dimension=16) == [row]
    assert len(rows(client, input="hello", dimensions=0, output_dimension=None)[0]) == DIM


@pytest.mark.parametrize("field", ["normalize", "normalized"])
def test_rows_are_normalised_or_left_as_the_model_gives_them(client: httpx.Client, field: str) -> None:
    (row,) = rows(client, input="hello")
    assert (
        rows(client, input="hello", **{field: True})
        == rows(client, input="hello", **{field: "false"})
        == [row]
    )
    (cut,) = rows(client, input="hello", dimensions=16, **{field: False})
    np.testing.assert_array_equal(cut, row[:16])


@pytest.mark.parametrize("field", ["truncate", "truncation"])
def test_long_texts_are_cut_unless_the_client_minds(client: httpx.Client, field: str) -> None:
    value: Any
    for value in (None, True, "true", "END", "end"):
        assert embed(client, input="hello " * 300, **{field: value})["usage"]["total_tokens"] == 256
    for value in (False, "False", "NONE"):
        error = embed(client, status=400, input="hello " * 300, **{field: value})["error"]
        assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"truncate_prompt_tokens": 5}, "one two three"),
        ({"truncate_prompt_tokens": 5, "truncation_side": "left"}, "three four five"),
        ({"truncate_prompt_tokens": 5, "truncation_direction": "Right"}, "one two three"),
        ({"truncate_prompt_tokens": 5, "truncate": "START"}, "three four five"),
        ({"truncate_prompt_tokens": 100}, LONG),
        ({"truncate_prompt_tokens": -1}, LONG),
    ],
)
def test_a_client_may_choose_what_is_cut(client: httpx.Client, settings: dict[str, Any], kept: str) -> None:
    (row,) = rows(client, input=LONG, **settings)
    np.testing.assert_allclose(row, row_of(kept, DIM), rtol=1e-6)


def test_mistral_finds_every_field_that_it_validates(client: httpx.Client) -> None:
    body: dict[str, Any] = {"metadata": {"a": 1}, "output_dtype": "float", "encoding_format": "float"}
    answer = embed(client, input=["hello"], model=MODEL, **body)
    assert (type(answer["id"]), answer["object"], answer["model"]) == (str, "list", MODEL)
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3, "completion_tokens": 0}
    assert answer["data"][0]["index"] == 0


def test_late_chunking_reads_the_chunks_together(prompted: HttpServer) -> None:
    chunks = ["hello world", "a cat"]
    found = embed(prompted.client, input=chunks, late_chunking=True)
    assert found["model"] == "model/multi_vector"
    assert found["usage"]["total_tokens"] == 6
    tokens = hash_token_rows(token_ids("hello world a cat"), 4)
    expected = [tokens[1:3].mean(axis=0), tokens[3:5].mean(axis=0)]
    np.testing.assert_allclose([entry["embedding"] for entry in found["data"]], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "model/embed"}, "late_chunking"),
        ({"output_dtype": "int8"}, "late_chunking"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": "hello " * 300}, "input"),
    ],
)
def test_late_chunking_that_cannot_be_is_a_clear_400(
    prompted: HttpServer, body: dict[str, Any], param: str
) -> None:
    document: dict[str, Any] = {"input": ["hello"], "late_chunking": "true", **body}
    assert embed(prompted.client, status=400, **document)["error"]["param"] == param


def test_the_chunks_of_a_text_have_its_index_and_their_places(client: httpx.Client) -> None:
    found = embed(client, input=["😀 " + LONG, "hi"], chunking={"mode": "chunks", "tokens": 3, "overlap": 1})
    places = [(entry["index"], *entry["chunk"].values()) for entry in found["data"]]
    assert places == [(0, 0, 0, 10, 3), (0, 1, 6, 21, 3), (0, 2, 16, 25, 2), (1, 0, 0, 2, 1)]
    assert [*found["data"][0]["chunk"]] == ["index", "start", "end", "token_count"]
    assert found["usage"]["total_tokens"] == 5 + 5 + 4 + 3
    np.testing.assert_allclose(found["data"][3]["embedding"], row_of("hi", DIM), rtol=1e-6)


def test_chunks_may_be_written_in_any_form(client: httpx.Client) -> None:
    body: dict[str, Any] = {"input": LONG, "chunking": {"mode": "chunks", "tokens": 3}}
    plain = rows(client, **body)
    packed = embed(client, **body, encoding_format="base64")["data"]
    np.testing.assert_array_equal(
        [unpack(one["embedding"], "<f4") for one in packed], np.array(plain, np.float32)
    )
    several = embed(client, **body, embedding_type=["float", "ubinary"])["data"]
    assert [[*one["embedding"]] for one in several] == [["float", "ubinary"]] * 2
    assert several[1]["chunk"]["index"] == 1


def test_a_pooled_text_has_one_row_and_no_chunks(client: httpx.Client) -> None:
    (entry,) = embed(client, input=LONG, chunking={"mode": "pooled", "tokens": 3})["data"]
    assert entry.keys() == {"object", "index", "embedding"}


@pytest.mark.parametrize(
    ("chunking", "param"),
    [
        ("late", "chunking"),
        ({}, "chunking.mode"),
        ({"mode": "other"}, "chunking.mode"),
        ({"mode": 1}, "chunking.mode"),
        ({"mode": "chunks", "size": 3}, "chunking.size"),
        ({"mode": "chunks", "a key\n": 3}, "chunking"),  # which nobody can have meant
        ({"mode": "chunks", "sentences": "perhaps"}, "chunking.sentences"),
        ({"mode": "chunks", "tokens": "three"}, "chunking.tokens"),
        ({"mode": "chunks", "tokens": 10**6}, "chunking.tokens"),
        ({"mode": "chunks", "tokens": 3, "overlap": 3}, "chunking.overlap"),
        ({"mode": "chunks", "tokens": 3, "overlap": -1}, "chunking.overlap"),
        ({"mode": "late", "tokens": 0, "overlap": 300}, "chunking.overlap"),
    ],
)
def test_chunking_that_cannot_be_is_a_clear_400(client: httpx.Client, chunking: Any, param: str) -> None:
    assert embed(client, status=400, input=LONG, chunking=chunking)["error"]["param"] == param


def test_late_chunks_of_a_model_without_a_mean_are_refused(prompted: HttpServer) -> None:
    body: dict[str, Any] = {"input": LONG, "chunking": {"mode": "late"}, "model": "model/embed"}
    error = embed(prompted.client, status=400, **body)["error"]
    assert error["param"] == "chunking.mode"
    assert "the mean" in error["message"]


def test_more_chunks_than_texts_are_allowed_are_a_413(client: httpx.Client) -> None:
    error = embed(client, status=413, input="a " * 3_000, chunking={"mode": "chunks", "tokens": 1})["error"]
    assert error["param"] == "input"
    assert "3000 chunks" in error["message"]


def test_rows_for_tokens_are_another_route_s(client: httpx.Client) -> None:
    error = embed(client, status=400, input="a", return_multivector=True)["error"]
    assert "/embed_all" in error["message"]


def test_conversations_are_not_embedded(client: httpx.Client) -> None:
    messages = [[{"role": "user", "content": [{"type": "text", "text": "hello"}]}]]
    assert embed(client, status=400, messages=messages)["error"]["param"] == "messages"


@pytest.mark.parametrize("path", ["/v1/embedding", "/v1/v1/embeddings", "/v1/v1/embeddings/"])
def test_mistaken_paths_answer_too(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json={"input": "hello"})
    np.testing.assert_allclose(
        answer.json()["data"][0]["embedding"], hash_row(token_ids("hello"), DIM), rtol=1e-6
    )

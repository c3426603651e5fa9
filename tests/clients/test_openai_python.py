"""The `openai` Python SDK, as it comes, against the live server."""

from collections.abc import Iterator

import numpy as np
import openai
import pytest

from clients.inputs import TEXTS
from support.plain_http import embed
from support.server import MODEL, LiveServer
from vecmill.values.aliases import FloatArray

# The same text may be computed on one core or two: equal up to the last bits of a float32.
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none is asked", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def floats(server: LiveServer) -> FloatArray:
    return embed(server.url, TEXTS)


def as_rows(answer: openai.types.CreateEmbeddingResponse) -> FloatArray:
    return np.array([entry.embedding for entry in answer.data], np.float32)


def assert_same(found: FloatArray, expected: FloatArray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_default_base64_gives_the_plain_floats(client: openai.OpenAI, floats: FloatArray) -> None:
    answer = client.embeddings.create(model=MODEL, input=TEXTS)
    assert_same(as_rows(answer), floats)
    assert [entry.index for entry in answer.data] == list(range(len(TEXTS)))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 2 * len(TEXTS)


def test_the_sdk_does_ask_for_base64(client: openai.OpenAI) -> None:
    answer = client.embeddings.with_raw_response.create(model=MODEL, input="a text")
    sent = answer.http_request.content
    assert b'"encoding_format":"base64"' in sent.replace(b" ", b"")
    assert b'"embedding":"' in answer.content


def test_floats_give_the_plain_floats(client: openai.OpenAI, floats: FloatArray) -> None:
    answer = client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float")
    assert_same(as_rows(answer), floats)


def test_one_string_is_one_row(client: openai.OpenAI, floats: FloatArray) -> None:
    answer = client.embeddings.create(model=MODEL, input=TEXTS[2])
    assert_same(as_rows(answer), floats[2:3])


def test_dimensions_cut_and_renormalise(client: openai.OpenAI, floats: FloatArray) -> None:
    answer = client.embeddings.create(model=MODEL, input=TEXTS, dimensions=64)
    cut = floats[:, :64]
    assert_same(as_rows(answer), cut / np.linalg.norm(cut, axis=1, keepdims=True))


@pytest.mark.parametrize("mode", ["chunks", "late"])
def test_the_chunks_of_a_long_text_have_their_places(client: openai.OpenAI, mode: str) -> None:
    text = "Cats sleep anywhere. 😀 " * 100
    asked = {"chunking": {"mode": mode, "tokens": 50}}
    answer = client.embeddings.create(model=MODEL, input=["short", text], extra_body=asked)
    assert as_rows(answer).shape == (len(answer.data), 384)
    assert [entry.index for entry in answer.data] == [0, *[1] * (len(answer.data) - 1)]
    places = [entry.model_extra["chunk"] for entry in answer.data if entry.model_extra][1:]
    assert "".join(text[place["start"] : place["end"]] for place in places) == text


def test_a_large_batch_keeps_its_order(client: openai.OpenAI, server: LiveServer) -> None:
    texts = [f"Sentence number {number} of many." for number in range(300)]
    answer = client.embeddings.create(model=MODEL, input=texts)
    assert_same(as_rows(answer)[::50], embed(server.url, texts[::50]))


async def test_the_async_client(server: LiveServer, floats: FloatArray) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.embeddings.create(model=MODEL, input=TEXTS)
    assert_same(as_rows(answer), floats)


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="gpt-none", input="a text")
    assert caught.value.code == "model_not_found"
    assert isinstance(caught.value.body, dict)
    assert "gpt-none" in caught.value.body["message"]
    assert MODEL in caught.value.body["message"]


def test_an_empty_list_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=MODEL, input=[])
    assert caught.value.type == "invalid_request_error"
    assert "input" in caught.value.message


def test_token_ids_of_another_tokenizer_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(model=MODEL, input=[[9906, 1917]])


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError, match=MODEL):
        client.models.retrieve("some/other-model")

"""OpenAI's Python SDK, as it comes: files and batches from the upload to the answers."""

import io
import json
from collections.abc import Iterator

import numpy as np
import openai
import pytest

from support.batches import request_line
from support.http_server import wait_until
from support.plain_http import embed
from support.server import MODEL, LiveServer

TEXTS = [f"Sentence number {number} of many." for number in range(60)]
ENDED = {"completed", "failed", "expired", "cancelled"}


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none is asked", max_retries=0) as made:
        yield made


def run_batch(client: openai.OpenAI, lines: list[str]) -> openai.types.Batch:
    """Upload, run, and wait for the end."""
    content = io.BytesIO("\n".join(lines).encode())
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/embeddings",
        completion_window="24h",
        metadata={"what": "test"},
    )
    assert batch.status == "validating"
    wait_until(lambda: client.batches.retrieve(batch.id).status in ENDED)
    return client.batches.retrieve(batch.id)


def test_a_batch_gives_the_rows_of_plain_requests(client: openai.OpenAI, server: LiveServer) -> None:
    lines = [request_line(str(index), {"model": MODEL, "input": text}) for index, text in enumerate(TEXTS)]
    batch = run_batch(client, [*lines, request_line("bad", {"model": "gpt-none", "input": "a"})])
    assert batch.status == "completed"
    assert batch.metadata == {"what": "test"}
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.failed) == (61, 1)
    assert batch.output_file_id is not None
    output = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in output] == [str(index) for index in range(60)]
    rows = np.array([line["response"]["body"]["data"][0]["embedding"] for line in output], np.float32)
    np.testing.assert_allclose(rows, embed(server.url, TEXTS), rtol=0, atol=1e-6)
    assert batch.error_file_id is not None
    (error,) = [json.loads(line) for line in client.files.content(batch.error_file_id).text.splitlines()]
    assert error["custom_id"] == "bad"
    assert error["response"]["body"]["error"]["code"] == "model_not_found"


def test_a_file_that_cannot_be_read_fails_its_batch_with_the_line(client: openai.OpenAI) -> None:
    batch = run_batch(client, [request_line("a", {"input": "a"}), request_line("a", {"input": "b"})])
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    (error,) = batch.errors.data
    assert (error.code, error.line, error.param) == ("duplicate_custom_id", 2, "custom_id")


def test_the_sdk_pages_through_everything(client: openai.OpenAI) -> None:
    made = [run_batch(client, [request_line("a", {"input": "a"})]).id for _ in range(3)]
    found = [batch.id for batch in client.batches.list(limit=1)]
    assert found[:3] == made[::-1]
    assert len(set(found)) == len(found)
    files = list(client.files.list(purpose="batch", limit=2, order="asc"))
    assert len({file.id for file in files}) == len(files) >= 3


@pytest.mark.parametrize("deployment", [None, MODEL])
def test_azures_client_works_too(server: LiveServer, deployment: str | None) -> None:
    with openai.AzureOpenAI(
        azure_endpoint=server.url,
        azure_deployment=deployment,
        api_key="none is asked",
        api_version="2024-10-21",
        max_retries=0,
    ) as client:
        batch = run_batch(client, [request_line("a", {"model": MODEL, "input": "a"})])
        assert batch.output_file_id is not None
        assert len(client.files.content(batch.output_file_id).text.splitlines()) == 1
        assert batch.id in [found.id for found in client.batches.list(limit=2)]


def test_files_are_described_and_deleted(client: openai.OpenAI) -> None:
    content = b"x" * 3_000_000
    file = client.files.create(
        file=("in.jsonl", content),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert file.expires_at == file.created_at + 3600
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == content
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_errors_are_the_sdks_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="batch_none"):
        client.batches.retrieve("batch_none")
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=b"x", purpose="vision")
    batch = run_batch(client, [request_line("a", {"input": "a"})])
    with pytest.raises(openai.ConflictError, match="completed"):
        client.batches.cancel(batch.id)

"""Embeddings as raw bytes: vLLM's `bytes` and `bytes_only`, and `Accept: application/octet-stream`."""

import http.client
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from support.batches import create_batch, ended, lines_of, request_line
from support.http_server import DIM, MODEL, QUIET, HttpServer, serve_in_thread
from vecmill.config import InputConfig, MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.models import Task, locate_model
from vecmill_server.dialects.embedding_encodings import ONE_TYPE_IN_RAW_BYTES
from vecmill_server.dialects.raw_bytes import MOST_DESCRIBED, prefers_bytes

OCTETS = "application/octet-stream"
TYPES: dict[str, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}
TEXTS = ["hello", "hello world", ""]


def post(
    client: httpx.Client,
    *,
    status: int = 200,
    accept: str | None = None,
    path: str = "/v1/embeddings",
    **body: Any,
) -> httpx.Response:
    answer = client.post(path, json=body, headers={} if accept is None else {"accept": accept})
    assert answer.status_code == status, answer.text
    return answer


def raw(client: httpx.Client, **body: Any) -> httpx.Response:
    answer = post(client, **body)
    assert answer.headers["content-type"] == OCTETS
    assert int(answer.headers["content-length"]) == len(answer.content)
    return answer


def refusal(client: httpx.Client, **body: Any) -> Any:
    answer = post(client, status=400, **body)
    assert answer.headers["content-type"] == "application/json"
    return answer.json()["error"]


def numbers(data: bytes, embed_dtype: str = "float32", endianness: str = "little") -> npt.NDArray[np.float32]:
    """The numbers in some bytes, as vLLM's `binary2tensor` reads them."""
    kind = np.dtype(TYPES[embed_dtype])
    bits = np.frombuffer(data, f"{'>' if endianness == 'big' else '<'}u{kind.itemsize}")
    return bits.astype(f"u{kind.itemsize}").view(kind).astype(np.float32)


def floats(client: httpx.Client, texts: list[str], **body: Any) -> npt.NDArray[np.float32]:
    data = post(client, input=texts, **body).json()["data"]
    return np.array([entry["embedding"] for entry in data], np.float32)


@pytest.fixture(scope="module")
def roomy() -> Iterator[HttpServer]:
    """A server that takes 3,000 inputs."""
    with serve_in_thread(config=MillConfig(inputs=InputConfig(max_inputs=3000))) as server:
        yield server


@pytest.mark.promise("raw-bytes")
@pytest.mark.parametrize("endianness", ["little", "big"])
@pytest.mark.parametrize("embed_dtype", TYPES)
def test_bytes_with_metadata_are_the_embeddings(
    client: httpx.Client, embed_dtype: str, endianness: str
) -> None:
    asked = {"encoding_format": "bytes", "embed_dtype": embed_dtype, "endianness": endianness}
    answer = raw(client, input=TEXTS, **asked)
    metadata = json.loads(answer.headers["metadata"])
    assert metadata["model"] == MODEL
    assert metadata["id"] == f"embd-{answer.headers['x-request-id']}"
    usage = post(client, input=TEXTS).json()["usage"]
    assert metadata["usage"] == usage
    expected = floats(client, TEXTS).astype(TYPES[embed_dtype]).astype(np.float32)
    for index, (entry, row) in enumerate(zip(metadata["data"], expected, strict=True)):
        assert (entry["index"], entry["shape"]) == (index, [DIM])
        assert (entry["embed_dtype"], entry["endianness"]) == (embed_dtype, endianness)
        found = numbers(answer.content[entry["start"] : entry["end"]], embed_dtype, endianness)
        np.testing.assert_array_equal(found, row)
    assert metadata["data"][-1]["end"] == len(answer.content)


@pytest.mark.parametrize("count", [1, 70, pytest.param(3000, marks=pytest.mark.full)])
def test_bytes_only_are_the_rows_one_after_another(roomy: HttpServer, count: int) -> None:
    texts = [f"text number {number}" for number in range(count)]
    answer = raw(roomy.client, input=texts, encoding_format="bytes_only", embed_dtype="float16")
    assert "metadata" not in answer.headers
    expected = floats(roomy.client, texts).astype(np.float16)
    np.testing.assert_array_equal(np.frombuffer(answer.content, "<f2").reshape(count, DIM), expected)


@pytest.mark.parametrize(
    ("output_dtype", "kind"), [("int8", "i1"), ("uint8", "u1"), ("ubinary", "u1"), ("binary", "i1")]
)
def test_quantised_embeddings_are_raw_bytes_too(client: httpx.Client, output_dtype: str, kind: str) -> None:
    expected = floats(client, TEXTS, output_dtype=output_dtype)
    for encoding_format in ("bytes", "bytes_only"):
        answer = raw(client, input=TEXTS, output_dtype=output_dtype, encoding_format=encoding_format)
        np.testing.assert_array_equal(np.frombuffer(answer.content, kind).reshape(len(TEXTS), -1), expected)
    (entry, *_) = json.loads(
        post(client, input=TEXTS, output_dtype=output_dtype, encoding_format="bytes").headers["metadata"]
    )["data"]
    assert (entry["embed_dtype"], entry["shape"]) == (output_dtype, [expected.shape[1]])


def test_dimensions_shorten_the_bytes(client: httpx.Client) -> None:
    answer = raw(client, input=TEXTS, dimensions=8, encoding_format="bytes_only")
    np.testing.assert_array_equal(numbers(answer.content).reshape(-1, 8), floats(client, TEXTS, dimensions=8))


@pytest.mark.parametrize("encoding_format", ["bytes", "bytes_only"])
def test_bytes_of_chunks_are_refused(client: httpx.Client, encoding_format: str) -> None:
    """They would not tell of which input a vector is."""
    for mode in ("chunks", "late"):
        error = refusal(client, input=TEXTS, encoding_format=encoding_format, chunking={"mode": mode})
        assert error["param"] == "chunking.mode"
    answer = raw(client, input=TEXTS, encoding_format=encoding_format, chunking={"mode": "pooled"})
    np.testing.assert_array_equal(numbers(answer.content).reshape(len(TEXTS), -1), floats(client, TEXTS))


@pytest.mark.promise("raw-bytes")
def test_as_many_inputs_as_a_header_can_describe(roomy: HttpServer) -> None:
    """http.client reads header lines of at most 64 KiB, and it is under requests and urllib3."""
    texts = [f"text {number}" for number in range(MOST_DESCRIBED)]
    connection = http.client.HTTPConnection("127.0.0.1", roomy.port)
    body = {"input": texts, "encoding_format": "bytes", "embed_dtype": "fp8_e4m3"}
    connection.request("POST", "/v1/embeddings", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    data = json.loads(answer.headers["metadata"])["data"]
    assert len(data) == MOST_DESCRIBED
    assert data[-1]["end"] == len(answer.read())
    connection.close()
    error = refusal(roomy.client, input=[*texts, "one more"], encoding_format="bytes")
    assert error["param"] == "encoding_format"
    assert "bytes_only" in error["message"]
    raw(roomy.client, input=[*texts, "one more"], encoding_format="bytes_only")


@pytest.mark.parametrize(
    ("accept", "is_raw"),
    [
        (OCTETS, True),
        (f"{OCTETS}, */*;q=0.1", True),
        (f"application/json, {OCTETS}", True),
        (f"application/json;q=0.5, {OCTETS}; q=0.9", True),
        (f"application/json, {OCTETS};q=0.9", False),
        (f"{OCTETS};q=0", False),
        (f"{OCTETS};q=much", False),
        (f"*/*, {OCTETS};q=0.1", False),
        (f"application/*, text/html, {OCTETS};q=0.1", False),
        ("*/*", False),
        ("application/json", False),
        ("text/html", False),
        (",;,", False),
        ("", False),
    ],
)
def test_accept_chooses(client: httpx.Client, accept: str, is_raw: bool) -> None:
    assert prefers_bytes(accept.encode()) == is_raw
    answer = post(client, input=TEXTS, accept=accept)
    assert answer.headers["content-type"] == (OCTETS if is_raw else "application/json")
    if is_raw:
        assert answer.content == raw(client, input=TEXTS, encoding_format="bytes_only").content


@pytest.mark.parametrize(
    "path",
    ["/embeddings", "/voyage/v1/embeddings", "/openai/v1/embeddings", "/invocations", "/bulk/v1/embeddings"],
)
def test_every_path_of_the_body_has_raw_bytes(client: httpx.Client, path: str) -> None:
    expected = raw(client, input=TEXTS, encoding_format="bytes_only").content
    assert raw(client, path=path, input=TEXTS, accept=OCTETS).content == expected
    assert raw(client, path=path, input=TEXTS, encoding_format="bytes").content == expected


def test_the_header_is_ascii_whatever_the_model_is_called() -> None:
    model = replace(describe_model(locate_model()), name="модель/\u2603")
    with serve_in_thread(models=[model]) as server:
        answer = raw(server.client, input="a", encoding_format="bytes")
        assert json.loads(answer.headers["metadata"])["model"] == model.name


@pytest.mark.parametrize("encoding_format", ["float", "base64", "bytes"])
def test_the_body_counts_before_accept(client: httpx.Client, encoding_format: str) -> None:
    plain = post(client, input=TEXTS, encoding_format=encoding_format)
    answer = post(client, input=TEXTS, encoding_format=encoding_format, accept=OCTETS)
    assert answer.headers["content-type"] == plain.headers["content-type"]
    assert ("metadata" in answer.headers) == (encoding_format == "bytes")


def test_errors_are_json_whatever_is_accepted(client: httpx.Client) -> None:
    assert refusal(client, input=["a"], dimensions=-1, accept=OCTETS)["param"] == "dimensions"
    assert refusal(client, accept=OCTETS)["param"] == "input"


def allow_null(schema: Any) -> Any:
    """A schema of OpenAPI as one of JSON Schema."""
    if isinstance(schema, list):
        return [allow_null(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: allow_null(each) for name, each in schema.items()}
    return {**found, "type": [found["type"], "null"]} if found.pop("nullable", False) else found


def test_the_description_allows_what_has_one_type_in_raw_bytes(client: httpx.Client) -> None:
    rule = jsonschema_rs.validator_for(allow_null(ONE_TYPE_IN_RAW_BYTES))
    names = ("encoding_format", "output_dtype", "embedding_type", "encoding_type")
    types = (None, "binary", "base64", ["ubinary"] * 2, ["float", "binary"])
    for values in itertools.product(("float", "bytes"), (None, "binary"), types, types):
        body = dict(zip(names, values, strict=True))
        answer = client.post("/v1/embeddings", json={"input": "a", **body})
        assert rule.is_valid(body) == (answer.status_code == 200), (body, answer.text)


@pytest.mark.parametrize("embedding_type", [["float", "int8"], "base64"])
def test_one_body_has_one_type(client: httpx.Client, embedding_type: object) -> None:
    for wanted in ({"encoding_format": "bytes"}, {"encoding_format": "bytes_only"}, {"accept": OCTETS}):
        error = refusal(client, input=["a"], embedding_type=embedding_type, **wanted)
        assert error["param"] == "embedding_type"


@pytest.mark.parametrize("encoding_format", ["bytes", "bytes_only"])
def test_sparse_and_token_embeddings_have_no_raw_bytes(every_task: HttpServer, encoding_format: str) -> None:
    client = every_task.client
    for task in (Task.SPARSE, Task.CLASSIFY):
        model = f"model/{task}"
        answer = client.post(
            "/v1/embeddings", json={"model": model, "input": "a", "encoding_format": encoding_format}
        )
        assert answer.status_code == 400
        assert model in answer.json()["error"]["message"]
    for path, model in (("/pooling", Task.MULTI_VECTOR), ("/pooling", Task.EMBED)):
        body = {"model": f"model/{model}", "input": "a", "encoding_format": encoding_format}
        assert refusal(client, path=path, **body)["param"] == "encoding_format"


def test_a_line_of_a_batch_cannot_be_raw(tmp_path: Path) -> None:
    with serve_in_thread(replace(QUIET, batch_dir=tmp_path)) as server:
        lines = [
            request_line(name, {"input": "a", "encoding_format": name})
            for name in ("bytes", "bytes_only", "float")
        ]
        batch = ended(server.client, create_batch(server.client, lines))
        assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
        for line in lines_of(server.client, batch["error_file_id"]):
            assert line["response"]["status_code"] == 400
            assert line["response"]["body"]["error"]["param"] == "encoding_format"


def test_what_was_cut_is_told_beside_the_bytes(client: httpx.Client) -> None:
    answer = raw(client, input=["long " * 600, "short"], encoding_format="bytes_only")
    assert answer.headers["x-truncated-inputs"] == "1"

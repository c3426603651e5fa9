"""Pictures as the clients of each API send them: the library's embeddings, and what each client reads."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.http_server import post
from support.picture_server import (
    CLIP,
    FILES,
    TEXT,
    TEXTS_ALONE,
    URIS,
    near,
    rows,
    serve_pictures,
    to_uri,
)
from support.two_towers import embed_by_library
from vecmill.values.aliases import FloatArray
from vecmill_server.app.openapi.examples import EXAMPLES
from vecmill_server.dialects.embeddings_body import ImageEmbeddingsRequest

PATCHES = 17
SIDE = 32


PART = {"type": "image_url", "image_url": {"url": URIS[0]}}
TEXT_PART = {"type": "text", "text": TEXT}
BOTH = "one embedding of both is not possible"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    with serve_pictures(tmp_path_factory.mktemp("pictures")) as found:
        yield found


@pytest.fixture
def client(server: tuple[httpx.Client, Path]) -> httpx.Client:
    return server[0]


@pytest.fixture(scope="module")
def expected(server: tuple[httpx.Client, Path]) -> FloatArray:
    """The embeddings of `FILES`, and that of `TEXT`."""
    found = embed_by_library(server[1], [TEXT], FILES)
    return np.concatenate((found[1:], found[:1]))


@pytest.mark.parametrize("path", ["/embeddings_image", "/v1/embeddings_image"])
def test_infinity_s_older_route_reads_strings_as_pictures(
    client: httpx.Client, expected: FloatArray, path: str
) -> None:
    body: dict[str, Any] = {
        "input": list(URIS),
        "model": "default/not-specified",
        "encoding_format": "float",
        "user": None,
    }
    answer = post(client, path, **body)
    assert near(rows(answer), expected[:3])
    assert answer["usage"]["total_tokens"] == 3 * PATCHES
    assert near(rows(post(client, path, input=URIS[0])), expected[:1])


@pytest.mark.parametrize("path", ["/images/embeddings", "/models/images/embeddings"])
def test_azure_s_images(client: httpx.Client, expected: FloatArray, path: str) -> None:
    asked: dict[str, Any] = {
        "input": [{"image": each} for each in URIS],
        "input_type": "document",
        "model": CLIP,
    }
    answer = client.post(path, params={"api-version": "2024-05-01-preview"}, json=asked).json()
    assert near(rows(answer), expected[:3])
    error = post(client, path, status=400, input=[{"image": URIS[0], "text": TEXT}])["error"]
    assert error["param"] == "input[0].text"
    assert BOTH in error["message"]


def test_jina_by_langchain_and_by_itself(client: httpx.Client, expected: FloatArray) -> None:
    plain = base64.b64encode(FILES[1]).decode()
    inputs = [{"bytes": plain}, {"text": TEXT}, {"image": URIS[0]}, {"url": URIS[2]}]
    answer = post(client, "/v1/embeddings", model=CLIP, input=inputs)
    assert near(rows(answer), expected[[1, 3, 0, 2]])
    error = post(client, "/v1/embeddings", status=400, input=[{"url": "https://example.org/a.png"}])["error"]
    assert error["param"] == "input[0].url"


@pytest.mark.parametrize("version", ["1", "2"])
def test_cohere_s_images(client: httpx.Client, expected: FloatArray, version: str) -> None:
    path = f"/v{version}/embed"
    asked: dict[str, Any] = {
        "model": CLIP,
        "images": list(URIS),
        "input_type": "image",
        "embedding_types": ["float", "binary"],
    }
    answer = post(client, path, **asked)
    assert near(answer["embeddings"]["float"], expected[:3])
    assert np.shape(answer["embeddings"]["binary"]) == (3, 3)
    assert answer["texts"] == []
    units = {"input_tokens": 0, "image_tokens": 3 * PATCHES, "images": 3}
    assert answer["meta"]["billed_units"] == units
    error = post(client, path, status=400, **{**asked, "embedding_types": ["int8"]})["error"]
    assert error["param"] == "embedding_types"


def test_cohere_s_inputs_have_texts_and_pictures_in_parts(client: httpx.Client, expected: FloatArray) -> None:
    inputs = [{"content": [TEXT_PART]}, {"content": [PART]}]
    answer = post(client, "/v2/embed", model=CLIP, inputs=inputs, input_type="search_document")
    assert near(answer["embeddings"]["float"], expected[[3, 0]])
    units = answer["meta"]["billed_units"]
    assert units == {"input_tokens": units["input_tokens"], "image_tokens": PATCHES, "images": 1}
    assert units["input_tokens"] > 2
    assert answer["texts"] == [TEXT]


@pytest.mark.parametrize("prefix", ["/v1", "", "/voyage/v1"])
def test_voyage_s_multimodal_inputs(client: httpx.Client, expected: FloatArray, prefix: str) -> None:
    asked: dict[str, Any] = {
        "inputs": [
            {"content": [TEXT_PART]},
            {"content": [{"type": "image_base64", "image_base64": URIS[1]}]},
            {"content": [{"type": "image_url", "image_url": URIS[2]}]},
        ],
        "model": CLIP,
        "input_type": None,
        "truncation": True,
        "output_dtype": None,
        "output_dimension": None,
        "encoding_format": "base64",
    }
    answer = post(client, f"{prefix}/multimodalembeddings", **asked)
    found = [np.frombuffer(base64.b64decode(each), "<f4") for each in rows(answer)]
    assert near(found, expected[[3, 1, 2]])
    usage = answer["usage"]
    assert usage["image_pixels"] == 2 * SIDE**2
    assert (usage["video_pixels"], usage["total_tokens"] - usage["text_tokens"]) == (0, 2 * PATCHES)
    assert "x-unknown-fields" not in client.post(f"{prefix}/multimodalembeddings", json=asked).headers


@pytest.mark.parametrize("path", ["/v1/embeddings", "/invocations"])
def test_vllm_s_messages(client: httpx.Client, expected: FloatArray, path: str) -> None:
    of_picture: dict[str, Any] = {
        "model": CLIP,
        "messages": [{"role": "user", "content": [PART]}],
        "encoding_format": "float",
    }
    assert near(rows(post(client, path, **of_picture)), expected[:1])
    for content in ([TEXT_PART], TEXT):
        answer = post(client, path, model=CLIP, messages=[{"role": "user", "content": content}])
        assert near(rows(answer), expected[3:])


def test_vllm_s_pooling(client: httpx.Client, expected: FloatArray) -> None:
    messages = [{"role": "user", "content": [PART]}]
    (entry,) = post(client, "/pooling", model=CLIP, messages=messages, task="embed")["data"]
    assert near(entry["data"], expected[0])
    (entry,) = post(client, "/pooling", model=CLIP, input=[{"image": URIS[1]}])["data"]
    assert near(entry["data"], expected[1])


@pytest.mark.parametrize("prompt", ["<__media__>", " <__media_aB3__>\n", ""])
def test_llama_cpp_s_prompts(client: httpx.Client, expected: FloatArray, prompt: str) -> None:
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    one = {"prompt_string": prompt, "multimodal_data": [base64.b64encode(FILES[0]).decode()]}
    two = {"prompt_string": TEXT, "multimodal_data": []}
    found = client.post("/embedding", json={"model": CLIP, "content": [one, two]}).json()
    assert near([each["embedding"][0] for each in found], unit[[0, 3]])
    (alone,) = client.post("/embedding", json={"model": CLIP, "content": one}).json()
    assert near(alone["embedding"][0], unit[0])
    assert near(rows(post(client, "/v1/embeddings", model=CLIP, input=[one])), expected[:1])


def test_llama_cpp_s_properties_tell_of_pictures(client: httpx.Client) -> None:
    found = client.get("/props").json()  # of the first model, which is one of texts
    assert found["modalities"] == {"vision": False, "audio": False}
    assert found["media_marker"] == "<__media__>"


def test_weaviate_s_container(client: httpx.Client, expected: FloatArray) -> None:
    plain = [base64.b64encode(each).decode() for each in FILES[:2]]
    both = post(client, "/vectorize", texts=[TEXT], images=plain)
    assert near(both["textVectors"], expected[3:])
    assert near(both["imageVectors"], expected[:2])
    alone = post(client, "/vectorize", texts=None, images=plain[:1])
    assert alone["textVectors"] == []
    assert near(alone["imageVectors"], expected[:1])
    assert client.get("/.well-known/live").status_code == 204
    assert client.get("/.well-known/ready").status_code == 204
    assert "server" in client.get("/meta").json()
    for body, name in (
        ({}, "texts"),
        ({"texts": [], "images": []}, "texts"),
        ({"images": [plain[0], "%%"]}, "images[1]"),
        ({"texts": ["a"], "images": [base64.b64encode(b"hello").decode()]}, "images[0]"),
        ({"texts": ["a", 7], "images": plain}, "texts[1]"),
    ):
        error = post(client, "/vectorize", status=400, **body)["error"]
        assert f"`{name}`" in error


def test_ollama_s_images_are_refused_with_a_sentence(client: httpx.Client) -> None:
    for path, field in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
        asked: dict[str, Any] = {"model": CLIP, field: "a", "images": [base64.b64encode(FILES[0]).decode()]}
        error = post(client, path, status=400, **asked)["error"]
        assert error.startswith("`images` are not embedded on this route")


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize(
    ("path", "body", "field", "message"),
    [
        ("/v2/embed", {"inputs": [{"content": [TEXT_PART, PART]}]}, "inputs[0].content[0]", BOTH),
        ("/v2/embed", {"inputs": [{"content": [PART, TEXT_PART]}]}, "inputs[0].content[1]", BOTH),
        ("/v2/embed", {"inputs": [{"content": [PART, PART]}]}, "inputs[0].content[1]", "a second picture"),
        (
            "/v2/embed",
            {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "x!"}}]}]},
            "inputs[0].content[0].image_url.url",
            "is no base64",
        ),
        ("/v2/embed", {"images": [URIS[0]], "texts": ["a"]}, "images", "stand beside texts"),
        ("/v2/embed", {"images": [URIS[0], "https://example.org/"]}, "images[1]", "is a URL"),
        ("/v1/embed", {"images": [URIS[0], to_uri(FILES[0][:60])]}, "images", "`images[1]` is a PNG file"),
        (
            "/v1/multimodalembeddings",
            {"inputs": [{"content": [{"type": "video_url", "video_url": "x"}]}]},
            "inputs[0].content[0]",
            "or a picture",
        ),
        (
            "/v1/multimodalembeddings",
            {"inputs": [{"content": [TEXT_PART]}, {"content": [TEXT_PART, PART]}]},
            "inputs[1].content[0]",
            BOTH,
        ),
        (
            "/v1/embeddings",
            {"model": CLIP, "messages": [{"role": "user", "content": [PART, TEXT_PART]}]},
            "messages[0].content[1]",
            BOTH,
        ),
        (
            "/v1/embeddings",
            {
                "model": CLIP,
                "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "a"}],
            },
            "messages",
            "must be one message",
        ),
        (
            "/v1/embeddings",
            {"model": CLIP, "input": "a", "messages": [{"role": "user", "content": "a"}]},
            "messages",
            "in place of `input`",
        ),
        (
            "/v1/embeddings",
            {"input": [{"image": URIS[0]}], "mm_processor_kwargs": {"size": 9}},
            "mm_processor_kwargs",
            "is not applied",
        ),
        ("/v1/embeddings", {"input": [{"image": URIS[0], "text": TEXT}]}, "input[0].text", BOTH),
        ("/embeddings_image", {"input": ["aaaa", "%"]}, "input[1]", "is no base64"),
        ("/embeddings_image", {"input": []}, "input", "empty"),
        ("/embeddings_image", {"input": [7]}, "input[0]", "must be a string"),
        ("/embeddings_image", {"input": [URIS[0]], "modality": "text"}, "modality", "must be image"),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else value,
)
def test_what_is_wrong_is_named(
    client: httpx.Client, path: str, body: dict[str, Any], field: str, message: str
) -> None:
    error = post(client, path, status=400, **body)["error"]
    assert error["param"] == field
    assert message in error["message"]


def test_llama_cpp_s_prompt_with_a_picture_has_no_text(client: httpx.Client) -> None:
    plain = base64.b64encode(FILES[0]).decode()
    for item, message in (
        ({"prompt_string": "a <__media__>", "multimodal_data": [plain]}, "`content[0].prompt_string` stands"),
        ({"prompt_string": "", "multimodal_data": [plain] * 2}, "`content[0].multimodal_data` has several"),
        ({"prompt_string": "", "multimodal_data": ["%"]}, "`content[0].multimodal_data[0]` is no base64"),
    ):
        error = client.post("/embedding", json={"model": CLIP, "content": [item]}).json()["error"]
        assert error["code"] == 400
        assert message in error["message"]


def test_messages_need_a_model_of_pictures(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "a text"}]
    error = post(client, "/v1/embeddings", status=400, model=TEXTS_ALONE, messages=messages)["error"]
    assert error["param"] == "messages"
    assert "send the text itself as `input`" in error["message"]
    error = post(
        client,
        "/v1/embeddings",
        status=400,
        model=TEXTS_ALONE,
        messages=[{"role": "user", "content": [PART]}],
    )["error"]
    assert "embeds texts alone" in error["message"]


def test_the_example_of_the_document_is_answered(client: httpx.Client) -> None:
    answer = post(client, "/embeddings_image", **EXAMPLES[ImageEmbeddingsRequest].body)
    assert np.shape(rows(answer)) == (1, 24)

"""Pictures at `/embeddings`, as the clients of Infinity, Jina and vLLM send them."""

import base64
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.agreement import offered
from support.batches import create_batch, ended, lines_of, request_line, rows_of
from support.drawn_pictures import draw_picture, write_picture
from support.http_server import PATIENCE_S, QUIET, build_service, post, run_in_thread
from support.two_towers import embed_by_library, save_clip
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.hardware.memory import mapped_mb
from vecmill.models import locate_model
from vecmill.serving_plan.needs import SERVER_MB
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import Precision
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.memory_budget import MEBIBYTE, MODELS_SHARE
from vecmill_server.catalog.model_choice import ModelChoice, choose_models, own_name
from vecmill_server.service.service import create_service

FILES = tuple(write_picture(draw_picture("RGB", 40, 30 + seed, seed), "PNG") for seed in range(3))
TEXT = "the cat and a dog"


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_uri(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{to_base64(data)}"


PICTURE = {"input": [{"image": to_uri(FILES[0])}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


@pytest.fixture(scope="module")
def expected(folder: Path) -> FloatArray:
    """The embeddings of `FILES`, and that of `TEXT`."""
    found = embed_by_library(folder, [TEXT], FILES)
    return np.concatenate((found[1:], found[:1]))


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    config = MillConfig(cache_dir=tmp_path_factory.mktemp("cache"), cores=1)
    settings = replace(QUIET, batch_dir=tmp_path_factory.mktemp("batches"))
    service = build_service(settings, [(describe_model(locate_model(folder)), None)], config=config)
    with (
        run_in_thread(service) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as found,
    ):
        yield found


def embed(client: httpx.Client, inputs: Any, **body: Any) -> FloatArray:
    answer = post(client, "/v1/embeddings", input=inputs, **body)
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    return np.array([each["embedding"] for each in answer["data"]], np.float32)


def test_pictures_in_each_form_have_their_embeddings(client: httpx.Client, expected: FloatArray) -> None:
    strings = [to_uri(FILES[0]), to_base64(FILES[1]), to_uri(FILES[2], "IMAGE/JPEG")]  # the content decides
    of_infinity = embed(client, strings, modality="image")
    of_jina = embed(client, [{"image": each} for each in strings])
    of_langchain = embed(client, [{"bytes": to_base64(each)} for each in FILES])
    of_openai = embed(
        client, [{"type": "image_url", "image_url": {"url": each}} for each in map(to_uri, FILES)]
    )
    for found in (of_infinity, of_jina, of_langchain, of_openai):
        assert np.abs(found - expected[:3]).max() < 1e-4
    alone = embed(client, {"image": strings[0].rstrip("=")})
    assert np.abs(alone - expected[:1]).max() < 1e-4


def test_a_picture_that_comes_again_in_another_form_is_found_in_the_cache(
    folder: Path, client: httpx.Client
) -> None:
    settings = replace(QUIET, result_cache_memory_bytes=10**7)
    service = build_service(settings, [(describe_model(locate_model(folder)), None)])
    forms: tuple[dict[str, Any], ...] = (
        {"input": [to_uri(FILES[0]), to_uri(FILES[1])], "modality": "image"},
        {"input": [{"image": to_base64(FILES[0])}, {"bytes": to_base64(FILES[1])}]},
        {"input": [TEXT, {"image": to_uri(FILES[1])}, {"image": to_uri(FILES[2])}]},
    )
    with run_in_thread(service) as (port, _), httpx.Client(base_url=f"http://127.0.0.1:{port}") as cached:
        for body, found in zip(forms, (None, "2", "1"), strict=True):
            answer = cached.post("/v1/embeddings", json=body)
            assert answer.headers.get("x-cached-inputs") == found
            expected = post(client, "/v1/embeddings", **body)
            assert answer.json()["usage"] == expected["usage"]
            rows, plain = ([each["embedding"] for each in one["data"]] for one in (answer.json(), expected))
            np.testing.assert_allclose(rows, plain, atol=2e-6)


def test_the_list_of_models_says_which_embed_pictures(client: httpx.Client) -> None:
    (model,) = client.get("/models").json()["data"]
    assert {"embed", "image_embed"} <= set(model["capabilities"])


def test_what_is_said_of_a_model_tells_the_precision_of_its_pictures_apart(folder: Path) -> None:
    if Precision.BF16 not in offered("openvino"):
        pytest.skip("this processor does not multiply bf16")
    config = MillConfig(precision="bf16", engine="openvino", cores=1)
    service = build_service(QUIET, [(describe_model(locate_model(folder)), None)], config=config)
    with run_in_thread(service) as (port, _), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        (model,) = client.get("/models").json()["data"]
        reports = [client.get(f"/v1/accuracy/{model['id']}").json(), client.get("/info").json()["accuracy"]]
    for said in (model, *reports):
        assert (said["engine"], said["precision"]) == ("openvino", "bf16")
        assert said["pictures"].items() >= {("engine", "openvino"), ("precision", "fp32"), ("device", "cpu")}


def test_the_description_of_the_model_says_how_large_pictures_are(client: httpx.Client) -> None:
    assert client.get("/info").json()["pictures"].items() >= {("image_size", 32), ("tokens", 17)}
    assert client.get("/props").json()["modalities"]["vision"] is True


def test_metrics_count_pictures_as_inputs_and_their_patches_as_tokens(client: httpx.Client) -> None:
    def read(name: str) -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))

    names = ("vecmill_texts_admitted_total", "vecmill_tokens_total")
    before = [read(name) for name in names]
    embed(client, [{"image": to_uri(each)} for each in FILES])
    counted = [read(name) - old for name, old in zip(names, before, strict=True)]
    assert counted == [3, 3 * 17]


def test_a_batch_embeds_pictures_too(client: httpx.Client, expected: FloatArray) -> None:
    part = {"type": "image_url", "image_url": {"url": to_uri(FILES[1])}}
    lines = [
        request_line("pictures", {"input": [{"image": to_uri(FILES[0])}, TEXT]}),
        request_line("message", {"messages": [{"role": "user", "content": [part]}]}),
        request_line("broken", {"input": [{"image": to_uri(FILES[0][:60])}]}),
    ]
    batch = ended(client, create_batch(client, lines))
    assert (batch["request_counts"]["completed"], batch["request_counts"]["failed"]) == (2, 1)
    found = {line["custom_id"]: line for line in lines_of(client, batch["output_file_id"])}
    assert np.abs(rows_of(found["pictures"]) - expected[[0, 3]]).max() < 1e-4
    assert np.abs(rows_of(found["message"]) - expected[1:2]).max() < 1e-4
    (error,) = lines_of(client, batch["error_file_id"])
    assert "`input[0]` is a PNG file" in error["response"]["body"]["error"]["message"]


def test_texts_stand_beside_pictures_in_their_places(client: httpx.Client, expected: FloatArray) -> None:
    inputs = [TEXT, {"image": to_uri(FILES[1])}, {"text": TEXT}, {"image": to_uri(FILES[0])}]
    found = embed(client, inputs)
    assert np.abs(found - expected[[3, 1, 3, 0]]).max() < 1e-4
    plain = embed(client, TEXT)
    assert np.abs(plain - expected[3:]).max() < 1e-4


def test_the_space_of_pictures_is_that_of_texts_and_the_usage_counts_patches(client: httpx.Client) -> None:
    answers = [
        client.post("/v1/embeddings", json={"input": each}) for each in (TEXT, [{"image": to_uri(FILES[0])}])
    ]
    spaces = {answer.headers["x-space"] for answer in answers}
    assert len(spaces) == 1
    assert answers[1].json()["usage"]["prompt_tokens"] == 17


def test_types_and_sizes_of_embeddings_are_those_of_texts(client: httpx.Client, expected: FloatArray) -> None:
    picture = [{"image": to_uri(FILES[0])}]
    (entry,) = post(client, "/v1/embeddings", input=picture, encoding_format="base64", dimensions=8)["data"]
    found = np.frombuffer(base64.b64decode(entry["embedding"]), "<f4")
    assert np.abs(found - expected[0][:8]).max() < 1e-4
    (entry,) = post(client, "/v1/embeddings", input=picture, output_dtype="ubinary")["data"]
    assert entry["embedding"] == np.packbits(expected[0] > 0).tolist()
    raw = client.post("/v1/embeddings", json={"input": picture, "encoding_format": "bytes_only"})
    assert np.abs(np.frombuffer(raw.content, "<f4") - expected[0]).max() < 1e-4


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"input": [{"image": "data:image/png,abc"}]}, "input[0].image", "as a data URI"),
        ({"input": [TEXT, {"image": "%%%"}]}, "input[1].image", "is no base64"),
        ({"input": [{"image": 7}]}, "input[0].image", "must be a picture"),
        (
            {"input": [{"image_url": {"url": "https://example.org/a.png"}}]},
            "input[0].image_url.url",
            "is a URL",
        ),
        (
            {"input": ["http://127.0.0.1/"], "modality": "image"},
            "input[0]",
            "is a URL, and this server fetches",
        ),
        ({"input": "ab", "modality": "audio"}, "modality", "must be text or image"),
        ({"input": [{"image": to_base64(FILES[0][:70])}]}, "input", "`input[0]` is a PNG file that cannot"),
        ({"input": [{"image": to_base64(b"hello")}]}, "input", "`input[0]` is no PNG, JPEG, WebP or GIF"),
        ({**PICTURE, "chunking": {"mode": "chunks"}}, "chunking", "is for texts alone"),
        ({**PICTURE, "output_dtype": "int8"}, "output_dtype", "int8 and uint8 need texts"),
        ({"input": [[1, 2], {"image": to_uri(FILES[0])}]}, "input[0]", "is token ids beside a picture"),
        ({"input": [{"image": to_uri(FILES[0])}, {"audio": "x"}]}, "input[1]", 'without "text" or "image"'),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else value,
)
def test_a_picture_that_is_none_is_a_400_that_names_it(
    client: httpx.Client, body: dict[str, Any], field: str, message: str
) -> None:
    error = post(client, "/v1/embeddings", status=400, **body)["error"]
    assert error["param"] == field
    assert message in error["message"]


def test_the_bytes_of_pictures_count_beside_their_base64(folder: Path, tmp_path: Path) -> None:
    """The same body has room as a text, and none as a picture, whose content is held too."""
    config = MillConfig(cache_dir=tmp_path / "cache", cores=1)
    settings = replace(QUIET, max_buffered_bytes=2**20)
    service = build_service(settings, [(describe_model(locate_model(folder)), None)], config=config)
    content = to_base64(FILES[0] + bytes(225_000))
    with (
        run_in_thread(service) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        post(client, "/v1/embeddings", input=[{"text": content}])
        error = post(client, "/v1/embeddings", status=413, input=[{"image": content}])["error"]
        assert "--max-buffered-bytes" in error["message"]
        post(client, "/v1/embeddings", input=[{"image": content[:200_000]}])
        assert service.budget.held == 0


def test_a_model_of_texts_alone_says_so(every_task: Any) -> None:
    body = {"model": "model/embed", "input": [{"image": to_uri(FILES[0])}]}
    error = post(every_task.client, "/v1/embeddings", status=400, **body)["error"]
    assert "embeds texts alone; it cannot embed pictures" in error["message"]


def flatten(config: Any) -> dict[str, Any]:
    """The values of options by field name, of a configuration and of those within it."""
    values: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        values |= flatten(value) if is_dataclass(value) else {field.name: value}
    return values


def test_two_directories_are_served_as_one_model_on_demand(
    folder: Path, expected: FloatArray, tmp_path: Path
) -> None:
    file = tmp_path / "server.toml"
    other = save_clip(tmp_path / "texts", seed=8)
    pair = f"text={other},image={folder}"
    file.write_text(f'[[models]]\nmodel = "{pair}"\nname = "both"\nalias = ["pictures"]\n')
    config = MillConfig(cache_dir=tmp_path / "cache", cores=1)
    choices = choose_models((), read_config_file(file).models, flatten(config), ())
    budget = round((max(SERVER_MB, mapped_mb()) + 200) / MODELS_SHARE * 1e6 / MEBIBYTE)
    settings = ServerSettings(lame_duck_s=0, drain_s=5, memory_budget_mib=budget)
    with (
        run_in_thread(create_service(choices, settings, config)) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        (state,) = client.get("/readyz").json()["models"]
        assert (state["name"], state["state"]) == ("both", "not_loaded")
        for name in ("both", "pictures"):
            found = embed(client, [{"image": to_uri(each)} for each in FILES] + [TEXT], model=name)
            assert np.abs(found[:3] - expected[:3]).max() < 1e-4
            assert np.abs(found[3] - expected[3]).max() > 1e-2
        for model in client.get("/models").json()["data"]:
            assert {"embed", "image_embed"} <= set(model["capabilities"])
    read = [ModelChoice.read(each) for each in (pair, f"both={pair}")]
    assert [(each.name, each.model) for each in read] == [(None, pair), ("both", pair)]
    assert own_name(pair) == "texts"

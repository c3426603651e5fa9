"""`vecmill describe NAME` says before the download what it says after it, and what serving says."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from parity.test_published_directories import EMBEDDERS, REFUSED, RERANKERS
from support.changed_models import save_whole_model
from support.fake_hub import FakeHub, Repository, point_client_at, run_fake_hub
from support.published import Published, edit_json, respell, save_published
from support.task_models import save_causal, save_dense_router, save_router_of_encoders, save_task_model
from support.tiny_models import save_tiny_bert
from support.two_towers import save_clip
from vecmill import MillConfig, SyncMill
from vecmill.commands.main import main
from vecmill.directory_layouts import describe_model
from vecmill.errors import SetupError
from vecmill.models import locate_model
from vecmill.models.hub import HubName, fetch_model
from vecmill.requests import Embed, Purpose, TextOptions
from vecmill.serving_plan.needs import estimate_memory, estimate_start
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.precision_gate import PrecisionResult, _file_name

NAME = "owner/model"
WEIGHTS = "model.safetensors"
# An encoder, one with windows, a decoder, further modules, half of a pair of stacks, and a reranker.
QUICK = {
    "BAAI/bge-small-en-v1.5",
    "Alibaba-NLP/gte-modernbert-base",
    "Qwen/Qwen3-Embedding-0.6B",
    "google/embeddinggemma-300m",
    "sentence-transformers/gtr-t5-base",
    "mixedbread-ai/mxbai-rerank-base-v1",
}
OTHERS = {
    "intfloat/multilingual-e5-base",
    "mixedbread-ai/mxbai-embed-large-v1",
    "nomic-ai/nomic-embed-text-v1.5",
    "sentence-transformers/LaBSE",
    "sentence-transformers/all-mpnet-base-v2",
    "cross-encoder/ms-marco-MiniLM-L6-v2",
    "BAAI/bge-reranker-v2-m3",
}
PUBLISHED = {**EMBEDDERS, **RERANKERS}
SERVED = {name: model for name, model in PUBLISHED.items() if name in QUICK | OTHERS}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with run_fake_hub() as hub:
        point_client_at(hub, tmp_path / "hub", monkeypatch)
        yield hub


def publish(hub: FakeHub, folder: Path, model: Published) -> None:
    save_published(folder, model)
    respell(folder, model)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    hub.repositories[NAME] = Repository(
        {str(path.relative_to(folder)): path.read_bytes() for path in paths}, is_large=frozenset({WEIGHTS})
    )


def describe(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["describe", NAME, *arguments])


def read_page(result: Result) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(result.stdout)
    return {key: value for key, value in page.items() if key != "missing_bytes"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in SERVED]
)
def test_a_description_is_the_same_before_and_after_the_download(
    hub: FakeHub, tmp_path: Path, name: str
) -> None:
    publish(hub, tmp_path / "model", SERVED[name])
    before = describe("--json")
    assert before.exit_code == 0, before.output
    assert json.loads(before.stdout)["missing_bytes"] > 0
    weights = {file for file in hub.repositories[NAME].files if file.endswith(WEIGHTS)}
    assert all(wanted is not None for file, wanted in hub.served if file in weights)
    hub.served.clear()
    fetch_model(HubName(NAME))
    assert {file for file, _ in hub.served} == weights
    after = describe("--json")
    assert read_page(after) == read_page(before)
    assert json.loads(after.stdout)["missing_bytes"] == 0


def test_a_description_does_not_read_the_hole_of_the_weights(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*arguments: object) -> str:
        raise AssertionError("gigabytes of zeros")

    monkeypatch.setattr("vecmill.models.fingerprint._read_hash", read)
    publish(hub, tmp_path / "model", SERVED["BAAI/bge-small-en-v1.5"])
    assert describe().exit_code == 0


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_has_the_sentence_of_serving(hub: FakeHub, tmp_path: Path, name: str) -> None:
    publish(hub, tmp_path / "model", REFUSED[name])
    before = describe("--json")
    assert before.exit_code == 2
    with pytest.raises(SetupError) as caught:
        SyncMill(NAME).__enter__()
    assert json.loads(before.stdout)["reason"] == caught.value.message
    assert read_page(describe("--json")) == read_page(before)


def test_shapes_that_do_not_fit_are_refused_with_the_sentence_of_serving(
    hub: FakeHub, tmp_path: Path
) -> None:
    publish(hub, tmp_path / "model", SERVED["BAAI/bge-small-en-v1.5"])
    files = hub.repositories[NAME].files
    config = json.dumps({**json.loads(files["config.json"]), "intermediate_size": 40}).encode()
    hub.repositories[NAME] = Repository({**files, "config.json": config})
    before = describe("--json")
    assert before.exit_code == 2
    with pytest.raises(SetupError) as caught:
        SyncMill(NAME).__enter__()
    assert json.loads(before.stdout)["reason"] == caught.value.message
    assert "intermediate_size" in caught.value.message


def test_an_asymmetric_model_is_described_with_its_queries_and_downloaded_whole(
    hub: FakeHub, tmp_path: Path
) -> None:
    encoders = [save_task_model(tmp_path / name, "BertModel", seed=seed) for seed, name in enumerate("qd")]
    save_dense_router(tmp_path / "table", encoders[1])
    save_router_of_encoders(tmp_path / "encoder", *encoders)
    for folder, lines in {
        "table": ("queries        looked up in a table; ", "default route  document"),
        "encoder": ("queries        an encoder, bert; ", "default route  document"),
    }.items():
        paths = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
        files = {str(path.relative_to(tmp_path / folder)): path.read_bytes() for path in paths}
        weights = frozenset(name for name in files if name.endswith(WEIGHTS))
        hub.repositories[NAME] = Repository(files, is_large=weights)
        before = describe("--json")
        assert before.exit_code == 0, before.output
        page = describe().stdout
        assert all(line in page for line in lines), page
        with SyncMill(NAME, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
            options = TextOptions(purpose=Purpose.QUERY)
            assert mill.run(Embed(("the one",), options=options)).embeddings.shape == (1, 32)
        assert read_page(describe("--json")) == read_page(before)
        reads = json.loads(before.stdout)["reads"]
        assert {name for name in files if name.startswith("query_0") and name.endswith(WEIGHTS)} <= {*reads}


def test_an_encoder_of_queries_that_cannot_be_served_is_refused_before_the_download(
    hub: FakeHub, tmp_path: Path
) -> None:
    encoders = [save_task_model(tmp_path / name, "BertModel", seed=seed) for seed, name in enumerate("qd")]
    save_router_of_encoders(tmp_path / "m", *encoders)
    config = tmp_path / "m" / "query_0_Transformer" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "intermediate_size": 40}))
    result = CliRunner().invoke(main, ["describe", str(tmp_path / "m"), "--json"])
    assert result.exit_code == 2, result.output
    with pytest.raises(SetupError) as caught:
        SyncMill(tmp_path / "m", MillConfig(cache_dir=tmp_path / "prepared")).__enter__()
    assert json.loads(result.stdout)["reason"] == caught.value.message


def test_what_was_described_is_not_served_without_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    publish(hub, tmp_path / "model", SERVED["BAAI/bge-small-en-v1.5"])
    assert describe().exit_code == 0
    pinned = HubName(NAME, hub.repositories[NAME].commit)
    hub.status = 500
    for name in (HubName(NAME), pinned):
        with pytest.raises(SetupError, match="is not in the cache in full"):
            fetch_model(name)


def test_a_header_of_any_length_is_bounded(hub: FakeHub, tmp_path: Path) -> None:
    publish(hub, tmp_path / "model", SERVED["BAAI/bge-small-en-v1.5"])
    files = hub.repositories[NAME].files
    hub.repositories[NAME] = Repository({**files, WEIGHTS: b"\xff" * 2**20})
    result = describe()
    assert result.exit_code == 2
    assert "is not a complete safetensors file: its header has" in result.stderr


# (fp32 weights in MB, stored in 16 bits, first start, later starts), of the table in docs/choosing.md.
STARTS = [
    (134, False, 1.2, 0.5),
    (438, False, 3.0, 0.8),
    (2_271, False, 14.6, 2.4),
    (1_112, False, 5.7, 1.4),
    (738, False, 3.3, 1.2),
    (596, False, 4.9, 1.8),
    (2_383, True, 19.7, 3.3),
    (4_029, True, 24.7, 4.5),
]


@pytest.mark.parametrize(("weights_mb", "is_converted", "first_s", "later_s"), STARTS)
def test_start_times_are_above_those_that_were_measured(
    weights_mb: float, *, is_converted: bool, first_s: float, later_s: float
) -> None:
    found = estimate_start(weights_mb * 1e6, is_converted=is_converted)
    assert first_s <= found.first_s <= 2 * first_s
    assert later_s <= found.later_s <= later_s + 1


def test_the_limit_has_room_for_the_measured_peaks() -> None:
    for millions, peak_mb, openvino_peak_mb in ((23, 267, 719), (33, 353, 1_042), (109, 888, 1_796)):
        needs = estimate_memory(millions * 1e6)
        assert needs["onnx fp32"].limit_mb > peak_mb
        assert needs["openvino bf16"].limit_mb > openvino_peak_mb


@pytest.mark.promise("space-identifies")
def test_the_space_is_explained_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECMILL_CACHE_DIR", str(tmp_path / "cache"))
    folder = save_whole_model(tmp_path / "model")
    page = json.loads(CliRunner().invoke(main, ["describe", str(folder), "--space", "--json"]).stdout)
    with SyncMill(folder, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
        assert page["space"] == mill.identity.space
    lines = CliRunner().invoke(main, ["describe", str(folder), "--space"]).stdout.splitlines()
    assert f"space          {page['space']}" in lines
    for name, digest, about in page["parts"]:
        assert any(line.split() == [name, digest, *about.split()] for line in lines), name
    plain = CliRunner().invoke(main, ["describe", str(folder)]).stdout
    assert page["space"] not in plain


@pytest.mark.promise("space-identifies")
def test_one_part_tells_what_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECMILL_CACHE_DIR", str(tmp_path / "cache"))
    folder = save_whole_model(tmp_path / "model")

    def read_parts() -> dict[str, str]:
        page = json.loads(CliRunner().invoke(main, ["describe", str(folder), "--space", "--json"]).stdout)
        return {name: digest for name, digest, _ in page["parts"]}

    before = read_parts()
    edit_json(folder / "config.json", layer_norm_eps=1e-6)
    after = read_parts()
    assert {name for name in after if after[name] != before[name]} == {"architecture"}


@pytest.mark.promise("space-identifies")
def test_the_space_of_a_model_needs_its_weights(hub: FakeHub, tmp_path: Path) -> None:
    publish(hub, tmp_path / "model", SERVED["BAAI/bge-small-en-v1.5"])
    result = describe("--space")
    assert result.exit_code == 1
    assert f"have not been downloaded: vecmill pull {NAME}" in result.output
    fetch_model(HubName(NAME))
    assert "\nspace          s1-" in describe("--space").output


def test_a_model_that_embeds_pictures_is_described_with_them(tmp_path: Path) -> None:
    folder = str(save_clip(tmp_path / "clip"))
    page = json.loads(CliRunner().invoke(main, ["describe", folder, "--json"]).stdout)
    assert page["pictures"] == {"size": [32, 32], "patches": 17, "precision": "fp32"}
    assert "preprocessor_config.json" in " ".join(page["reads"])
    shown = CliRunner().invoke(main, ["describe", folder]).stdout
    assert "resized to 32 x 32 pixels, 17 patches, in fp32" in shown


def test_what_is_assumed_of_a_model_is_told(tmp_path: Path) -> None:
    save_causal(tmp_path / "model")
    page = json.loads(CliRunner().invoke(main, ["describe", str(tmp_path / "model"), "--json"]).stdout)
    (assumption,) = page["assumptions"]
    assert (
        f"\nassumed        {assumption}\n"
        in CliRunner().invoke(main, ["describe", str(tmp_path / "model")]).stdout
    )


def test_what_the_first_start_in_int8_measured_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecmill.commands.describe.page.default_cache_dir", lambda: tmp_path)
    monkeypatch.setattr("vecmill.models.digests.SETTLED_S", -math.inf)  # as if it was written long ago
    model, plan = save_tiny_bert(tmp_path / "model"), EnginePlan("onnx", Precision.INT8)
    file = _file_name(describe_model(locate_model(model)), plan, tmp_path)
    PrecisionResult(0.99873, 200).write(tmp_path / file)
    shown = CliRunner().invoke(main, ["describe", str(model)])
    assert (
        "checked        int8 on onnx: the lowest cosine with fp32 over 200 texts was 0.9987, "
        "and the minimum is 0.992\n"
    ) in shown.stdout
    page = json.loads(CliRunner().invoke(main, ["describe", str(model), "--json"]).stdout)
    (check,) = page["precision_checks"]
    assert (check["worst_cosine"], check["texts"], check["device"]) == (0.99873, 200, "any")

"""Queries and documents of one model go through encoders of their own, which are those of the reference."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support import pytorch_files
from support.lora_adapters import Lora, write_adapter
from support.scales import in_part, in_turns
from support.task_models import (
    save_causal,
    save_router_before_pooling,
    save_router_of_encoders,
    save_sparse_router_of_encoders,
    save_task_model,
)
from tasks.conftest import TEXTS
from vecmill import Mill, MillConfig
from vecmill.commands.check.model_comparison import compare_model
from vecmill.commands.optimize.output_directory import copy_model
from vecmill.config import QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.errors import SetupError, UnsupportedModel
from vecmill.models import locate_model
from vecmill.requests import Embed, EmbedSparse, EmbedTokens, Purpose, Rerank, TextOptions
from vecmill.values.aliases import FloatArray
from vecmill.values.observer import BatchRecord, Observer
from vecmill.verification.reference import load_reference_implementation

TOLERANCE = 1e-4
ENGINE_NAMES = [name for name in ("onnx", "openvino", "torch") if ENGINES[name].is_installed]
# The reference cannot read a text without tokens alone.
SAMPLE = [text for text in TEXTS if text]
OPTIONS = {purpose: TextOptions(purpose=purpose) for purpose in (Purpose.QUERY, Purpose.DOCUMENT)}


@dataclass(frozen=True)
class Sample:
    """A saved model, and the outputs of its reference for `SAMPLE`, by purpose."""

    folder: Path
    oracle: Any
    is_sparse: bool
    expected: dict[Purpose, FloatArray]

    @classmethod
    def of(cls, folder: Path, oracle: Any, *, is_sparse: bool = False) -> "Sample":
        encoders = {Purpose.QUERY: oracle.encode_query, Purpose.DOCUMENT: oracle.encode_document}
        expected = {}
        for purpose, encode in encoders.items():
            found = encode(SAMPLE, convert_to_sparse_tensor=False) if is_sparse else encode(SAMPLE)
            expected[purpose] = np.asarray(found, np.float32)
        return cls(folder, oracle, is_sparse, expected)

    async def embed(self, mill: Mill, texts: list[str], options: TextOptions) -> FloatArray:
        if not self.is_sparse:
            return (await mill.run(Embed(tuple(texts), options=options))).embeddings
        rows = (await mill.run(EmbedSparse(tuple(texts), options=options))).embeddings
        found = np.zeros((len(rows), mill.description.dim), np.float32)
        for index, row in enumerate(rows):
            found[index, row.columns] = row.values
        return found


def save_unlike(folder: Path) -> Sample:
    """A causal encoder for queries, one of both directions for documents."""
    save_causal(folder / "query")
    document = save_task_model(folder / "document", "BertModel")
    return Sample.of(folder / "m", save_router_of_encoders(folder / "m", folder / "query", document))


def save_alike(folder: Path) -> Sample:
    """The same architecture twice, and modules that both share."""
    query, document = (
        save_task_model(folder / name, "BertModel", seed=seed) for seed, name in enumerate(("q", "d"))
    )
    return Sample.of(folder / "m", save_router_before_pooling(folder / "m", query, document))


def save_sparse(folder: Path) -> Sample:
    query, document = (
        save_task_model(folder / name, "BertForMaskedLM", seed=seed) for seed, name in enumerate(("q", "d"))
    )
    oracle = save_sparse_router_of_encoders(folder / "m", query, document)
    return Sample.of(folder / "m", oracle, is_sparse=True)


SAVES = (save_unlike, save_alike, save_sparse)


@pytest.fixture(scope="module", params=SAVES)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    save: Callable[[Path], Sample] = request.param
    return save(tmp_path_factory.mktemp(save.__name__))


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prepared")


@pytest.mark.parametrize(("sample", "engine"), in_turns(SAVES, ENGINE_NAMES), indirect=["sample"])
def test_each_side_is_that_of_the_reference_in_random_company(
    sample: Sample, cache_dir: Path, engine: str
) -> None:
    draw = random.Random(8)

    async def embed(mill: Mill, purpose: Purpose, rows: list[int]) -> None:
        found = await sample.embed(mill, [SAMPLE[row] for row in rows], OPTIONS[purpose])
        wanted = sample.expected[purpose][rows]
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE * scale)

    async def embed_all() -> None:
        async with Mill(sample.folder, MillConfig(cache_dir=cache_dir, engine=engine)) as mill:
            asked = [(purpose, [row]) for purpose in OPTIONS for row in range(len(SAMPLE))]
            asked += [
                (purpose, draw.sample(range(len(SAMPLE)), draw.randint(2, 6)))
                for purpose in OPTIONS
                for _ in range(8)
            ]
            draw.shuffle(asked)
            await asyncio.gather(*(embed(mill, purpose, rows) for purpose, rows in asked))

    asyncio.run(embed_all())
    # The comparison would find exchanged sides.
    one, other = sample.expected.values()
    assert np.abs(one - other).max() > 100 * TOLERANCE


def test_documents_are_ranked_by_the_encoders_of_both_sides(sample: Sample, cache_dir: Path) -> None:
    queries, documents = SAMPLE[:2], SAMPLE[2:6]
    ours = sample.oracle.similarity(
        sample.oracle.encode_query(queries), sample.oracle.encode_document(documents)
    ).numpy()
    scale = max(1.0, float(np.abs(ours).max()))

    async def rank() -> None:
        async with Mill(sample.folder, MillConfig(cache_dir=cache_dir)) as mill:
            for query, scores in zip(queries, ours, strict=True):
                found = (await mill.rerank(query, documents)).scores
                np.testing.assert_allclose(found, scores, atol=TOLERANCE * scale)
            pairs = (await mill.run(Rerank(tuple(queries), tuple(documents[:2])))).scores
            np.testing.assert_allclose(pairs, np.diag(ours[:, :2]), atol=TOLERANCE * scale)

    asyncio.run(rank())
    assert np.ptp(ours) > 100 * TOLERANCE


def test_texts_without_a_purpose_go_the_default_route(tmp_path: Path, cache_dir: Path) -> None:
    save_causal(tmp_path / "q")
    document = save_task_model(tmp_path / "d", "BertModel")

    async def embed(folder: Path) -> FloatArray:
        async with Mill(folder, MillConfig(cache_dir=cache_dir)) as mill:
            return await mill.embed(SAMPLE)

    for name, parameters in {"named": {}, "first": {"default_route": None}}.items():
        oracle = save_router_of_encoders(tmp_path / name, tmp_path / "q", document, **parameters)
        found = asyncio.run(embed(tmp_path / name))
        np.testing.assert_allclose(found, oracle.encode(SAMPLE), atol=TOLERANCE)


def test_an_optimised_copy_has_both_encoders(sample: Sample, tmp_path: Path, cache_dir: Path) -> None:
    (tmp_path / "copy").mkdir()
    copy_model(describe_model(locate_model(sample.folder)), tmp_path / "copy")

    async def embed() -> FloatArray:
        async with Mill(tmp_path / "copy", MillConfig(cache_dir=cache_dir)) as mill:
            return await sample.embed(mill, SAMPLE, OPTIONS[Purpose.QUERY])

    wanted = sample.expected[Purpose.QUERY]
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(asyncio.run(embed()), wanted, atol=TOLERANCE * scale)


class BatchesSeen(Observer):
    """The sizes of the batches and the numbers of the lanes, as an observer sees them."""

    def __init__(self) -> None:
        self.texts: list[int] = []
        self.lanes: set[int] = set()

    def batch_done(self, record: BatchRecord) -> None:
        self.texts.append(record.texts)

    def lane(self, lane: int, state: object) -> None:
        self.lanes.add(lane)


def test_a_busy_side_refuses_no_text_of_the_other_and_lanes_have_numbers_of_their_own(
    tmp_path: Path, cache_dir: Path
) -> None:
    """The engine of the documents hangs, and their queue is full."""
    sample = save_unlike(tmp_path)
    description = describe_model(locate_model(sample.folder))
    engine = FakeEngine(
        dim=32, lane_widths=(1,), faults=FaultScript(calls=dict.fromkeys(range(64), Fault.HANG))
    )
    config = MillConfig(cores=2, cache_dir=cache_dir, queue=QueueConfig(max_queue_texts=1))
    observer = BatchesSeen()

    async def ask() -> None:
        async with Mill(description, config, engine=engine, observer=observer) as mill:
            running = asyncio.create_task(mill.run(Embed(("one",), options=OPTIONS[Purpose.DOCUMENT])))
            await asyncio.to_thread(engine.wait_for_calls, 1)
            found = await sample.embed(mill, SAMPLE[:1], OPTIONS[Purpose.QUERY])
            np.testing.assert_allclose(found, sample.expected[Purpose.QUERY][:1], atol=TOLERANCE)
            assert not running.done()
            assert mill.text_counts.admitted == 2
            assert mill.text_counts.done == 1
            engine.released.set()
            await running

    asyncio.run(ask())
    assert observer.texts == [1, 1]
    assert observer.lanes == set(range(len(observer.lanes)))
    assert len(observer.lanes) == 4


def test_hidden_states_of_queries_are_those_of_their_encoder(tmp_path: Path, cache_dir: Path) -> None:
    sample = save_unlike(tmp_path)

    async def embed() -> None:
        async with Mill(sample.folder, MillConfig(cache_dir=cache_dir)) as mill:
            request = EmbedTokens(tuple(SAMPLE[:1]), hidden_states=True, options=OPTIONS[Purpose.QUERY])
            (found,) = (await mill.run(request)).embeddings
            encoded = sample.oracle.encode_query(
                SAMPLE[:1], output_value="token_embeddings", normalize_embeddings=False
            )
            np.testing.assert_allclose(found, np.asarray(encoded[0]), atol=TOLERANCE * 10)

    asyncio.run(embed())


@pytest.mark.parametrize("sample", in_part(SAVES, save_unlike, save_sparse), indirect=True)
def test_a_check_compares_both_encoders(sample: Sample, tmp_path: Path) -> None:
    reports = compare_model(str(sample.folder), MillConfig(cache_dir=tmp_path), texts=SAMPLE).reports
    assert [report.model for report in reports] == ["m, documents", "m, queries"]
    assert all(report.is_within(TOLERANCE) for report in reports)
    assert all(report.engine == "onnx" for report in reports)
    assert all(report.reference.startswith("sentence-transformers") for report in reports)


def edit(file: Path, change: Callable[[Any], None]) -> None:
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


def put_a_router_into_a_route(folder: Path) -> None:
    kind = "sentence_transformers.base.modules.router.Router"
    edit(folder / "router_config.json", lambda config: config["types"].update(query_0_Transformer=kind))


def normalise_documents_alone(folder: Path) -> None:
    """Leave Normalize to the documents alone."""
    edit(folder / "modules.json", lambda modules: modules.pop())
    kind, name = "sentence_transformers.base.modules.normalize.Normalize", "1_Normalize"
    edit(folder / "router_config.json", lambda config: config["types"].update({name: kind}))
    edit(folder / "router_config.json", lambda config: config["structure"]["document"].append(name))


def make_queries_narrower(folder: Path) -> None:
    (folder / "narrow").mkdir()
    values = np.zeros((16, 32), np.float32)
    safetensors.numpy.save_file({"linear.weight": values}, folder / "narrow" / "model.safetensors")
    settings = {"in_features": 32, "out_features": 16, "bias": False}
    (folder / "narrow" / "config.json").write_text(
        json.dumps({**settings, "activation_function": "torch.nn.modules.linear.Identity"})
    )
    kind = "sentence_transformers.base.modules.dense.Dense"
    edit(folder / "router_config.json", lambda config: config["types"].update(narrow=kind))
    edit(folder / "router_config.json", lambda config: config["structure"]["query"].append("narrow"))


def adapt_the_queries(folder: Path) -> None:
    query = "encoder.layer.0.attention.self.query"
    shapes = {f"{query}.lora_A.weight": [3, 32], f"{query}.lora_B.weight": [32, 3]}
    write_adapter(folder / "query_0_Transformer", shapes, Lora(targets=("query",)), "")


def take_a_tensor_away(folder: Path) -> None:
    path = folder / "query_0_Transformer" / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors.pop("encoder.layer.1.output.dense.weight")
    safetensors.numpy.save_file(tensors, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put_a_router_into_a_route, r"router_config\.json: structure\.query has Router, Pooling"),
        (normalise_documents_alone, "Normalize for one route alone"),
        (make_queries_narrower, "16 and 32 dimensions"),
        (
            adapt_the_queries,
            r"query_0_Transformer/adapter_config\.json: an adapter of the encoder of queries",
        ),
        (take_a_tensor_away, r"encoder\.layer\.1\.output\.dense\.weight"),
    ],
)
def test_other_routes_are_refused_with_the_file(
    tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    encoders = [save_task_model(tmp_path / name, "BertModel", seed=seed) for seed, name in enumerate("qd")]
    save_router_of_encoders(tmp_path / "m", *encoders)
    change(tmp_path / "m")

    async def start() -> None:
        async with Mill(tmp_path / "m", MillConfig(cache_dir=tmp_path / "prepared")):
            pass

    with pytest.raises(SetupError, match=message):
        asyncio.run(start())


def test_an_encoder_of_several_adapters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoders = [save_task_model(tmp_path / name, "BertModel", seed=seed) for seed, name in enumerate("qd")]
    save_router_of_encoders(tmp_path / "m", *encoders)
    encoder = describe_model(locate_model(tmp_path / "m")).encoder
    monkeypatch.setattr(type(encoder), "adapters", property(lambda _: ("one", "other")))
    with pytest.raises(UnsupportedModel, match="a route has several adapters"):
        describe_model(locate_model(tmp_path / "m"))


@pytest.mark.promise("no-foreign-code")
@pytest.mark.parametrize("route", ["query_0_Transformer", "document_0_Transformer"])
def test_a_check_of_either_side_opens_no_hostile_pickle_of_the_other(tmp_path: Path, route: str) -> None:
    """The library loads both routes, whichever is compared."""
    encoders = [save_task_model(tmp_path / name, "BertModel", seed=seed) for seed, name in enumerate("qd")]
    save_router_of_encoders(tmp_path / "m", *encoders)
    description = describe_model(locate_model(tmp_path / "m"))
    assert description.router is not None
    file = tmp_path / "m" / route / "pytorch_model.bin"
    argument = pytorch_files.string(str(tmp_path / "executed"))
    program = pytorch_files.name("os.mkdir") + b"(" + argument + b"tR"
    file.write_bytes(pytorch_files.write_file("zip", pytorch_files.dictionary({"weight": program})))
    side = description if route.startswith("document") else description.router.query
    side = replace(side, weights_files=(file,))
    router = description.router if side.router is not None else replace(description.router, query=side)
    changed = replace(side if side.router is not None else description, router=router)
    for purpose in OPTIONS:
        with pytest.raises(SetupError, match=str(file)):
            load_reference_implementation(changed, purpose)
    assert not (tmp_path / "executed").exists()

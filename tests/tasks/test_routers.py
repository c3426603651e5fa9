"""Queries and documents of asymmetric models go their own ways, which are those of sentence-transformers."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from click.testing import CliRunner

from support.families import quiet_library
from support.published import edit_json
from support.reference import load_reference
from support.scales import in_part
from support.task_models import save_dense_router, save_sparse_router, save_splade, save_task_model
from tasks.conftest import TEXTS
from vecmill import Mill, MillConfig, SyncMill
from vecmill.bulk.embed_model import EmbedModel
from vecmill.bulk.embedder import EmbedParameters
from vecmill.bulk.local import open_local
from vecmill.commands.check.model_comparison import compare_model
from vecmill.commands.main import main
from vecmill.commands.optimize.output_directory import copy_model
from vecmill.config import QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES
from vecmill.engines.fake import FakeEngine, Fault, FaultScript
from vecmill.engines.table import TableEngine
from vecmill.errors import (
    CorruptModel,
    InputTooLong,
    InvalidConfig,
    InvalidRequest,
    QueueFull,
    SetupError,
    UnsupportedModel,
)
from vecmill.models import ModelDescription, locate_model
from vecmill.requests import Embed, EmbedSparse, EmbedTokens, Purpose, Rerank, TextOptions, Truncation
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings, OutputDtype, OutputShape, SparseEmbedding
from vecmill.verification import reference

TOLERANCE = 1e-5
ROUTER = "router_config.json"
ENGINE_NAMES = [name for name in ("onnx", "openvino", "torch") if ENGINES[name].is_installed]
# The reference cannot read a text without tokens alone.
QUERIES = [text for text in TEXTS if text]
QUERY, DOCUMENT = (TextOptions(purpose=purpose) for purpose in (Purpose.QUERY, Purpose.DOCUMENT))
Open = Callable[..., SyncMill]
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(tmp_path_factory.mktemp("models") / "masked", "BertForMaskedLM")


@pytest.fixture(scope="module")
def sparse_model(masked: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("models") / "sparse"
    return folder, save_sparse_router(folder, masked)


@pytest.fixture(scope="module")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("models")
    return folder / "dense", save_dense_router(
        folder / "dense", save_task_model(folder / "bert", "BertModel")
    )


@pytest.fixture(scope="module")
def open_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    cache_dir = tmp_path_factory.mktemp("prepared")

    def open_mill(model: Path, engine: str = "onnx") -> SyncMill:
        return stack.enter_context(SyncMill(model, MillConfig(cache_dir=cache_dir, engine=engine)))

    with ExitStack() as stack:
        yield open_mill


def dense_rows(rows: tuple[SparseEmbedding, ...], dim: int) -> FloatArray:
    found = np.zeros((len(rows), dim), np.float32)
    for index, row in enumerate(rows):
        assert (np.diff(row.columns) > 0).all()
        assert (row.values != 0).all()
        found[index, row.columns] = row.values
    return found


def encode_sparse(encode: Callable[..., Any], texts: list[str], **options: Any) -> FloatArray:
    """Encode each text alone: the reference pads a batch, and [PAD] in a text then depends on its place."""
    rows = [encode([text], convert_to_sparse_tensor=False, **options)[0].numpy() for text in texts]
    return np.stack(rows)


@pytest.mark.parametrize("engine", in_part(ENGINE_NAMES, *ENGINE_NAMES[::2]))
def test_sparse_queries_and_documents_are_those_of_the_reference(
    sparse_model: tuple[Path, Any], open_engine: Open, engine: str
) -> None:
    folder, oracle = sparse_model
    mill = open_engine(folder, engine)
    for texts, options, encode in (
        (QUERIES, QUERY, oracle.encode_query),
        (TEXTS, DOCUMENT, oracle.encode_document),
        (TEXTS, TextOptions(), oracle.encode),
    ):
        expected = encode_sparse(encode, texts)
        found = mill.run(EmbedSparse(tuple(texts), options=options))
        np.testing.assert_allclose(dense_rows(found.embeddings, expected.shape[1]), expected, atol=TOLERANCE)
        assert 0 < (expected > 0).mean() < 0.99
        alone = mill.run(EmbedSparse((texts[3],), options=options)).embeddings
        np.testing.assert_allclose(dense_rows(alone, expected.shape[1])[0], expected[3], atol=TOLERANCE)


@pytest.mark.parametrize("engine", in_part(ENGINE_NAMES, *ENGINE_NAMES[:2]))
def test_dense_queries_and_documents_are_those_of_the_reference(
    dense_model: tuple[Path, Any], open_engine: Open, engine: str
) -> None:
    folder, oracle = dense_model
    mill = open_engine(folder, engine)
    for options, encode in (
        (QUERY, oracle.encode_query),
        (DOCUMENT, oracle.encode_document),
        (TextOptions(), oracle.encode),
    ):
        expected = encode(TEXTS)
        found = mill.run(Embed(tuple(TEXTS), options=options))
        np.testing.assert_allclose(found.embeddings, expected, atol=TOLERANCE)
        alone = mill.run(Embed((TEXTS[3],), options=options)).embeddings[0]
        np.testing.assert_allclose(alone, expected[3], atol=TOLERANCE)


def test_requests_of_both_routes_may_run_at_once(sparse_model: tuple[Path, Any], tmp_path: Path) -> None:
    folder, oracle = sparse_model
    expected = {
        purpose: encode_sparse(encode, QUERIES)
        for purpose, encode in (
            (Purpose.QUERY, oracle.encode_query),
            (Purpose.DOCUMENT, oracle.encode_document),
        )
    }

    async def embed(mill: Mill, index: int, purpose: Purpose) -> None:
        request = EmbedSparse((QUERIES[index],), options=TextOptions(purpose=purpose))
        (row,) = dense_rows((await mill.run(request)).embeddings, expected[purpose].shape[1])
        np.testing.assert_allclose(row, expected[purpose][index], atol=TOLERANCE)

    async def embed_all() -> None:
        async with Mill(folder, MillConfig(cache_dir=tmp_path)) as mill:
            await asyncio.gather(*(embed(mill, i, side) for i in range(len(QUERIES)) for side in expected))

    asyncio.run(embed_all())


def test_documents_are_ranked_for_queries_of_the_other_route(
    sparse_model: tuple[Path, Any], dense_model: tuple[Path, Any], open_engine: Open
) -> None:
    for folder, oracle in (sparse_model, dense_model):
        mill, queries = open_engine(folder), QUERIES[:1] + QUERIES[3:5]
        expected = oracle.similarity(oracle.encode_query(queries), oracle.encode_document(TEXTS)).numpy()
        scale = np.abs(expected).max()
        for query, scores in zip(queries, expected, strict=True):
            np.testing.assert_allclose(mill.rerank(query, TEXTS).scores, scores, atol=TOLERANCE * scale)
        documents = tuple(TEXTS[: len(queries)])
        found = mill.run(Rerank(tuple(queries), documents)).scores
        np.testing.assert_allclose(found, np.diag(expected), atol=TOLERANCE * scale)
        assert np.ptp(expected) > 0.1


def test_exchanged_routes_and_ignored_weights_are_found(
    sparse_model: tuple[Path, Any], masked: Path, tmp_path: Path, open_engine: Open
) -> None:
    folder, oracle = sparse_model
    mill = open_engine(folder)
    queries, documents = (encode_sparse(e, QUERIES) for e in (oracle.encode_query, oracle.encode_document))
    found = mill.run(EmbedSparse(tuple(QUERIES), options=QUERY)).embeddings
    rows = dense_rows(found, queries.shape[1])
    assert np.abs(rows - documents).max() > 100 * TOLERANCE
    assert np.abs((rows > 0) - queries).max() > 100 * TOLERANCE  # weights of 1
    save_sparse_router(tmp_path / "other", masked)
    change_weights(tmp_path / "other", lambda weights: np.ones_like(weights))
    other = open_engine(tmp_path / "other").run(EmbedSparse(tuple(QUERIES), options=QUERY)).embeddings
    assert np.abs(dense_rows(other, queries.shape[1]) - queries).max() > 100 * TOLERANCE


def change_weights(folder: Path, change: Callable[[Any], Any]) -> None:
    path = folder / "query_0_SparseStaticEmbedding" / "model.safetensors"
    safetensors.numpy.save_file({"weight": change(safetensors.numpy.load_file(path)["weight"])}, path)


def test_a_prompt_name_of_a_route_chooses_it(
    sparse_model: tuple[Path, Any], dense_model: tuple[Path, Any], open_engine: Open
) -> None:
    mill, texts = open_engine(sparse_model[0]), tuple(QUERIES)
    by_name = mill.run(EmbedSparse(texts, options=TextOptions("query"))).embeddings
    by_purpose = mill.run(EmbedSparse(texts, options=QUERY)).embeddings
    for one, other in zip(by_name, by_purpose, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    oracle = dense_model[1]
    found = open_engine(dense_model[0]).run(Embed(texts, options=TextOptions("query"))).embeddings
    np.testing.assert_allclose(found, oracle.encode_query(QUERIES), atol=TOLERANCE)


def test_the_default_route_is_that_of_the_reference(masked: Path, tmp_path: Path, open_engine: Open) -> None:
    both: dict[str, dict[str, Any]] = {"named": {"default_route": "query"}, "first": {"default_route": None}}
    for name, parameters in both.items():
        oracle = save_sparse_router(tmp_path / name, masked, **parameters)
        expected = encode_sparse(oracle.encode, QUERIES)
        np.testing.assert_array_equal(expected, encode_sparse(oracle.encode_query, QUERIES))
        found = open_engine(tmp_path / name).run(EmbedSparse(tuple(QUERIES))).embeddings
        np.testing.assert_allclose(dense_rows(found, expected.shape[1]), expected, atol=TOLERANCE)


def test_without_a_default_route_a_purpose_is_required(
    masked: Path, tmp_path: Path, open_engine: Open
) -> None:
    oracle = save_sparse_router(tmp_path / "m", masked, default_route=None, allow_empty_key=False)
    with pytest.raises(ValueError, match="Could not determine route"):
        oracle.encode(["a text"])
    mill = open_engine(tmp_path / "m")
    with pytest.raises(
        InvalidRequest, match=r"`input_type` is missing.* Send `query` or `document`"
    ) as error:
        mill.run(EmbedSparse(("a text",)))
    assert error.value.field == "input_type"
    assert len(mill.rerank("the one", ["the end", "of it"]).scores) == 2


def test_other_purposes_are_refused(sparse_model: tuple[Path, Any], open_engine: Open) -> None:
    folder, oracle = sparse_model
    with pytest.raises(ValueError, match="No route found"):
        oracle.encode(["a text"], task="clustering")
    with pytest.raises(InvalidRequest, match="`input_type` is clustering"):
        open_engine(folder).run(EmbedSparse(("x",), options=TextOptions(purpose=Purpose.CLUSTERING)))


@pytest.mark.parametrize("key", ["model_max_length", "max_len"])
def test_each_route_has_its_own_longest_input(
    key: str, sparse_model: tuple[Path, Any], masked: Path, tmp_path: Path, open_engine: Open
) -> None:
    save_sparse_router(tmp_path / "short", masked)
    settings = tmp_path / "short" / "query_0_SparseStaticEmbedding" / "tokenizer_config.json"
    written = json.loads(settings.read_text())
    written.pop("model_max_length", None)
    settings.write_text(json.dumps({**written, key: 5}))
    expected = encode_sparse(load_reference(tmp_path / "short", "SparseEncoder").encode_query, QUERIES)
    found = open_engine(tmp_path / "short").run(EmbedSparse(tuple(QUERIES), options=QUERY))
    np.testing.assert_allclose(dense_rows(found.embeddings, expected.shape[1]), expected, atol=TOLERANCE)
    assert found.truncated_count == len([text for text in QUERIES if len(text.split()) > 5])
    assert ((expected > 0).sum(axis=1) <= 5).all()


def test_a_query_without_tokens_has_no_weights(
    sparse_model: tuple[Path, Any], dense_model: tuple[Path, Any], open_engine: Open
) -> None:
    (row,) = open_engine(sparse_model[0]).run(EmbedSparse(("",), options=QUERY)).embeddings
    assert len(row.columns) == len(row.values) == 0
    plain = TextOptions(prompt="", purpose=Purpose.QUERY)
    assert not open_engine(dense_model[0]).run(Embed(("",), options=plain)).embeddings.any()


def test_dense_embeddings_can_be_raw_shorter_and_of_other_types(
    dense_model: tuple[Path, Any], open_engine: Open
) -> None:
    folder, oracle = dense_model
    mill, texts = open_engine(folder), tuple(QUERIES)
    unit = oracle.encode_query(QUERIES)
    raw = mill.run(Embed(texts, normalize=False, options=QUERY)).embeddings
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(raw / lengths, unit, atol=TOLERANCE)
    assert np.abs(lengths - 1).max() > 0.1
    shorter = mill.run(Embed(texts, 8, options=QUERY)).embeddings
    np.testing.assert_allclose(
        shorter, oracle.encode_query(QUERIES, truncate_dim=8, normalize_embeddings=True), atol=1e-5
    )
    one, other = (
        mill.run(Embed(texts[:1], dtypes=(OutputDtype.INT8,), options=each)).ranges
        for each in (QUERY, DOCUMENT)
    )
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one, other)


def test_queries_have_no_hidden_states(dense_model: tuple[Path, Any], open_engine: Open) -> None:
    mill = open_engine(dense_model[0])
    assert len(mill.run(EmbedTokens(("the one",), hidden_states=True)).embeddings) == 1
    with pytest.raises(InvalidRequest, match="no hidden states"):
        mill.run(EmbedTokens(("the one",), hidden_states=True, options=QUERY))


def test_a_text_that_is_too_long_for_its_route_is_refused_if_asked(
    sparse_model: tuple[Path, Any], open_engine: Open
) -> None:
    options = TextOptions(purpose=Purpose.QUERY, truncation=Truncation(is_allowed=False))
    with pytest.raises(InputTooLong):
        open_engine(sparse_model[0]).run(EmbedSparse(("the one " * 60,), options=options))


def test_embedded_files_know_the_side_of_their_texts(dense_model: tuple[Path, Any], tmp_path: Path) -> None:
    """A run that goes on with another table of queries would mix embeddings that cannot be compared."""

    async def identify(folder: Path, purpose: Purpose | None) -> object:
        choice = EmbedModel(str(folder), MillConfig(cache_dir=tmp_path / "prepared"))
        async with open_local(choice, EmbedParameters(purpose=purpose)) as embedder:
            return embedder.identity["fingerprint"]

    def change_table(folder: Path) -> None:
        path = folder / "query_0_StaticEmbedding" / "model.safetensors"
        (table,) = safetensors.numpy.load_file(path).items()
        safetensors.numpy.save_file({table[0]: table[1] * 2}, path)

    other = tmp_path / "m"
    shutil.copytree(dense_model[0], other)
    change_table(other)
    query, document, default = (
        asyncio.run(identify(dense_model[0], purpose)) for purpose in (Purpose.QUERY, Purpose.DOCUMENT, None)
    )
    assert query != document
    assert document == default
    assert asyncio.run(identify(other, Purpose.DOCUMENT)) == document
    assert asyncio.run(identify(other, Purpose.QUERY)) != query


def test_files_of_no_purpose_are_refused_without_a_default_route(masked: Path, tmp_path: Path) -> None:
    save_dense_router(
        tmp_path / "m",
        save_task_model(tmp_path / "bert", "BertModel"),
        default_route=None,
        allow_empty_key=False,
    )

    async def open_model() -> None:
        choice = EmbedModel(str(tmp_path / "m"), MillConfig(cache_dir=tmp_path / "prepared"))
        async with open_local(choice, EmbedParameters()):
            pass

    with pytest.raises(InvalidConfig, match="`purpose` is missing"):
        asyncio.run(open_model())


@pytest.mark.parametrize("name", ["sparse_model", "dense_model"])
def test_a_check_compares_documents_and_queries(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    folder, _ = request.getfixturevalue(name)
    with quiet_library():
        result = CliRunner().invoke(
            main, ["check", str(folder), "--count", "12", "--cache-dir", str(tmp_path)]
        )
    assert result.exit_code == 0, result.output
    headings = [line for line in result.output.splitlines() if "against" in line]
    assert [line.partition(", against")[0] for line in headings] == [
        f"{folder.name}, documents: engine onnx, fp32",
        f"{folder.name}, queries: engine table, fp32",
    ]
    assert all("sentence-transformers" in line for line in headings)


def test_a_check_finds_a_wrong_table(
    sparse_model: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = TableEngine.run

    def look_up_wrongly(engine: TableEngine, batch: Batch, *, width: int) -> Embeddings:
        found = look_up(engine, batch, width=width)
        return replace(found, values=found.values * np.float32(1.01))

    monkeypatch.setattr(TableEngine, "run", look_up_wrongly)
    of_documents, of_queries = compare_model(
        str(sparse_model[0]), MillConfig(cache_dir=tmp_path), texts=QUERIES[:4]
    ).reports
    assert of_documents.is_within(1e-4)
    assert not of_queries.is_within(1e-4)


def test_without_the_library_a_check_compares_documents_alone(
    sparse_model: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "find_spec", lambda name: None)
    (report,) = compare_model(str(sparse_model[0]), MillConfig(cache_dir=tmp_path), texts=QUERIES[:4]).reports
    assert report.model.endswith(", documents")
    assert report.reference.startswith("vecmill's own")


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "mappings": (
        {"parameters": {"route_mappings": {"(None, 'text')": "query"}}},
        "parameters.route_mappings",
    ),
    "parameter": ({"parameters": {"speed": 2}}, r"parameters\.'speed' is not supported"),
    "default": ({"parameters": {"default_route": "image"}}, "default_route 'image' is not a route"),
    "flag": ({"parameters": {"allow_empty_key": "no"}}, "allow_empty_key must be true or false"),
    "routes": ({"structure": {"text": [], "image": []}}, "structure has the routes 'text', 'image'"),
    "no_routes": ({"structure": {}}, "names no routes in structure"),
    "list": ({"structure": ["query"]}, "structure must be an object"),
    "strings": ({"structure": {"query": [3], "document": []}}, "structure.query|query.0. must be a string"),
    "empty": ({"structure": {"query": [], "document": []}}, "structure must name modules of types"),
    "types": ({"types": {}}, "structure must name modules of types"),
    "code": ({"types": {"query_0_SparseStaticEmbedding": "model.Custom"}}, "never run"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_other_routers_are_refused_by_key(masked: Path, tmp_path: Path, name: str) -> None:
    save_sparse_router(tmp_path / "m", masked)
    values, message = REFUSALS[name]
    path = tmp_path / "m" / ROUTER
    config = json.loads(path.read_text())
    if name == "code":
        values = {"types": {**config["types"], **values["types"]}}
    edit_json(path, **values)
    with pytest.raises((UnsupportedModel, CorruptModel), match=message) as error:
        describe_model(locate_model(tmp_path / "m"))
    assert ROUTER in str(error.value)


@pytest.mark.parametrize("kind", ["Router", "Asym"])
def test_a_router_without_its_file_is_refused(masked: Path, tmp_path: Path, kind: str) -> None:
    save_splade(tmp_path / "m", masked)
    modules = tmp_path / "m" / "modules.json"
    entries = json.loads(modules.read_text())
    entries[0]["type"] = f"sentence_transformers.models.{kind}"
    modules.write_text(json.dumps(entries))
    with pytest.raises(CorruptModel, match=r"router_config\.json is missing"):
        describe_model(locate_model(tmp_path / "m"))


def place_documents(place: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / ROUTER
        path.write_text(path.read_text().replace('"document_0_MLMTransformer"', f'"{place}"'))

    return change


def exchange_sides(folder: Path) -> None:
    structure = json.loads((folder / ROUTER).read_text())["structure"]
    edit_json(folder / ROUTER, structure={"query": structure["document"], "document": structure["query"]})


def weigh(change: Callable[[Any], Any]) -> Change:
    return lambda folder: change_weights(folder, change)


WRONG_FILES: dict[str, tuple[Change, str]] = {
    "above": (place_documents("../other"), "leads out of the model directory"),
    "elsewhere": (place_documents("/etc"), "leads out of the model directory"),
    "exchanged": (exchange_sides, r"structure.query has MLMTransformer, SpladePooling"),
    "few_weights": (weigh(lambda weights: weights[:-1]), "which cannot be compared"),
    "wide_weights": (weigh(lambda weights: weights[:, None]), "one weight for each token"),
    "no_numbers": (weigh(lambda weights: np.full_like(weights, np.nan)), "not finite"),
    "whole_numbers": (weigh(lambda weights: weights.astype(np.int32)), "holds I32"),
    "weights_elsewhere": (
        lambda folder: edit_json(folder / "query_0_SparseStaticEmbedding/config.json", path="/etc/idf.json"),
        r"config\.json: path names a file outside the model",
    ),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_wrong_files_are_refused(name: str, masked: Path, tmp_path: Path, open_engine: Open) -> None:
    change, message = WRONG_FILES[name]
    save_sparse_router(tmp_path / "m", masked)
    change(tmp_path / "m")
    with pytest.raises(SetupError, match=message):
        open_engine(tmp_path / "m")


def test_the_encoder_of_documents_may_be_in_the_folder_of_the_model(
    sparse_model: tuple[Path, Any], masked: Path, tmp_path: Path, open_engine: Open
) -> None:
    """Published models have it there, so that programs without routers can read it."""
    folder, oracle = tmp_path / "m", save_sparse_router(tmp_path / "m", masked)
    for file in (folder / "document_0_MLMTransformer").iterdir():
        file.rename(folder / file.name)
    text = (folder / ROUTER).read_text().replace('"document_0_MLMTransformer"', '""')
    (folder / ROUTER).write_text(text)
    expected = encode_sparse(oracle.encode_document, QUERIES)
    found = open_engine(folder).run(EmbedSparse(tuple(QUERIES), options=DOCUMENT)).embeddings
    np.testing.assert_allclose(dense_rows(found, expected.shape[1]), expected, atol=TOLERANCE)


def test_a_model_of_the_older_name_is_read(masked: Path, tmp_path: Path) -> None:
    save_sparse_router(tmp_path / "m", masked)
    (tmp_path / "m" / ROUTER).rename(tmp_path / "m" / "config.json")
    modules = tmp_path / "m" / "modules.json"
    (entry,) = json.loads(modules.read_text())
    modules.write_text(json.dumps([{**entry, "type": "sentence_transformers.models.Asym"}]))
    found = describe_model(locate_model(tmp_path / "m"))
    assert isinstance(found, ModelDescription)
    assert found.router is not None
    assert found.router.default is Purpose.DOCUMENT


def test_an_optimised_copy_has_the_table_of_queries(
    sparse_model: tuple[Path, Any], tmp_path: Path, open_engine: Open
) -> None:
    folder, oracle = sparse_model
    (tmp_path / "copy").mkdir()
    copy_model(describe_model(locate_model(folder)), tmp_path / "copy")
    expected = encode_sparse(oracle.encode_query, QUERIES)
    found = open_engine(tmp_path / "copy").run(EmbedSparse(tuple(QUERIES), options=QUERY)).embeddings
    np.testing.assert_allclose(dense_rows(found, expected.shape[1]), expected, atol=TOLERANCE)


def test_queries_are_answered_while_no_document_is(sparse_model: tuple[Path, Any]) -> None:
    """The engine hangs, and the queue is full."""
    folder, oracle = sparse_model
    description = describe_model(locate_model(folder))
    expected = encode_sparse(oracle.encode_query, ["the one"])[0]
    faults = FaultScript(calls=dict.fromkeys(range(64), Fault.HANG))
    engine = FakeEngine(dim=description.dim, output_shape=OutputShape.SPARSE, faults=faults)

    config = MillConfig(cores=1, queue=QueueConfig(max_queue_texts=1))

    async def ask() -> None:
        async with Mill(description, config, engine=engine) as mill:
            running = asyncio.create_task(mill.run(EmbedSparse(("the one",), options=DOCUMENT)))
            await asyncio.to_thread(engine.wait_for_calls, 1)
            waiting = asyncio.create_task(mill.run(EmbedSparse(("the end",), options=DOCUMENT)))
            await asyncio.sleep(0)
            with pytest.raises(QueueFull):
                await mill.run(EmbedSparse(("x",), options=DOCUMENT), wait_for_room=False)
            mill.refuse_if_full(None, 1)  # the body may ask for a query
            assert mill.least_delay_s(None, 1) == 0
            async with asyncio.timeout(20):
                (row,) = (await mill.run(EmbedSparse(("the one",), options=QUERY))).embeddings
                await mill.run(EmbedSparse(("the one " * 1_000,), options=QUERY))  # in a thread
            np.testing.assert_allclose(dense_rows((row,), len(expected))[0], expected, atol=TOLERANCE)
            assert not running.done()
            assert not waiting.done()
            engine.released.set()
            await asyncio.gather(running, waiting)

    asyncio.run(ask())

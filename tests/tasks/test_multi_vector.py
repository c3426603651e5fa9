"""Multi-vector models give MultiVectorEncoder's rows and MaxSim, queries and documents in their own ways."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.published import Published, edit_json, save_published
from support.reference import load_reference
from support.scales import in_turns
from support.task_models import save_colbert, save_task_model
from support.window_families import EAGER, FAMILIES, WINDOW
from tasks.conftest import TEXTS, Open
from vecmill import MillConfig, Purpose, SyncMill, TextOptions
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES
from vecmill.errors import UnsupportedModel, UnsupportedTask
from vecmill.models import corrections, locate_model
from vecmill.models.corrections import list_corrections
from vecmill.models.fingerprint import prepared_name
from vecmill.models.heads import MultiVector, QueryExpansion
from vecmill.requests import EmbedTokens

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(tmp_path_factory.mktemp("models") / "encoder", "BertModel")


@pytest.fixture(
    scope="module",
    params=[
        None,
        {"strategy": "fixed", "attend": False, "length": 16},
        {"strategy": "fixed", "attend": True, "length": 16},
        {"strategy": "min", "attend": False, "length": 16},
        {"strategy": "min", "attend": False, "length": 48},  # longer than a text may be
        {"strategy": "fixed", "attend": False, "length": 48},
    ],
    ids=str,
)
def colbert(
    request: pytest.FixtureRequest, encoder: Path, open_mill: Open, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, SyncMill]:
    folder = tmp_path_factory.mktemp("models") / "colbert"
    oracle = save_colbert(folder, encoder, request.param)
    return oracle, open_mill(folder)


def test_each_token_gets_the_reference_s_row(colbert: tuple[Any, SyncMill]) -> None:
    oracle, mill = colbert
    for side, encode in ((Purpose.QUERY, oracle.encode_query), (Purpose.DOCUMENT, oracle.encode_document)):
        found = mill.run(EmbedTokens(tuple(TEXTS), options=TextOptions(purpose=side))).embeddings
        for text, rows in zip(TEXTS, found, strict=True):
            expected = np.asarray(encode([text])[0])
            assert rows.shape == expected.shape
            np.testing.assert_allclose(rows, expected, atol=TOLERANCE)
    with pytest.raises(UnsupportedTask, match="an embedding for each token"):
        mill.classify(["a text"])


def test_documents_are_ranked_by_their_best_matches(colbert: tuple[Any, SyncMill]) -> None:
    oracle, mill = colbert
    query = "which of the names is it"
    expected = oracle.similarity(oracle.encode_query([query]), oracle.encode_document(TEXTS))[0].numpy()
    found = mill.rerank(query, TEXTS).scores
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.1


WINDOWED = ("modernbert", "mistral", "gemma3_both_ways")
# Several windows long; some texts are as long.
EXPANDED = {"strategy": "min", "attend": False, "length": 24}


def save_windowed(folder: Path, family: str, expansion: dict[str, Any] | None) -> Any:
    """A multi-vector model over an encoder with windows, which it returns."""
    class_name, settings = {**FAMILIES, **EAGER}[family]
    encoder = folder.with_name("encoder")
    save_published(encoder, Published(class_name, "BertTokenizer", settings=settings))
    return save_colbert(folder, encoder, expansion)


@pytest.mark.promise("reference-embeddings", "same-in-any-batch")
@pytest.mark.parametrize(("family", "engine"), in_turns(WINDOWED, ("onnx", "openvino", "torch")))
def test_expansions_beyond_the_window_get_the_reference_s_rows_in_any_company(
    family: str, engine: str, tmp_path: Path
) -> None:
    if not ENGINES[engine].is_installed:
        pytest.skip(f"{engine} is not installed")
    oracle = save_windowed(tmp_path / "colbert", family, EXPANDED)
    expected = [np.asarray(oracle.encode_query([text])[0]) for text in TEXTS]
    options = TextOptions(purpose=Purpose.QUERY)
    with SyncMill(tmp_path / "colbert", MillConfig(engine=engine, cache_dir=tmp_path)) as mill:
        together = mill.run(EmbedTokens(tuple(TEXTS), options=options)).embeddings
        for text, rows, its in zip(TEXTS, together, expected, strict=True):
            np.testing.assert_allclose(rows, its, atol=TOLERANCE)
            (alone,) = mill.run(EmbedTokens((text,), options=options)).embeddings
            np.testing.assert_allclose(rows, alone, atol=TOLERANCE / 10)


@pytest.mark.promise("reference-embeddings", "same-in-any-batch")
def test_the_score_of_a_document_does_not_depend_on_the_others(open_mill: Open, tmp_path: Path) -> None:
    oracle = save_windowed(tmp_path / "colbert", "modernbert", EXPANDED)
    mill = open_mill(tmp_path / "colbert")
    query, document = "which", "the names of it"
    expected = oracle.similarity(oracle.encode_query([query]), oracle.encode_document([document]))[0]
    for others in ([], ["x"], ["the one " * 60]):
        found = mill.rerank(query, [document, *others]).scores[0]
        assert abs(found - float(expected[0])) <= TOLERANCE


def test_what_was_kept_before_is_read_only_where_no_token_lacked_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_windowed(tmp_path / "colbert", "modernbert", EXPANDED)
    wrong = describe_model(locate_model(tmp_path / "colbert"))

    def expand(length: int, *, attend: bool = False) -> Any:
        return MultiVector(expansion=QueryExpansion(length, "[MASK]", attend=attend, fixed=True))

    # With one token that is attended to, and a window of `WINDOW` tokens on each side.
    right = [expand(WINDOW + 1), expand(24, attend=True), MultiVector(), None]
    names = {}
    for found in (corrections.CORRECTIONS, ()):
        monkeypatch.setattr(corrections, "CORRECTIONS", found)
        models = [
            wrong,
            *(replace(wrong, multi_vector=settings) for settings in (expand(WINDOW + 2), *right)),
        ]
        names[bool(found)] = [prepared_name(model) for model in models]
    assert [now == before for now, before in zip(names[True], names[False], strict=True)] == [
        False,
        False,
        *(True for _ in right),
    ]


def test_other_models_keep_what_they_have(encoder: Path, tmp_path: Path) -> None:
    save_colbert(tmp_path / "colbert", encoder, {"strategy": "fixed", "attend": False, "length": 32})
    assert list_corrections(describe_model(locate_model(tmp_path / "colbert"))) == ()
    assert list_corrections(describe_model(locate_model())) == ()


def as_stanford(folder: Path) -> None:
    """Give a folder of an encoder the files of Stanford ColBERT."""
    edit_json(folder / "config.json", architectures=["HF_ColBERT"])
    edit_json(folder / "artifact.metadata", query_maxlen=32, dim=16)


@pytest.mark.parametrize(
    ("class_name", "settings", "save"),
    [
        (*EAGER["gemma2"], lambda folder, encoder: save_colbert(folder, encoder, EXPANDED)),
        ("DebertaV2Model", {}, lambda folder, encoder: save_colbert(folder, encoder, EXPANDED)),
        ("DebertaV2Model", {}, lambda folder, encoder: as_stanford(encoder.rename(folder))),
    ],
    ids=["a mean instead of 0", "masks in every layer", "masks in every layer, Stanford's files"],
)
def test_expansions_that_the_graph_computes_otherwise_are_refused(
    class_name: str, settings: dict[str, Any], save: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    encoder = tmp_path / "encoder"
    save_published(encoder, Published(class_name, "BertTokenizer", settings=settings))
    save(tmp_path / "colbert", encoder)
    with pytest.raises(UnsupportedModel, match="query expansion without attend is not supported"):
        describe_model(locate_model(tmp_path / "colbert"))


def test_a_window_as_long_as_the_expansion_is_served(tmp_path: Path) -> None:
    save_windowed(tmp_path / "colbert", "gemma2", {**EXPANDED, "length": WINDOW})
    assert not describe_model(locate_model(tmp_path / "colbert")).has_keyless_tokens


def pad_in_tokenizer_json(folder: Path, side: str) -> None:
    padding = {"strategy": "BatchLongest", "direction": side, "pad_to_multiple_of": None}
    edit_json(
        folder / "tokenizer.json", padding={**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    )


Write = Callable[[Path], None]

GEMMA = ("Gemma3TextModel", "GemmaTokenizer")
BERT = ("BertModel", "BertTokenizer")
# Where the side of the padding is written; whether it is the left.
SIDES: dict[str, tuple[str, str, Write, bool]] = {
    "nowhere, Gemma's": (*GEMMA, lambda folder: None, True),
    "nowhere, BERT's": (*BERT, lambda folder: None, False),
    "settings": (
        *BERT,
        lambda folder: edit_json(folder / "tokenizer_config.json", padding_side="left"),
        True,
    ),
    "settings, Gemma's": (
        *GEMMA,
        lambda folder: edit_json(folder / "tokenizer_config.json", padding_side="right"),
        False,
    ),
    "tokenizer.json": (*BERT, lambda folder: pad_in_tokenizer_json(folder, "Left"), True),
    "tokenizer.json, Gemma's": (*GEMMA, lambda folder: pad_in_tokenizer_json(folder, "Right"), False),
    "arguments": (
        *BERT,
        lambda folder: edit_json(
            folder / "sentence_bert_config.json", processor_kwargs={"padding_side": "left"}
        ),
        True,
    ),
}


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("written", SIDES)
def test_an_expansion_stands_on_the_side_where_the_tokenizer_pads(
    written: str, open_mill: Open, tmp_path: Path
) -> None:
    class_name, tokenizer, write, is_left = SIDES[written]
    encoder = save_published(tmp_path / "encoder", Published(class_name, tokenizer))
    folder = tmp_path / "colbert"
    save_colbert(folder, encoder, {"strategy": "fixed", "attend": True, "length": 24})
    document = json.loads((folder / "tokenizer_config.json").read_text())
    document.pop("padding_side", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(document))
    write(folder)
    oracle, mill = load_reference(folder, "MultiVectorEncoder"), open_mill(folder)
    found = mill.run(EmbedTokens(tuple(TEXTS), options=TextOptions(purpose=Purpose.QUERY))).embeddings
    for text, rows in zip(TEXTS, found, strict=True):
        np.testing.assert_allclose(rows, np.asarray(oracle.encode_query([text])[0]), atol=TOLERANCE)
    description = describe_model(locate_model(folder))
    assert list_corrections(description) == (("expansion on the left",) if is_left else ())


def test_an_expansion_on_the_left_without_attend_is_refused(tmp_path: Path) -> None:
    encoder = save_published(tmp_path / "encoder", Published("Gemma3TextModel", "GemmaTokenizer"))
    for strategy, is_refused in (("fixed", True), ("min", False)):
        save_colbert(tmp_path / strategy, encoder, {"strategy": strategy, "attend": False, "length": 24})
        with pytest.raises(UnsupportedModel, match="pads on the left") if is_refused else nullcontext():
            describe_model(locate_model(tmp_path / strategy))

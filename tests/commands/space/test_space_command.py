"""`vecmill space verify` as a person runs it: every kind of file, every verdict, and what is refused."""

import dataclasses
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from support.corpora import numbered_rows, numbered_texts, read_rows, write_corpus
from support.http_server import QUIET, HttpServer, serve_in_thread
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands import main as cli
from vecmill.commands.space.stored_vectors import MOST_GROUPS

COUNT = 60
PROMPTS = {"query": "ask: ", "document": "read: "}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [*map(str, arguments)], prog_name="vecmill", catch_exceptions=False)


def embed(corpus: Path, output: Path, *options: object) -> Path:
    done = run("embed", corpus, "-o", output, "--engine", "fake", *options)
    assert done.exit_code == 0, done.output
    return output


def verify(file: Path, *options: object, engine: str | None = "fake") -> tuple[int, dict[str, Any]]:
    """The exit status and the report."""
    chosen = () if engine is None else ("--engine", engine)
    done = run("space", "verify", file, *chosen, *options, "--json")
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout)


def refusal(*arguments: object) -> str:
    """The sentence with which a command line ends."""
    done = run("space", "verify", *arguments)
    assert done.exit_code == 2, done.output
    return done.stderr


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A Parquet file after a change of its table."""
    parquet.write_table(change(parquet.read_table(file)), file)
    return file


def with_vectors(table: pa.Table, vectors: np.ndarray[Any, Any]) -> pa.Table:
    """A table with other vectors."""
    flat = pa.array(vectors.astype(np.float32).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return table.set_column(table.schema.get_field_index("embedding"), "embedding", column)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", numbered_rows(COUNT))


@pytest.fixture(scope="module")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("models") / "prompted", TinyBert(prompts=PROMPTS))


@pytest.fixture(scope="module")
def embedded(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embed(corpus, tmp_path_factory.mktemp("embedded") / "vectors.parquet", "--copy-column", "text")


@pytest.fixture
def stored(embedded: Path, tmp_path: Path) -> Path:
    """A copy of the embedded corpus, to change."""
    return Path(shutil.copy(embedded, tmp_path))


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with serve_in_thread(dataclasses.replace(QUIET, api_key=("secret",))) as running:
        yield running


@pytest.mark.promise("stored-vectors-verified")
@pytest.mark.parametrize(
    ("suffix", "has_texts"), [(".parquet", True), (".jsonl", True), (".npy", False), (".parquet", False)]
)
def test_vectors_of_the_model_are_the_same(
    suffix: str, has_texts: bool, corpus: Path, tmp_path: Path
) -> None:
    options = ("--copy-column", "text") if has_texts else ()
    file = embed(corpus, tmp_path / f"vectors{suffix}", *options)
    status, report = verify(file, *(() if has_texts else ("--texts", corpus)))
    assert (status, report["verdict"]) == (0, "same values")
    assert (report["rows"], report["sampled"], report["numbers"]) == (COUNT, COUNT, 384)
    assert report["cosine_worst"] == pytest.approx(1)
    assert report["model"]["space"].startswith("s1-")
    named = report["model"]["space"] if suffix == ".parquet" else None
    assert report["file"]["space"] == named


@pytest.mark.promise("stored-vectors-verified")
@pytest.mark.parametrize(
    ("dtype", "suffix"),
    [
        ("float32", ".npy"),
        ("int8", ".parquet"),
        ("uint8", ".jsonl"),
        ("binary", ".jsonl"),
        ("ubinary", ".parquet"),
    ],
)
def test_fewer_dimensions_and_bits_are_compared_as_they_are(
    dtype: str, suffix: str, corpus: Path, tmp_path: Path
) -> None:
    file = embed(corpus, tmp_path / f"cut{suffix}", "--dtype", dtype, "--dimensions", 128)
    status, report = verify(file, "--texts", corpus)
    assert (status, report["verdict"]) == (0, "same values")
    assert report["dtype"] == dtype.removesuffix("32")
    assert report["numbers"] == (16 if "binary" in dtype else 128)


def test_another_precision_is_within_the_error(stored: Path) -> None:
    noise = np.random.default_rng(7).standard_normal((COUNT, 384)) * 0.002
    rewrite(stored, lambda table: with_vectors(table, read_rows(stored) + noise))
    status, report = verify(stored)
    assert (status, report["verdict"]) == (0, "same space")
    assert 0.99 < report["cosine_worst"] < 0.9999


def test_vectors_of_another_length_are_named(stored: Path) -> None:
    rewrite(stored, lambda table: with_vectors(table, 7 * read_rows(stored)))
    assert verify(stored)[1]["verdict"] == "same space"
    shown = run("space", "verify", stored, "--engine", "fake")
    assert shown.exit_code == 0
    assert "length, median    7 in the file, 1 here: normalised in another way" in shown.stdout


@pytest.mark.promise("stored-vectors-verified")
def test_vectors_of_another_model_are_of_another_space(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(40))
    one, other = (save_tiny_bert(tmp_path / f"{seed}", TinyBert(seed=seed)) for seed in (1, 2))
    cache = ("--cache-dir", tmp_path / "cache")
    file = tmp_path / "vectors.parquet"
    assert run("embed", corpus, "-o", file, "--copy-column", "text", "--model", one, *cache).exit_code == 0
    status, report = verify(file, "--model", other, *cache, engine=None)
    assert (status, report["verdict"]) == (1, "other space")
    assert report["cosine_median"] < 0.9
    assert report["file"]["space"] != report["model"]["space"]
    status, report = verify(file, "--model", one, *cache, engine=None)
    assert (status, report["verdict"]) == (0, "same values")
    assert report["file"]["exact"] == report["model"]["exact"]


def test_more_numbers_than_the_model_has_are_of_another_space(stored: Path, prompted: Path) -> None:
    done = run("space", "verify", stored, "--model", prompted, "--engine", "fake")
    assert done.exit_code == 1
    assert "OTHER SPACE: the vectors have 384 numbers" in done.stdout
    assert verify(stored, "--model", prompted)[1]["verdict"] == "other space"


@pytest.mark.promise("stored-vectors-verified")
def test_texts_that_have_changed_are_named_by_their_rows(stored: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        texts = table["text"].to_pylist()
        texts[4], texts[50] = "another text", "and another"
        return table.set_column(table.schema.get_field_index("text"), "text", pa.array(texts))

    rewrite(stored, change)
    status, report = verify(stored, "--sample", COUNT)
    assert (status, report["verdict"], report["unlike_rows"]) == (1, "other texts", [5, 51])
    shown = run("space", "verify", stored, "--sample", COUNT, "--engine", "fake").stdout
    assert f"OTHER TEXTS: 2 of {COUNT} vectors are not those of their texts, in the rows 5, 51." in shown


def test_texts_in_another_order_are_suspected(corpus: Path, tmp_path: Path) -> None:
    file = embed(corpus, tmp_path / "vectors.npy")
    moved = write_corpus(tmp_path / "moved.jsonl", list(reversed(numbered_rows(COUNT))))
    shown = run("space", "verify", file, "--texts", moved, "--engine", "fake")
    assert shown.exit_code == 1
    assert "belong to other texts, for example in another order" in shown.stdout


@pytest.mark.promise("stored-vectors-verified")
def test_the_prompt_that_fits_is_found(corpus: Path, prompted: Path, tmp_path: Path) -> None:
    options = ("--model", prompted, "--prompt-name", "query", "--copy-column", "text")
    model = ("--model", prompted)
    lines = embed(corpus, tmp_path / "vectors.jsonl", *options)
    status, report = verify(lines, *model)
    assert (status, report["verdict"], report["prompt"]) == (0, "same values", "query")
    status, report = verify(lines, *model, "--prompt-name", "query")
    assert (status, report["verdict"]) == (0, "same values")
    for claim in (("--prompt-name", "document"), ("--purpose", "document")):
        status, report = verify(lines, *model, *claim)
        assert (status, report["verdict"], report["prompt"]) == (1, "other prompt", "query")
    shown = run("space", "verify", lines, *model, "--engine", "fake", "--prompt-name", "document").stdout
    assert "made with the prompt query, not with document" in shown


def test_the_prompt_that_a_file_names_must_fit(corpus: Path, prompted: Path, tmp_path: Path) -> None:
    options = ("--model", prompted, "--copy-column", "text")
    file = embed(corpus, tmp_path / "vectors.parquet", *options, "--prompt-name", "query")
    status, report = verify(file, "--model", prompted)
    assert (status, report["prompt"], report["file"]["prompt_name"]) == (0, "query", "query")
    bare = embed(corpus, tmp_path / "bare.parquet", *options)
    assert verify(bare, "--model", prompted)[0] == 0

    def lie(table: pa.Table) -> pa.Table:
        about = json.loads(table.schema.metadata[b"vecmill"]) | {"prompt_name": "document"}
        return table.replace_schema_metadata({"vecmill": json.dumps(about)})

    status, report = verify(rewrite(bare, lie), "--model", prompted)
    assert (status, report["verdict"], report["prompt"]) == (1, "other prompt", "default")


@pytest.mark.promise("stored-vectors-verified")
def test_a_file_that_names_another_space_is_not_of_this_one(stored: Path) -> None:
    def name(space: str) -> None:
        def change(table: pa.Table) -> pa.Table:
            about = json.loads(table.schema.metadata[b"vecmill"]) | {"space": space}
            return table.replace_schema_metadata({"vecmill": json.dumps(about)})

        rewrite(stored, change)

    name(f"s1-{'0' * 32}")
    status, report = verify(stored)
    assert (status, report["verdict"]) == (1, "other name")
    assert "the file names another space" in run("space", "verify", stored, "--engine", "fake").stdout
    name(f"s2-{'0' * 32}")  # of a later scheme, which says nothing about the vectors
    assert verify(stored)[0] == 0


@pytest.mark.parametrize("metadata", [b"{", b"[]", b'{"space": 7, "name": 7, "dtype": {}}', b"[" * 5000])
def test_metadata_of_others_are_ignored(stored: Path, metadata: bytes) -> None:
    rewrite(stored, lambda table: table.replace_schema_metadata({"vecmill": metadata}))
    assert verify(stored)[0] == 0


def test_files_of_other_programs_are_read_by_the_names_of_their_columns(stored: Path, tmp_path: Path) -> None:
    rows = read_rows(stored)
    texts = numbered_texts(COUNT)
    table = pa.table({"key": pa.array(map(str, range(COUNT))), "body": texts, "vector": rows.tolist()})
    file = tmp_path / "others.parquet"
    parquet.write_table(table, file)
    assert "--text-column" in refusal(file)
    assert verify(file, "--text-column", "body")[0] == 0
    assert verify(file, "--text-column", "body", "--vector-column", "vector")[0] == 0
    halves = pa.table({"text": texts, "v": [row.astype(np.float16) for row in rows]})
    parquet.write_table(halves, file)
    assert verify(file)[1]["verdict"] == "same space"


@pytest.mark.promise("stored-vectors-verified")
def test_of_a_huge_parquet_file_some_row_groups_are_read(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = parquet.read_table(stored)
    parquet.write_table(table, stored, row_group_size=2)
    assert parquet.ParquetFile(stored).num_row_groups == COUNT // 2
    read: list[Sequence[int]] = []
    iterate = parquet.ParquetFile.iter_batches

    def spy(file: Any, *, row_groups: Sequence[int], **rest: Any) -> Any:
        read.append(row_groups)
        return iterate(file, row_groups=row_groups, **rest)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", spy)
    status, report = verify(stored, "--sample", 20)
    assert (status, report["sampled"]) == (0, 20)
    assert 1 < len(read) <= MOST_GROUPS
    first, read = list(read), []
    verify(stored, "--sample", 20)
    assert read == first
    read = []
    verify(stored, "--sample", 20, "--seed", 1)
    assert read != first


def test_a_server_embeds_the_sample(
    stored: Path, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ("--server", f"http://127.0.0.1:{server.port}")
    assert "401" in refusal(stored, *address)
    monkeypatch.setenv("VECMILL_API_KEY", "secret")
    status, report = verify(stored, *address, engine=None)
    assert (status, report["verdict"]) == (0, "same values")
    assert report["file"]["space"] == report["model"]["space"]
    rewrite(stored, lambda table: with_vectors(table, -read_rows(stored)))
    assert verify(stored, *address, engine=None)[1]["verdict"] == "other space"
    assert "Remove them" in refusal(stored, *address, "--engine", "onnx")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "a"}, "row 1 has no vector"),
        ({"text": "a", "embedding": []}, "row 1 has no vector"),
        ({"text": "a", "embedding": "abc"}, "row 1 has no vector"),
        ({"text": "a", "embedding": [1.5, "b"]}, "something else than numbers"),
        ({"text": "a", "embedding": [1.5, True]}, "something else than numbers"),
        ({"text": "a", "embedding": [float("nan")]}, "not finite"),
        ({"text": "a", "embedding": [10**400]}, "not finite"),
        ({"text": None, "embedding": [1.5]}, "row 1 has no text"),
        ({"text": 7, "embedding": [1.5]}, "row 1 has a number where its text should be"),
    ],
)
def test_rows_that_cannot_be_compared_are_named(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "vectors.jsonl", [row])
    columns = ("--vector-column", "embedding", "--text-column", "text")
    assert words in refusal(file, *columns, "--engine", "fake")


@pytest.mark.parametrize("mode", ["pooled", "chunks"])
def test_vectors_of_chunks_are_not_verified(mode: str, corpus: Path, tmp_path: Path) -> None:
    file = embed(corpus, tmp_path / "chunks.parquet", "--chunking", mode)
    assert "--chunking" in refusal(file, "--engine", "fake")


def write_numpy(path: Path, header: str, data: bytes = bytes(4096)) -> Path:
    """A numpy file of version 1 with any header."""
    padded = header.encode("latin1").ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + data)
    return path


SHAPES = (
    *("(-1, 384)", "(-7, 384)", "(60, -384)", "(-60, -384)", "(0, 384)", "(60, 0)", "()", "(60,)", "60"),
    *("(True, 384)", "(60.0, 384)", "('60', 384)", "(99999999999999999999, 384)", "(2, 9223372036854775807)"),
    *("(4611686018427387904, 4)", "(2, 3, 4)", "None", "[", "(60, 384", "\x00"),
)


@pytest.mark.promise("stored-vectors-verified")
@pytest.mark.parametrize("kind", ["'<f4'", "'<f8'", "'|i1'", "'O'", "'<c8'", "'<U4'", "[('a', '<f4')]", "7"])
def test_a_numpy_file_with_an_absurd_header_is_refused_with_a_sentence(
    kind: str, corpus: Path, tmp_path: Path
) -> None:
    for shape in SHAPES:
        header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"
        told = refusal(write_numpy(tmp_path / "vectors.npy", header), "--texts", corpus, "--engine", "fake")
        assert told.startswith("Error: ")
        assert len(told.splitlines()) == 1, told


@pytest.mark.parametrize(
    "seed", [*range(15), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(15, 100))]
)
def test_a_damaged_file_is_refused_with_a_sentence(
    seed: int, stored: Path, corpus: Path, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    name, where = draw.choice([("vectors.npy", 128), ("vectors.parquet", None)])
    file = tmp_path / name
    if where is None:
        content = bytearray(stored.read_bytes())
    else:
        np.save(file, np.zeros((COUNT, 384), np.float32))
        content = bytearray(file.read_bytes())
    for _ in range(draw.randint(1, 8)):
        content[draw.randrange(where or len(content))] = draw.randrange(256)
    file.write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
    done = run("space", "verify", file, "--texts", corpus, "--engine", "fake")  # raises if it is a traceback
    assert done.exit_code in (0, 1, 2)


def test_what_cannot_be_found_out_is_said(stored: Path, corpus: Path, tmp_path: Path) -> None:
    rows = read_rows(stored)
    assert "There is no file" in refusal(tmp_path / "nothing.parquet")
    assert ".parquet" in refusal(write_corpus(tmp_path / "a.csv", [{"text": "a"}]))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    assert "cannot be read as a Parquet file" in refusal(tmp_path / "broken.parquet")
    (tmp_path / "broken.npy").write_bytes(b"not numpy")
    assert "numpy" in refusal(tmp_path / "broken.npy", "--texts", corpus)
    np.save(tmp_path / "flat.npy", rows[0])
    assert "does not hold an array of vectors" in refusal(tmp_path / "flat.npy", "--texts", corpus)
    np.save(tmp_path / "few.npy", rows[:7])
    assert "--texts" in refusal(tmp_path / "few.npy")
    assert f"{COUNT} rows with texts" in refusal(tmp_path / "few.npy", "--texts", corpus)
    mixed = write_corpus(
        tmp_path / "mixed.jsonl",
        [{"text": "a", "embedding": [1.5]}, {"text": "b", "embedding": [1.5, 2.5]}],
    )
    assert "of 1 and of 2 numbers" in refusal(mixed)
    (tmp_path / "empty.jsonl").write_text("\n")
    assert "no rows" in refusal(tmp_path / "empty.jsonl", "--text-column", "a", "--vector-column", "b")
    (tmp_path / "words.jsonl").write_text("words\n")
    columns = ("--text-column", "a", "--vector-column", "b")
    assert "line 1 is not JSON" in refusal(tmp_path / "words.jsonl", *columns)
    assert "'missing'" in refusal(stored, "--vector-column", "missing")
    assert "not both" in refusal(stored, "--prompt-name", "a", "--purpose", "query")
    assert "no prompt named" in refusal(stored, "--prompt-name", "nobody", "--engine", "fake")
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "only"}}
    reranker = save_tiny_bert(tmp_path / "reranker", TinyBert(config=config))
    (reranker / "modules.json").unlink()
    shutil.rmtree(reranker / "1_Pooling")
    assert "no vectors" in refusal(stored, "--model", reranker)


def test_the_model_of_a_configuration_goes_before_that_of_the_file(
    stored: Path, prompted: Path, tmp_path: Path
) -> None:
    config = tmp_path / "vecmill.toml"
    config.write_text(f'[[models]]\nmodel = "{prompted}"\nengine = "fake"\n')
    status, report = verify(stored, "--config", config, engine=None)
    assert (status, report["model"]["about"]) == (1, "prompted, fake exact")


def test_a_model_that_a_file_names_is_not_downloaded(stored: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        about = json.loads(table.schema.metadata[b"vecmill"]) | {"name": "somebody/else"}
        return table.replace_schema_metadata({"vecmill": json.dumps(about)})

    assert "vecmill pull somebody/else" in refusal(rewrite(stored, change))
    assert verify(stored, "--model", "all-MiniLM-L6-v2")[0] == 0

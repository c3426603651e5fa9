"""`vecmill embed` as a person runs it: every format, in process and by a server, and how it fails."""

import asyncio
import dataclasses
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from support.corpora import fake_rows, numbered_rows, numbered_texts, read_column, read_rows, write_corpus
from support.failing_library import POISON, library_panics
from support.http_server import QUIET, build_service, run_in_thread, serve_in_thread
from vecmill import Mill, MillConfig, SyncMill
from vecmill.bulk import pipeline
from vecmill.commands import main as cli
from vecmill.commands.embed import run as command
from vecmill.commands.embed.parts import PartStore, folder_of
from vecmill.config import InputConfig
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.requests import Embed
from vecmill.values.embeddings import OutputDtype
from vecmill.vectors import quantize

FEWER_BITS = [kind for kind in OutputDtype if kind is not OutputDtype.FLOAT]
INPUTS = [".jsonl", ".csv", ".parquet"]
OUTPUTS = [".parquet", ".npy", ".jsonl"]
SHORT_PART = 32
COUNT = 2 * SHORT_PART + 5


def run(*arguments: object) -> Result:
    line = ["embed", *map(str, arguments)]
    return CliRunner().invoke(cli.main, line, prog_name="vecmill", catch_exceptions=False)


def run_fake(*arguments: object) -> Result:
    return run(*arguments, "--engine", "fake")


@pytest.mark.parametrize("suffix", INPUTS)
def test_every_input_is_embedded_in_its_order(suffix: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / f"corpus{suffix}", numbered_rows(COUNT))
    output = tmp_path / "vectors.parquet"
    done = run_fake(corpus, "-o", output)
    assert done.exit_code == 0, done.output
    assert f"{COUNT} embeddings of 384 dimensions" in done.output
    kind = str if suffix == ".csv" else int
    assert read_column(output, "id") == [kind(number) for number in range(COUNT)]
    assert np.array_equal(read_rows(output), fake_rows(numbered_texts(COUNT)))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([corpus.name, output.name])


@pytest.mark.promise("failure-contained")
def test_a_row_on_which_the_tokenizer_panics_is_named_and_can_be_left_out(tmp_path: Path) -> None:
    rows = numbered_rows(40)
    rows[13] = {**rows[13], "text": f"a text with {POISON}"}
    corpus, output = write_corpus(tmp_path / "corpus.jsonl", rows), tmp_path / "vectors.npy"
    with library_panics():
        failed = run_fake(corpus, "-o", output)
        assert failed.exit_code == 2
        assert "The text of line 14 cannot be embedded: The tokenizer failed for this text." in failed.output
        assert "Traceback" not in failed.output
        assert run_fake(corpus, "-o", output, "--skip-invalid").exit_code == 0
    texts = numbered_texts(40)
    assert np.array_equal(read_rows(output), fake_rows([*texts[:13], *texts[14:]]))


@pytest.mark.parametrize("suffix", OUTPUTS)
def test_every_output_holds_the_same_rows(suffix: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(40))
    output = tmp_path / f"vectors{suffix}"
    assert run_fake(corpus, "-o", output).exit_code == 0
    assert np.array_equal(read_rows(output), fake_rows(numbered_texts(40)))


@pytest.mark.promise("space-identifies")
async def test_parquet_names_the_space_and_the_prompt_in_process_and_by_a_server(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(3))
    async with Mill(config=MillConfig(engine="fake")) as mill:
        space = mill.find_space(Embed(("a",), dimensions=64))
        assert space is not None
    expected = {"space": space.space, "exact": space.exact, "prompt_name": None}
    with serve_in_thread() as server:
        for where in (["--engine", "fake"], ["--server", server.client.base_url]):
            output = tmp_path / f"{where[0]}.parquet"
            done = await asyncio.to_thread(run, corpus, "-o", output, "--dimensions", 64, *where)
            assert done.exit_code == 0, done.output
            about = json.loads(parquet.read_schema(output).metadata[b"vecmill"])
            assert {name: about[name] for name in expected} == expected


async def test_rows_of_fewer_bits_are_those_of_a_mill_in_process_and_by_a_server(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(COUNT))
    request = Embed(tuple(numbered_texts(COUNT)), dimensions=64)
    async with Mill(config=MillConfig(engine="fake")) as mill:
        with serve_in_thread() as server:
            places = {
                ".parquet": ("--engine", "fake"),
                ".npy": ("--server", f"http://127.0.0.1:{server.port}"),
            }
            for kind, (suffix, place) in product(FEWER_BITS, places.items()):
                with subtests.test(msg=f"{kind} {place[0]}"):
                    result = await mill.run(dataclasses.replace(request, dtypes=(kind,)))
                    expected = quantize(result.embeddings, kind, result.ranges)
                    output = tmp_path / f"{kind}{suffix}"
                    line = (corpus, "--dtype", kind, "--dimensions", 64, "-o", output, *place)
                    done = await asyncio.to_thread(run, *line)
                    assert done.exit_code == 0, done.output
                    assert read_rows(output).dtype == expected.dtype
                    assert np.array_equal(read_rows(output), expected)


def test_the_embedded_model_gives_the_rows_of_a_mill_in_process_and_by_a_server(
    tmp_path: Path, kept_models: Path
) -> None:
    texts = ["", "Cats sleep anywhere.", "long " * 1_000, "漢🦊", *numbered_texts(SHORT_PART)]
    corpus = write_corpus(tmp_path / "corpus.csv", [{"text": text} for text in texts])
    config = MillConfig(cache_dir=kept_models)
    service = build_service(QUIET, [(describe_model(locate_model()), None)], config=config)
    with run_in_thread(service) as (port, _), SyncMill(config=config) as mill:
        expected = mill.embed(texts, dimensions=100)
        for place in (("--cache-dir", kept_models), ("--server", f"http://127.0.0.1:{port}")):
            output = tmp_path / f"{place[0]}.npy"
            done = run(corpus, "-o", output, "--dimensions", 100, *place)
            assert done.exit_code == 0, done.output
            np.testing.assert_allclose(read_rows(output), expected, atol=1e-5)


def test_a_server_may_ask_for_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(50))
    output = tmp_path / "vectors.npy"
    with serve_in_thread(dataclasses.replace(QUIET, api_key=("secret",))) as server:
        line = (corpus, "-o", output, "--server", f"http://127.0.0.1:{server.port}/v1")
        refused = run(*line)
        assert refused.exit_code == 2
        assert "401" in refused.output
        monkeypatch.setenv("VECMILL_API_KEY", "secret")
        assert run(*line).exit_code == 0
    assert np.array_equal(read_rows(output), fake_rows(numbered_texts(50)))


def test_columns_are_copied_and_rows_without_a_text_left_out(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"key": "a", "body": "one", "year": 2001},
        {"key": "b", "body": None, "year": 2002},
        {"key": "c", "body": "three", "year": None},
    ]
    corpus = write_corpus(tmp_path / "corpus.jsonl", rows)
    output = tmp_path / "vectors.parquet"
    columns = ("--text-column", "body", "--id-column", "key", "--copy-column", "year")
    refused = run_fake(corpus, "-o", output, *columns)
    assert refused.exit_code == 2
    assert "line 2 has no text" in refused.output
    done = run_fake(corpus, "-o", output, *columns, "--skip-invalid")
    assert ", 1 left out" in done.output
    assert read_column(output, "key") == ["a", "c"]
    assert read_column(output, "year") == [2001, None]
    assert np.array_equal(read_rows(output), fake_rows(["one", "three"]))


def test_a_text_that_cannot_be_embedded_is_named(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", [{"text": "a"}, {"text": "b \ud800"}])
    done = run_fake(corpus, "-o", tmp_path / "vectors.npy")
    assert done.exit_code == 2
    assert "line 2" in done.output


# Of the outputs with columns one.
@pytest.mark.parametrize("suffix", [".parquet", ".npy", pytest.param(".jsonl", marks=pytest.mark.full)])
def test_a_text_that_the_server_refuses_may_be_left_out_after_it_was_found(
    suffix: str, tmp_path: Path
) -> None:
    rows = [{"id": number, "text": "long " * 20 * (number == 40)} for number in range(60)]
    corpus = write_corpus(tmp_path / "corpus.jsonl", rows)
    output = tmp_path / f"vectors{suffix}"
    config = MillConfig(inputs=InputConfig(max_text_characters=50))
    with serve_in_thread(config=config) as server:
        line = (corpus, "-o", output, "--server", f"http://127.0.0.1:{server.port}")
        refused = run(*line)
        assert refused.exit_code == 2
        assert "line 41 cannot be embedded" in refused.output
        assert "--skip-invalid" in refused.output
        done = run(*line, "--skip-invalid")
    assert "59 embeddings of 384 dimensions, 1 left out" in done.output
    assert np.array_equal(read_rows(output), fake_rows([""] * 59))
    if suffix != ".npy":
        assert read_column(output, "id") == [number for number in range(60) if number != 40]


class Stopped(Exception):
    """Stands for whatever stops a process between two parts."""


@pytest.fixture
def stopped_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An input, and the output of a run that was stopped after its second part."""
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(4 * SHORT_PART))
    output = tmp_path / "vectors.npy"
    run_stopped(monkeypatch, corpus, "-o", output)
    assert not output.exists()
    return corpus, output


def run_stopped(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    write = PartStore.write

    def stop(parts: PartStore, number: int, *details: Any) -> None:
        if number == 2:
            raise Stopped
        write(parts, number, *details)

    with monkeypatch.context() as patch:
        patch.setattr(PartStore, "write", stop)
        with pytest.raises(Stopped):
            run_fake(*arguments)


def test_the_same_command_goes_on(stopped_run: tuple[Path, Path]) -> None:
    corpus, output = stopped_run
    there = len(list(folder_of(output).glob("part-*.npz")))
    assert there >= 1
    done = run_fake(corpus, "-o", output)
    assert f"{there * SHORT_PART:,} in an earlier run" in done.output
    assert np.array_equal(read_rows(output), fake_rows(numbered_texts(4 * SHORT_PART)))
    assert not folder_of(output).exists()


def test_a_truncated_part_is_computed_again(stopped_run: tuple[Path, Path]) -> None:
    corpus, output = stopped_run
    part = next(folder_of(output).glob("part-*.npz"))
    part.write_bytes(part.read_bytes()[:1000])
    assert run_fake(corpus, "-o", output).exit_code == 0
    assert np.array_equal(read_rows(output), fake_rows(numbered_texts(4 * SHORT_PART)))


def test_another_input_or_option_does_not_go_on(
    stopped_run: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, output = stopped_run
    refused = run_fake(corpus, "-o", output, "--dimensions", 10)
    assert (refused.exit_code, "another number of dimensions" in refused.output) == (2, True)
    refused = run_fake(corpus, "-o", output, "--dtype", "int8")
    assert (refused.exit_code, "another dtype" in refused.output) == (2, True)
    refused = run_fake(corpus, "-o", output, "--purpose", "query")
    assert (refused.exit_code, "another prompt" in refused.output) == (2, True)
    refused = run(corpus, "-o", output)
    assert (refused.exit_code, "another engine and another precision" in refused.output) == (2, True)
    with monkeypatch.context() as patch:
        patch.setattr(command, "version", lambda name: "99.0")
        refused = run_fake(corpus, "-o", output)
    assert (refused.exit_code, "another version of vecmill" in refused.output) == (2, True)
    corpus.write_text(corpus.read_text("utf-8").replace("text 5 ", "text five "), "utf-8")
    refused = run_fake(corpus, "-o", output)
    assert (refused.exit_code, "another input" in refused.output) == (2, True)


def test_columns_may_be_chosen_anew_unless_rows_are_left_out_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, Any]] = [{**row, "title": "t"} for row in numbered_rows(4 * SHORT_PART)]
    rows[5]["title"] = "\ud800"
    corpus, output = write_corpus(tmp_path / "corpus.jsonl", rows), tmp_path / "vectors.parquet"
    line = (corpus, "-o", output, "--skip-invalid")
    run_stopped(monkeypatch, *line)
    refused = run_fake(*line, "--copy-column", "title")
    assert (refused.exit_code, "another choice of columns" in refused.output) == (2, True)
    assert run_fake(*line).exit_code == 0

    output = tmp_path / "others.parquet"
    run_stopped(monkeypatch, corpus, "-o", output)
    assert run_fake(corpus, "-o", output, "--copy-column", "text").exit_code == 0
    assert read_column(output, "text") == numbered_texts(4 * SHORT_PART)


def test_an_input_that_changes_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(20))

    async def change(*arguments: Any, **details: Any) -> None:
        await pipeline.embed_parts(*arguments, **details)
        corpus.write_text(corpus.read_text("utf-8").replace("text 5", "text five"), "utf-8")

    monkeypatch.setattr(command, "embed_parts", change)
    done = run_fake(corpus, "-o", tmp_path / "vectors.npy")
    assert done.exit_code == 2
    assert "has changed since the start" in done.output
    assert not (tmp_path / "vectors.npy").exists()


def test_interrupted_it_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(*arguments: Any, **details: Any) -> None:
        await pipeline.embed_parts(*arguments, **details)
        raise KeyboardInterrupt

    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(20))
    monkeypatch.setattr(command, "embed_parts", interrupt)
    done = run_fake(corpus, "-o", tmp_path / "vectors.npy")
    assert done.exit_code == 130
    assert "The same command continues" in done.output


def test_interrupted_before_the_first_part_is_finished_it_claims_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupt(*arguments: Any, **details: Any) -> None:
        raise KeyboardInterrupt

    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(20))
    monkeypatch.setattr(command, "embed_parts", interrupt)
    done = run_fake(corpus, "-o", tmp_path / "vectors.npy")
    assert done.exit_code == 130
    assert done.output.endswith("Interrupted.\n")


def test_it_says_at_the_start_which_column_it_reads(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.csv", [{"id": "1", "txet": "one"}, {"id": "2", "txet": "two"}])
    done = run_fake(corpus, "-o", tmp_path / "vectors.npy")
    assert f"2 texts from the column 'txet' of {corpus}" in done.output


def test_interrupted_before_anything_is_embedded_it_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any, **details: Any) -> None:
        raise KeyboardInterrupt

    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(20))
    monkeypatch.setattr(command, "scan_source", interrupt)
    done = run_fake(corpus, "-o", tmp_path / "vectors.npy")
    assert (done.exit_code, done.output) == (130, "Interrupted.\n")


def test_without_the_embedded_model_the_option_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecmill.models.location.EMBEDDED_PACKAGES", ())
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(3))
    done = run_fake(corpus, "-o", tmp_path / "vectors.npy")
    assert done.exit_code == 2
    assert done.output.endswith("The option --model names a model.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("missing.jsonl", "-o", "v.npy"), "There is no file missing.jsonl"),
        (("corpus.jsonl", "-o", "v.txt"), "the file name extension must be one of .parquet, .npy, .jsonl"),
        (("corpus.jsonl", "-o", "missing/v.npy"), "There is no folder missing"),
        (("corpus.jsonl", "-o", "taken.npy"), "taken.npy exists already"),
        (("corpus.jsonl", "-o", "./corpus.jsonl"), "is the input itself"),
        (("corpus.jsonl", "-o", "v.npy", "--prompt-name", "p"), "no prompt named 'p'"),
        (("corpus.jsonl", "-o", "v.npy", "--dimensions", "1000"), "1 to 384"),
        (("corpus.jsonl", "-o", "v.npy", "--dtype", "binary", "--dimensions", "60"), "multiple of 8"),
        (("corpus.jsonl", "-o", "v.npy", "--model", "missing"), "There is no directory 'missing'"),
        (("corpus.jsonl", "-o", "v.npy", "--server", "http://127.0.0.1:1", "--cores", "2"), "Remove them"),
        (("corpus.jsonl", "-o", "v.npy", "--server", "nowhere"), "--server is 'nowhere'"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_cannot_work_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(Path("corpus.jsonl"), numbered_rows(3))
    Path("taken.npy").touch()
    done = run_fake(*arguments) if "--server" not in arguments else run(*arguments)
    assert done.exit_code == 2
    assert sentence in done.output
    assert done.output.count("\n") == 1
    assert not Path("v.npy.parts").exists()


def test_a_run_that_was_complete_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(20))
    output = tmp_path / "vectors.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(PartStore, "remove", lambda parts: None)
        run_fake(corpus, "-o", output)
    done = run_fake(corpus, "-o", output)
    assert (done.exit_code, "already complete" in done.output) == (0, True)
    assert len(output.read_text("utf-8").splitlines()) == 20
    assert not folder_of(output).exists()
    assert json.loads(output.read_text("utf-8").splitlines()[3])["id"] == 3

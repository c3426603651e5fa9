"""`vecmill embed` over pictures: the embeddings of a mill, in process and by a server, killed or not."""

import asyncio
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from commands.embed.test_killed import command_of, kill_at
from support.corpora import read_column, read_rows, write_corpus
from support.drawn_pictures import draw_picture, write_picture
from support.forked_process import ForkedProcess, run_process
from support.http_server import QUIET, build_service, run_in_thread, serve_in_thread
from support.tiny_models import save_tiny_bert
from support.two_towers import save_clip
from vecmill import EmbedPictures, Mill, MillConfig, OutputDtype, Picture, SyncMill
from vecmill.bulk.input_scan import ColumnOptions, InputScan, scan_source
from vecmill.bulk.sources import Source
from vecmill.commands import main as cli
from vecmill.commands.embed.parts import folder_of
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray
from vecmill.vectors import quantize

SHORT_PART = 16
SEED = 20_261_129
NAMES = [
    f"{number % 3}/{number:03}.{kind.lower()}" for number, kind in enumerate(["PNG", "JPEG", "WEBP"] * 15)
]


def draw(number: int, kind: str = "PNG") -> bytes:
    return write_picture(draw_picture("RGB", 20 + number % 50, 40, number), kind)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `NAMES`."""
    folder = tmp_path_factory.mktemp("pictures")
    for number, name in enumerate(NAMES):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(draw(number, name.rpartition(".")[2].upper()))
    return folder


@pytest.fixture(scope="module")
def expected(model: Path, cache: Path, pictures: Path) -> FloatArray:
    """What a mill gives for the pictures, in the order of their paths."""
    files = [Picture.read(pictures / name) for name in sorted(NAMES)]
    with SyncMill(model, MillConfig(cache_dir=cache)) as mill:
        return mill.run(EmbedPictures(tuple(files))).embeddings


@pytest.fixture(scope="module")
def server(model: Path, cache: Path) -> Iterator[str]:
    config = MillConfig(cache_dir=cache, cores=1)
    service = build_service(QUIET, [(describe_model(locate_model(model)), None)], config=config)
    with run_in_thread(service) as (port, _):
        yield f"http://127.0.0.1:{port}"


def run(*arguments: object) -> Result:
    line = ["embed", *map(str, arguments)]
    return CliRunner().invoke(cli.main, line, prog_name="vecmill", catch_exceptions=False)


@pytest.fixture
def places(model: Path, cache: Path, server: str) -> dict[str, Sequence[object]]:
    return {"here": ("--model", model, "--cache-dir", cache), "by a server": ("--server", server)}


@pytest.mark.parametrize("place", ["here", "by a server"])
def test_a_folder_has_the_embeddings_of_a_mill(
    place: str, places: dict[str, Sequence[object]], pictures: Path, expected: FloatArray, tmp_path: Path
) -> None:
    output = tmp_path / "vectors.parquet"
    done = run(pictures, "-o", output, *places[place])
    assert done.exit_code == 0, done.output
    assert f"{len(NAMES)} pictures from {pictures}" in done.output
    assert f"{len(NAMES)} pictures were embedded" in done.output
    assert "pictures/s)" in done.output
    assert read_column(output, "id") == sorted(NAMES)
    np.testing.assert_allclose(read_rows(output), expected, atol=1e-5)
    assert read_column(output, "truncated_tokens") == [0] * len(NAMES)


async def test_vectors_of_both_places_name_one_space(
    places: dict[str, Sequence[object]], pictures: Path, model: Path, cache: Path, tmp_path: Path
) -> None:
    async with Mill(model, MillConfig(cache_dir=cache)) as mill:
        space = mill.find_space(EmbedPictures((Picture(draw(0)),), dimensions=16))
    assert space is not None
    for place, options in places.items():
        output = tmp_path / f"{place}.parquet"
        done = await asyncio.to_thread(run, pictures, "-o", output, "--dimensions", 16, *options)
        assert done.exit_code == 0, done.output
        about = json.loads(parquet.read_schema(output).metadata[b"vecmill"])
        assert (about["space"], about["exact"], about["prompt_name"]) == (space.space, space.exact, None)
        assert about["precision"] == "fp32"


@pytest.mark.parametrize("place", ["here", "by a server"])
def test_paths_and_bytes_of_rows_have_the_same_embeddings(
    place: str, places: dict[str, Sequence[object]], pictures: Path, expected: FloatArray, tmp_path: Path
) -> None:
    names = sorted(NAMES)
    cells = [{"bytes": (pictures / name).read_bytes(), "path": name} for name in names]
    rows = [{"id": number, "file": name} for number, name in enumerate(names)]
    in_bytes = tmp_path / "bytes.parquet"
    parquet.write_table(pa.table({"id": range(len(names)), "file": cells}), in_bytes)
    for corpus in (write_corpus(tmp_path / "rows.jsonl", rows), in_bytes):
        output = tmp_path / f"{corpus.stem}-vectors.parquet"
        options = ("--picture-column", "file", "--picture-folder", pictures, "-o", output)
        done = run(corpus, *options, *places[place])
        assert done.exit_code == 0, done.output
        assert read_column(output, "id") == list(range(len(names)))
        np.testing.assert_allclose(read_rows(output), expected, atol=1e-5)


def test_binary_embeddings_are_those_of_a_mill(
    places: dict[str, Sequence[object]], pictures: Path, expected: FloatArray, tmp_path: Path
) -> None:
    for place, options in places.items():
        output = tmp_path / f"{place}.npy"
        assert run(pictures, "-o", output, "--dtype", "ubinary", *options).exit_code == 0
        assert np.array_equal(read_rows(output), quantize(expected, OutputDtype.UBINARY, None))


@pytest.mark.parametrize("place", ["here", "by a server"])
def test_a_file_that_cannot_be_decoded_ends_the_run_or_is_left_out(
    place: str, places: dict[str, Sequence[object]], expected: FloatArray, pictures: Path, tmp_path: Path
) -> None:
    folder, output = tmp_path / "in", tmp_path / "vectors.parquet"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((pictures / name).read_bytes())
    broken = sorted(NAMES)[20]
    (folder / broken).write_bytes((folder / broken).read_bytes()[:60])
    failed = run(folder, "-o", output, *places[place])
    assert failed.exit_code == 2
    assert f"The picture of file 21 ('{broken}') cannot be embedded" in failed.output
    assert "To skip such pictures, add --skip-invalid" in failed.output
    done = run(folder, "-o", output, "--skip-invalid", *places[place])
    assert "1 left out" in done.output
    assert read_column(output, "id") == sorted(set(NAMES) - {broken})
    np.testing.assert_allclose(read_rows(output), np.delete(expected, 20, axis=0), atol=1e-5)


def test_options_of_texts_and_models_without_pictures_are_refused(
    places: dict[str, Sequence[object]], pictures: Path, tmp_path: Path
) -> None:
    def refuse(*options: object) -> str:
        failed = run(pictures, "-o", tmp_path / "vectors.parquet", *options)
        assert failed.exit_code == 2, failed.output
        assert "Traceback" not in failed.output
        return failed.output

    for option in (
        ("--prompt-name", "query"),
        ("--purpose", "query"),
        ("--on-long-input", "cut"),
        ("--chunking", "pooled"),
    ):
        assert f"{option[0]} is for texts" in refuse(*option, *places["here"])
    assert "float, binary and ubinary" in refuse("--dtype", "int8", *places["here"])
    assert "int8 and uint8 need texts" in refuse("--dtype", "int8", *places["by a server"])
    bert = save_tiny_bert(tmp_path / "bert")
    assert "it cannot embed pictures" in refuse("--model", bert)
    with serve_in_thread() as text_server:
        assert "it cannot embed pictures" in refuse("--server", text_server.client.base_url)
    failed = run(pictures, "-o", pictures / "vectors.parquet")
    assert "is in the folder of the input" in failed.output


def test_a_folder_that_changes_meanwhile_is_refused(
    places: dict[str, Sequence[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, output = tmp_path / "in", tmp_path / "vectors.parquet"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.png").write_bytes(draw(number))

    def scan_and_rename(source: Source, options: ColumnOptions, **watched: Any) -> InputScan:
        found = scan_source(source, options, **watched)
        (folder / "39.png").rename(folder / "40.png")
        return found

    with monkeypatch.context() as patched:
        patched.setattr("vecmill.commands.embed.run.scan_source", scan_and_rename)
        failed = run(folder, "-o", output, *places["here"])
    assert failed.exit_code == 2
    assert f"{folder} has changed since the start" in failed.output
    # The parts are those of another folder.
    (folder / "00.png").write_bytes(draw(99))
    failed = run(folder, "-o", output, *places["here"])
    assert "were made with another list of pictures" in failed.output


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.full)])
def test_killed_at_any_moment_the_same_command_finishes(
    count: int, model: Path, cache: Path, tmp_path: Path
) -> None:
    dice = random.Random(f"{SEED} {count}")
    folder, output = tmp_path / "in", tmp_path / "vectors.parquet"
    folder.mkdir()
    drawn = [draw(number) for number in range(50)]
    for number in range(count):
        (folder / f"{number:05}.png").write_bytes(drawn[number % 50])
    command = command_of(folder, output, "--model", str(model), "--cache-dir", str(cache))
    parts = -(-count // 256)
    for share in (0, 1):
        process = ForkedProcess[bytes](command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kill_at(process, output, parts=share * parts // 2, delay_s=dice.uniform(0, 0.02))
        assert process.wait() == -signal.SIGKILL
        assert not output.exists()
    done = run_process(command, timeout_s=900)
    assert done.returncode == 0, done.stderr
    assert "in an earlier run" in done.stdout
    assert not folder_of(output).exists()
    assert read_column(output, "id") == [f"{number:05}.png" for number in range(count)]
    with SyncMill(model, MillConfig(cache_dir=cache)) as mill:
        rows = mill.run(EmbedPictures(tuple(map(Picture, drawn)))).embeddings
    np.testing.assert_allclose(read_rows(output), rows[np.arange(count) % 50], atol=1e-5)


@pytest.mark.full
def test_memory_does_not_grow_with_the_pictures(model: Path, cache: Path, tmp_path: Path) -> None:
    peaks = []
    noise = write_picture(draw_picture("RGB", 500, 500, 1), "PNG")
    for count in (300, 1_200):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"{number:05}.png").write_bytes(noise)
        command = command_of(
            folder, tmp_path / f"{count}.npy", "--model", str(model), "--cache-dir", str(cache)
        )
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        process.returncode = 0
        peaks.append(used.ru_maxrss)
    assert peaks[1] - peaks[0] < 900 * len(noise) // 1024 // 4

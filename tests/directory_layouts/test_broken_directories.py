"""Directories broken in each way that users break them: `vecmill serve` says so once, and ends with 2.

One server is started with all of them, and one with a directory that breaks before and while it is loaded.
"""

import json
import os
import pickle  # noqa: TID251 - it writes the files, and reads none of others
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.numpy
from click.testing import CliRunner

from support.forked_process import run_process
from support.pytorch_files import write_file
from support.server import free_port
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands.main import main
from vecmill.engines.kept_models import NAMES as NAMES_FOLDER
from vecmill.errors import ModelNotFound
from vecmill.models import locate_model
from vecmill.models.digests import FOLDER as DIGESTS_FOLDER

Break = Callable[[Path], None]


class Runs:
    """An object whose unpickling runs a program."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("exit",)


def remove(name: str) -> Break:
    return lambda directory: (directory / name).unlink()


def truncate(name: str, share: float) -> Break:
    def change(directory: Path) -> None:
        path = directory / name
        os.truncate(path, int(path.stat().st_size * share))

    return change


def edit(name: str, **values: object) -> Break:
    def change(directory: Path) -> None:
        document = json.loads((directory / name).read_text())
        (directory / name).write_text(json.dumps({**document, **values}))

    return change


def pickle_only(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


def run_a_program(directory: Path) -> None:
    program = pickle.dumps({"weight": Runs()}, 2)
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(write_file("zip", program))


def lose_a_tensor(directory: Path) -> None:
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors["encoder.layer.1.output.dense.weight"]
    safetensors.numpy.save_file(tensors, path)


def lose_a_part(directory: Path) -> None:
    index = {"weight_map": {"embeddings.word_embeddings.weight": "model-00001-of-00002.safetensors"}}
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def link_outside(directory: Path) -> None:
    outside = directory.parent / "elsewhere.json"
    (directory / "config.json").rename(outside)
    (directory / "config.json").symlink_to(outside)


def module_outside(directory: Path) -> None:
    modules = json.loads((directory / "modules.json").read_text())
    shutil.copytree(directory / "1_Pooling", directory.parent / "1_Pooling")
    modules[1]["path"] = "../1_Pooling"
    (directory / "modules.json").write_text(json.dumps(modules))


def remove_all(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def garble_tokenizer(directory: Path) -> None:
    (directory / "tokenizer.json").write_text('{"version": "1.0"}')


BROKEN: dict[str, tuple[Break, str]] = {
    "empty_directory": (remove_all, "config.json is missing"),
    "no_config": (remove("config.json"), "config.json is missing"),
    "no_modules": (remove("modules.json"), "modules.json is missing"),
    "no_pooling": (remove("1_Pooling/config.json"), "1_Pooling/config.json is missing"),
    "no_weights": (remove("model.safetensors"), "model.safetensors is missing"),
    "half_a_config": (truncate("config.json", 0.5), "config.json cannot be read as JSON"),
    "half_of_the_weights": (truncate("model.safetensors", 0.5), "is not a complete safetensors file"),
    "no_bytes_of_weights": (truncate("model.safetensors", 0), "is not a complete safetensors file"),
    "lost_tensor": (lose_a_tensor, "has no tensor 'encoder.layer.1.output.dense.weight'"),
    "lost_part": (lose_a_part, "model-00001-of-00002.safetensors is missing"),
    "wrong_shapes": (edit("config.json", intermediate_size=48), "config.json asks for"),
    "wrong_width": (edit("config.json", hidden_size=64), "config.json"),
    "not_a_pickle": (pickle_only, "begins like neither of PyTorch's formats"),
    "a_pickle_that_runs_a_program": (run_a_program, "pytorch_model.bin names 'posix.system'"),
    "no_tokenizer": (remove("tokenizer.json"), "has no tokenizer"),
    "half_a_tokenizer": (truncate("tokenizer.json", 0.5), "tokenizer.json is not a tokenizer"),
    "another_tokenizer": (garble_tokenizer, "tokenizer.json is not a tokenizer"),
    "link_out_of_the_directory": (link_outside, "leads out of the model directory"),
    "module_out_of_the_directory": (module_outside, "leads out of the model directory"),
    "foreign_code": (edit("config.json", auto_map={"AutoModel": "own.Model"}), "not run by default"),
}


CLIMBING = ("owner/..", "../owner/model", "owner/../../etc", "owner/name@../../etc")


def serve(folder: Path, *models: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
    return run_process(
        [sys.executable, "-m", "vecmill", "serve", *models, "--port", str(free_port())],
        env={**kept, "VECMILL_CACHE_DIR": str(folder / "cache"), "HF_ENDPOINT": "http://127.0.0.1:9"},
    )


def assert_refused(done: "subprocess.CompletedProcess[str]", message: str, folder: Path) -> None:
    printed = done.stdout + done.stderr
    assert done.returncode == 2, printed
    assert printed.count(message) == 1, printed
    assert "Traceback" not in printed
    # Where the engine's part is sound and was prepared meanwhile, it is there whole, as digests of files are.
    written = {path for path in (folder / "cache").rglob("*") if path.is_file()}
    digests = {path for path in written if path.parent.name in (DIGESTS_FOLDER, NAMES_FOLDER)}
    assert all(json.loads(path.read_text("utf-8")) for path in digests)
    prepared = {path.parent for path in written - digests}
    assert [path for path in prepared if not (path / "manifest.json").exists()] == []


def break_model(folder: Path, name: str) -> str:
    """Return a model directory that is broken in the way `name`, in a folder of its own."""
    directory = save_tiny_bert(folder / f"around_{name}" / name, TinyBert())
    BROKEN[name][0](directory)
    return str(directory)


@pytest.mark.promise("verified-start")
def test_every_broken_directory_is_refused_in_one_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    done = serve(tmp_path, *(break_model(tmp_path, name) for name in BROKEN))
    for name, (_, message) in BROKEN.items():
        with subtests.test(msg=name):
            [line] = [line for line in done.stderr.splitlines() if " ERROR " in line and f" {name} " in line]
            assert message in line
    assert_refused(done, "\nError: ", tmp_path)


@pytest.mark.promise("verified-start")
@pytest.mark.parametrize("name", ["half_a_config", "lost_tensor"], ids=["before it is loaded", "at load"])
def test_a_server_of_one_broken_directory_ends_with_one_sentence(name: str, tmp_path: Path) -> None:
    assert_refused(serve(tmp_path, break_model(tmp_path, name)), BROKEN[name][1], tmp_path)


@pytest.mark.promise("safe-names")
def test_names_that_climb_are_refused(subtests: pytest.Subtests) -> None:
    for name in CLIMBING:
        with subtests.test(msg=name), pytest.raises(ModelNotFound, match="There is no directory"):
            locate_model(name)
    refused = CliRunner().invoke(main, ["serve", CLIMBING[-1]])
    assert (refused.exit_code, "There is no directory" in refused.stderr) == (2, True)
    assert len(refused.stderr.splitlines()) == 1

"""Whatever a model directory holds, the model loads and answers, or is refused by a sentence that names it.

Each value of each JSON file is exchanged for wrong types, huge, negative and nested values, and each file is
broken in several ways. A process of its own loads the directories and measures itself.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fuzz.directory_changes import BY_LIBRARY, Change, list_changes
from fuzz.model_loader import run_model
from fuzz.whole_models import ALL, FEW, TASKS, Save
from support.source_tree import ROOT
from vecmill.errors import SetupError

CASES, FULL_CASES = 14, 10_000
MOST_MIB = 200
MOST_PROCESSOR_S = 5.0


class Loader:
    """The process that loads directories; another is started if one ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._diagnostics = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the loader

    def load(self, directory: Path, task: str | None) -> dict[str, Any]:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        order = {"directory": str(directory), "task": task, "cache": str(directory.with_name("cache"))}
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._process = None
            process.communicate()
            ended = f"ended with {process.returncode}"
            return {"error": ended, "message": self._last_diagnostics(), "seconds": 0.0, "memory_mib": 0.0}
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._diagnostics.close()

    def _last_diagnostics(self) -> str:
        self._diagnostics.seek(0)
        return self._diagnostics.read()[-2_000:]

    def _start(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "fuzz.model_loader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._diagnostics,
            text=True,
            cwd=ROOT / "tests",
        )
        return self._process


@contextmanager
def run_loader() -> Iterator[Loader]:
    loader = Loader()
    try:
        yield loader
    finally:
        loader.close()


def find_faults(change: Change, outcome: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the outcome of a directory."""
    faults = []
    error, message = outcome["error"], str(outcome["message"])
    if error is not None:
        is_foreseen = not error.endswith("LoadFailed") or Path(change.name).name in BY_LIBRARY
        if not error.startswith("refused") or not is_foreseen:
            faults.append(error)
        # Which of the settings makes values infinite cannot be told.
        elif not error.endswith("SelfCheckFailed") and not change.is_named_in(message):
            faults.append("does not name it")
        if len(message) > 1_000 or not message.isprintable():
            faults.append("is no sentence")
    if outcome["memory_mib"] > MOST_MIB:
        faults.append(f"took {outcome['memory_mib']:.0f} MiB")
    if outcome["seconds"] > MOST_PROCESSOR_S:
        faults.append(f"took {outcome['seconds']:.1f} s")
    return faults


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.linux
@pytest.mark.promise("model-directories")
@pytest.mark.parametrize(
    ("saves", "count"),
    [
        pytest.param(FEW, CASES, id="some"),
        pytest.param(ALL, FULL_CASES, id="all", marks=pytest.mark.full),
    ],
)
def test_whatever_a_directory_holds_is_an_error_of_that_model(
    saves: Mapping[str, Save], count: int, models: Path, tmp_path: Path
) -> None:
    dice = random.Random(count)
    faults, refused = [], 0
    with run_loader() as loader:
        for kind, save in saves.items():
            whole = models / f"{count}-{kind}"
            save(whole)
            outcome = loader.load(whole, TASKS.get(kind))
            assert outcome["error"] is None, (kind, outcome)
            changes = list(list_changes(whole))
            for change in dice.sample(changes, min(len(changes), -(-count // len(saves)))):
                outcome = load_changed(loader, whole, change, tmp_path / "changed", TASKS.get(kind))
                refused += outcome["error"] is not None
                found = [
                    f"{kind}: {change}: {fault}: {outcome['message']}"
                    for fault in find_faults(change, outcome)
                ]
                print(*found, sep="\n", end="\n" if found else "")  # also if the rest cannot be tried
                faults += found
    assert not faults, "\n".join(faults)
    assert refused > count // 4


def load_changed(
    loader: Loader, whole: Path, change: Change, directory: Path, task: str | None
) -> dict[str, Any]:
    """Load a copy of the directory `whole` with one change."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(whole, directory)
    change.apply(directory)
    return loader.load(directory, task)


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        ("deberta-v2", "config.json", "share_att_key", 0),
        ("lfm2", "config.json", "intermediate_size", 512),
        ("llama", "config.json", "head_dim", 7),
        ("seed_oss", "config.json", "num_key_value_heads", 1),
        ("nomic_bert_experts", "config.json", "n_inner", []),
        ("nomic_bert_experts", "config.json", "n_positions", -0.5),
        ("pictures_of_module", "config.json", "text_config.intermediate_size", 7),
        ("pictures_of_module", "config.json", "vision_config.intermediate_size", 7),
        ("pictures_of_module", "vocab.json", "!", "x"),
        ("t5", "config.json", "d_model", 1),
    ],
)
def test_a_setting_is_named_as_the_file_has_it(
    kind: str, name: str, key: str, value: Any, tmp_path: Path
) -> None:
    ALL[kind](tmp_path / "model")
    Change(name, tuple(key.split(".")), value).apply(tmp_path / "model")
    with pytest.raises(SetupError) as raised:
        run_model(tmp_path / "model", None, tmp_path / "cache")
    assert key in str(raised.value)


def test_sentences_are_told_from_others() -> None:
    change = Change("config.json", ("hidden_act",), ["x"])
    good = {"error": "refused UnsupportedModel", "message": "config.json: hidden_act ['x'] is not supported.",
            "seconds": 0.1, "memory_mib": 1}  # fmt: skip
    assert find_faults(change, good) == []
    assert find_faults(change, {**good, "error": "raised TypeError"}) == ["raised TypeError"]
    assert find_faults(change, {**good, "message": "It is broken."}) == ["does not name it"]
    assert find_faults(change, {**good, "memory_mib": 201, "seconds": 6}) == ["took 201 MiB", "took 6.0 s"]


def test_a_configuration_with_an_empty_list_can_be_changed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"layers": []}')
    assert {change.keys for change in list_changes(tmp_path)} == {(), ("layers",)}

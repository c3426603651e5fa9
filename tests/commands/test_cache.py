"""`vecmill cache` lists the prepared models, and removes what was chosen, never what a program has open."""

import gc
import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vecmill import Mill, MillConfig
from vecmill.commands.main import main
from vecmill.engines.kept_models import NAMES, KeptModel, choose_kept, list_kept
from vecmill.engines.mapped_model import WatchedFiles
from vecmill.engines.prepared import MODEL_FILE, prepare_model

MOST_TRIES = 100
DAY_S = 86_400.0
NOW = 1_000 * DAY_S


def prepare(cache: Path, name: str, size: int, *, unused_days: float = 0.0) -> Path:
    prepare_model(cache, name, lambda folder: _ignore((folder / MODEL_FILE).write_bytes(bytes(size))))
    then = time.time() - unused_days * DAY_S
    os.utime(cache / name, (then, then))
    return cache / name


def _ignore(_: int) -> None:
    """Of a function that is called for what it does."""


def run(cache: Path, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["cache", *arguments, "--cache-dir", str(cache)], input=answer)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    prepare(tmp_path, "aaaa-1-fp32", 3_000_000)
    prepare(tmp_path, "bbbb-1-int8", 1_000_000, unused_days=40)
    (tmp_path / NAMES).mkdir()
    (tmp_path / NAMES / "aaaa.json").write_text('{"name": "own/model"}')
    (tmp_path / "digests").mkdir()
    (tmp_path / "digests/one.json").write_text("{}")
    return tmp_path


def folders(cache: Path) -> list[str]:
    return [each.folder.name for each in list_kept(cache)]


def test_the_list_tells_model_size_and_last_use(cache: Path) -> None:
    heading, first, second, total = run(cache, "list").output.splitlines()
    assert heading.split() == ["size", "last", "use", "model", "prepared", "for"]
    assert first.split() == ["3", "MB", "in", "this", "hour", "own/model", "1-fp32"]
    assert second.split() == ["1", "MB", "40", "d", "ago", "(unknown)", "1-int8"]
    assert total.startswith(f"4 MB in {cache}, 0.0 MB of them digests")
    found = [json.loads(line) for line in run(cache, "list", "--json").output.splitlines()]
    assert [(each["name"], each["variant"], each["is_open"]) for each in found] == [
        ("own/model", "1-fp32", False),
        ("(unknown)", "1-int8", False),
    ]


def test_an_empty_cache_is_no_error(tmp_path: Path) -> None:
    assert run(tmp_path / "none", "list").output == (
        f"0 MB in {tmp_path / 'none'}, 0.0 MB of them digests, samples and checks\n"
    )
    assert "nothing to remove" in run(tmp_path / "none", "prune", "--unused-for", "1").output


def test_nothing_is_removed_before_it_is_confirmed(cache: Path) -> None:
    for answer in ("n\n", ""):
        refused = run(cache, "prune", "--all", answer=answer)
        assert refused.exit_code == 1
        assert "Remove 2 prepared models (4 MB)" in refused.output
    assert folders(cache) == ["aaaa-1-fp32", "bbbb-1-int8"]
    assert run(cache, "prune", "--all", answer="y\n").exit_code == 0
    assert [path.name for path in cache.iterdir()] == []


@pytest.mark.parametrize("options", [["--unused-for", "30"], ["--keep-mb", "3.5"]])
def test_what_is_unused_for_long_goes_first(cache: Path, options: list[str]) -> None:
    assert "Removed 1 of 1" in run(cache, "prune", *options, "--yes").output
    assert folders(cache) == ["aaaa-1-fp32"]
    assert (cache / "digests/one.json").exists()


def test_one_says_what_to_remove(cache: Path) -> None:
    for options in ([], ["--all", "--keep-mb", "1"]):
        assert "Say what to remove" in run(cache, "prune", *options).output
    assert len(folders(cache)) == 2


def test_what_a_program_has_open_stays(cache: Path) -> None:
    files = WatchedFiles([cache / "bbbb-1-int8" / MODEL_FILE])
    assert "open now" in run(cache, "list").output
    told = run(cache, "prune", "--all", "--yes").output
    assert "1 prepared models stay" in told
    assert folders(cache) == ["bbbb-1-int8"]
    assert not files.have_changed()
    del files
    run(cache, "prune", "--all", "--yes")
    assert folders(cache) == []


async def test_a_served_model_has_its_name_in_the_list_and_stays(tmp_path: Path) -> None:
    async with Mill(config=MillConfig(cache_dir=tmp_path)) as mill:
        (found,) = list_kept(tmp_path)
        assert (found.name, found.is_open) == ("all-MiniLM-L6-v2", True)
        run(tmp_path, "prune", "--all", "--yes")
        assert found.folder.is_dir()
        assert (await mill.embed("hello")).shape == (1, 384)
    del mill
    for _ in range(MOST_TRIES):  # with the mill, and the last thread that knows it, go its open files
        gc.collect()
        run(tmp_path, "prune", "--all", "--yes")
        if not list_kept(tmp_path):
            break
    assert list_kept(tmp_path) == []


def kept(name: str, size: int, days: float, *, is_open: bool = False) -> KeptModel:
    return KeptModel(Path(name), name, "", size, NOW - days * DAY_S, is_open)


def test_the_choice_counts_what_is_open_and_never_chooses_it() -> None:
    models = [kept("old", 5, 9), kept("open", 5, 20, is_open=True), kept("new", 5, 1), kept("older", 5, 10)]

    def choose(unused_days: float | None, most: int | None) -> list[str]:
        unused_s = None if unused_days is None else unused_days * DAY_S
        return [each.name for each in choose_kept(models, now=NOW, unused_s=unused_s, most_bytes=most)]

    assert choose(None, None) == ["older", "old", "new"]
    assert choose(9, None) == ["older", "old"]
    assert choose(None, 12) == ["older", "old"]
    assert choose(10, 12) == ["older", "old"]
    assert choose(None, 0) == ["older", "old", "new"]
    assert choose(None, 20) == []

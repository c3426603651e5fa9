"""The programs of docs/stores.md find what the commands above them wrote, in each store."""

import os
import re
from pathlib import Path

import pytest

from stores.store_places import StorePlace, place_in, store_in, write_lines
from stores.store_readers import NAME
from support.forked_process import ForkedProcess
from support.source_tree import ROOT
from vecmill.models import locate_model

PAGE = (ROOT / "docs/stores.md").read_text("utf-8")
SEARCHES = dict(
    re.findall(r"^`--to (\w+:\S+)`\n\n```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
)
TEXTS = ["Dogs bark.", "Cats sleep anywhere.", "The moon is bright."]


def kind_of(address: str) -> str:
    return address.partition(":")[0]


@pytest.mark.full
@pytest.mark.parametrize("address", SEARCHES)
def test_each_search_finds_the_text(address: str, kept_models: Path, tmp_path: Path) -> None:
    link_cache(tmp_path, kept_models)
    rows = [{"id": at, "text": text} for at, text in enumerate(TEXTS)]
    corpus = write_lines(tmp_path / "corpus.jsonl", rows)
    program = SEARCHES[address]
    with store_in(kind_of(address), tmp_path / "server") as store:
        to = address
        if store.kind == "pgvector":
            to, program = store.address, program.replace("postgresql://127.0.0.1/postgres", store.place)
        script = tmp_path / "search.py"
        script.write_text(program, "utf-8")
        run_in(tmp_path, store, "-m", "vecmill", "embed", str(corpus), "--to", to, "--copy-column", "text")
        assert "Cats sleep anywhere." in run_in(tmp_path, store, str(script)).splitlines()[0]


def test_a_folder_of_texts_is_embedded(kept_models: Path, tmp_path: Path) -> None:
    link_cache(tmp_path, kept_models)
    (program,) = re.findall(r"```python\n(from pathlib.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    script = tmp_path / "folder.py"
    script.write_text(program, "utf-8")
    store = place_in("qdrant", tmp_path)
    assert run_in(tmp_path, store, str(script)).split() == ["1", "0", "0"]
    assert run_in(tmp_path, store, str(script)).split() == ["0", "1", "0"]


def link_cache(folder: Path, kept: Path) -> None:
    """Let the programs of a folder use the prepared models of all tests."""
    kept.mkdir(exist_ok=True)
    (folder / "caches").mkdir()
    (folder / "caches/vecmill").symlink_to(kept)


def run_in(folder: Path, store: StorePlace, *line: str) -> str:
    """What a command prints that runs in a folder, with the embedded model."""
    package = locate_model().directory
    while not (package / "__init__.py").exists():
        package = package.parent
    links = folder / "model"
    links.mkdir(exist_ok=True)
    for path in (package, *package.parent.glob(f"{package.name}-*.dist-info")):
        if not (links / path.name).exists():
            (links / path.name).symlink_to(path)
    paths = os.pathsep.join((store.variables["PYTHONPATH"], str(links)))
    with ForkedProcess[str](
        [store.python, *line],
        cwd=folder,
        env={**store.variables, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "caches")},
        stdout=-1,
        stderr=-1,
        text=True,
    ) as process:
        told, failed = process.communicate()
    assert process.returncode == 0, failed
    return told


def test_all_stores_are_searched() -> None:
    assert {kind_of(address) for address in SEARCHES} == {"qdrant", "lancedb", "chroma", "pgvector"}
    assert all(address.endswith(f"/{NAME}") for address in SEARCHES)

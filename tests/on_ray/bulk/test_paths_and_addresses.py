"""Paths are those of the command, input and output are apart, and no message shows a password."""

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from support.tiny_models import save_tiny_bert
from vecmill.errors import InvalidConfig, SetupError
from vecmill_ray.bulk.bulk_options import parse_options, refuse_local_files, refuse_overlap
from vecmill_ray.bulk.inputs import InputAddress
from vecmill_ray.bulk.storage import SharedStorage, absolute_address

NOT_GIVEN = (
    "query key_column text_column picture_column id_column prompt_name purpose dimensions engine precision "
    "device cores cache_dir actors model config"
)
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(NOT_GIVEN.split()),
    "copied_columns": (),
    "skips_invalid": False,
    "dtype": "float32",
    "on_long_input": None,
    "trusts_code": False,
    "block_rows": 10,
    "shared_files": False,
}


def test_relative_paths_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny_bert(tmp_path / "models/tiny")
    monkeypatch.chdir(tmp_path)
    options = {**OPTIONS, "model": "models/tiny", "cache_dir": Path("cache")}
    found = parse_options("texts", "out", options)
    assert (found.address.address, found.output) == (f"{tmp_path}/texts", f"{tmp_path}/out")
    assert found.choice.embed_model.model == f"{tmp_path}/models/tiny"
    assert found.choice.config.cache_dir == tmp_path / "cache"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sqlite:///a/b.db?mode=ro", "sqlite:///{here}/a/b.db?mode=ro"),
        ("duckdb:///b.db", "duckdb:///{here}/b.db"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("sqlite://", "sqlite://"),
        ("postgresql://host/name", "postgresql://host/name"),
        ("s3://bucket/folder", "s3://bucket/folder"),
    ],
)
def test_addresses_keep_their_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_address(address) == expected.format(here=tmp_path)


def test_the_output_is_not_among_the_input(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"text": "a"}\n', "utf-8")
    address = InputAddress(str(tmp_path / "in"))

    def check(output: Path) -> None:
        refuse_overlap(address, address.open(), SharedStorage(str(output)))

    for apart in (tmp_path / "out", tmp_path / "in-out", tmp_path / "in/_out"):
        check(apart)
    with pytest.raises(InvalidConfig, match="is in the folder of the input"):
        check(tmp_path / "in/out")
    for above in (tmp_path / "in", tmp_path):
        with pytest.raises(InvalidConfig, match=r"contains the input .*a\.jsonl"):
            check(above)


def test_local_paths_are_refused_with_several_nodes(tmp_path: Path) -> None:
    output = SharedStorage(str(tmp_path / "out"))
    refuse_local_files([], output, 1)
    with pytest.raises(InvalidConfig, match="out is a local path"):
        refuse_local_files([], output, 2)


@pytest.mark.parametrize(
    "address", ["cockroach://reader:secret@db/articles", "cockroach://a b:secret c@db/x"]
)
def test_an_error_message_has_no_password(address: str) -> None:
    with pytest.raises(InvalidConfig, match=r"A cockroach:// address cannot be used") as caught:
        SharedStorage(address)
    assert "secret" not in caught.value.message
    assert "--query" in caught.value.message
    assert caught.value.__suppress_context__


def test_a_query_makes_an_address_that_of_a_database() -> None:
    # SQLAlchemy may be missing, and the driver is.
    with pytest.raises(SetupError, match=r"Databases need SQLAlchemy|The address of the database") as caught:
        InputAddress("cockroach://reader:secret@db/articles", "SELECT 1", "id").open()
    assert "secret" not in caught.value.message


class CachedListing(LocalFileSystem):  # type: ignore[misc]
    """A file system that lists a folder once, as those of fsspec for networks do."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Any] = {}

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        if path not in self.known:
            self.known[path] = super().find(path, *args, **options)
        return self.known[path]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.known.clear()


def test_a_listing_has_the_files_that_others_have_written(tmp_path: Path) -> None:
    storage = SharedStorage(str(tmp_path))
    storage.filesystem = fs.PyFileSystem(fs.FSSpecHandler(CachedListing()))
    for name in ("a", "b"):
        (tmp_path / name).write_text("1", "utf-8")
        assert name in storage.list_names()

"""Pictures of a cluster's inputs, without Ray: the blocks of bytes and of paths, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from support.corpora import write_corpus
from support.drawn_pictures import draw_picture, write_picture
from support.two_towers import save_clip
from vecmill import EmbedPictures, Mill, MillConfig, Picture
from vecmill.bulk.embed_model import EmbedModel
from vecmill.bulk.embedder import EmbedParameters
from vecmill.bulk.input_scan import ColumnOptions
from vecmill.bulk.picture_inputs import PictureFile
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill_ray.bulk.block_embedding import BulkJob, BulkModel, find_identity, open_embedder
from vecmill_ray.bulk.bulk_manifest import BulkManifest
from vecmill_ray.bulk.database_input import DatabaseInput
from vecmill_ray.bulk.inputs import InputAddress
from vecmill_ray.bulk.scan import BulkScan, choose_input_columns, join_scans, scan_spans
from vecmill_ray.bulk.storage import SharedStorage, StoredFile
from vecmill_ray.bulk.stored_pictures import StoredPictures

FILES = [write_picture(draw_picture("RGB", 30 + number, 40, number), "PNG") for number in range(7)]
OPTIONS = ColumnOptions(picture_column="image", skips_invalid=True)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MillConfig]:
    folder = tmp_path_factory.mktemp("clip")
    return save_clip(folder / "model"), MillConfig(engine="onnx", cores=1, cache_dir=folder / "cache")


def write_rows(folder: Path, kind: str) -> Path:
    """`FILES` in bytes or as paths, with a broken one before the last."""
    files = [*FILES[:-1], FILES[0][:60], FILES[-1]]
    names = [f"{number}.png" for number in range(len(files))]
    for name, data in zip(names, files, strict=True):
        (folder / name).write_bytes(data)
    if kind == "paths":
        return write_corpus(folder / "rows.jsonl", [{"id": name, "image": name} for name in names])
    cells = [{"bytes": data, "path": None} for data in files]
    parquet.write_table(pa.table({"id": names, "image": cells}), folder / "rows.parquet")
    return folder / "rows.parquet"


def scan(address: InputAddress, block_rows: int) -> tuple[Any, BulkScan]:
    inputs = address.open()
    columns = choose_input_columns(inputs, OPTIONS)
    spans = [span for index, found in enumerate(inputs) for span in found.spans(index)]
    scans = scan_spans(address, [found.identity for found in inputs], columns, block_rows, spans)
    return columns, join_scans(inputs, spans, scans, OPTIONS, columns)


@pytest.mark.parametrize("kind", ["bytes", "paths"])
async def test_blocks_of_pictures_have_the_embeddings_of_a_mill(
    kind: str, config: tuple[Path, MillConfig], tmp_path: Path
) -> None:
    model, settings = config
    address = InputAddress(str(write_rows(tmp_path, kind)))
    columns, found = scan(address, 3)
    choice = BulkModel(EmbedModel(str(model), settings), EmbedParameters(has_pictures=True))
    identity = await find_identity(choice)
    assert identity.precision == "fp32"
    manifest = BulkManifest.from_json(BulkManifest({}, identity, columns, found).to_json())
    assert manifest.columns == columns
    output = tmp_path / "out"
    identities = [each.identity for each in address.open()]
    types = dict(found.column_types)
    pinned = choice.pinned_to(identity)
    job = BulkJob(address, identities, str(output), columns, types, pinned, identity, "12345678", True)
    async with open_embedder(job, "here") as embedder:
        counts = [await embedder.embed(block) for block in found.blocks]
    assert [one.rows for one in counts] == [3, 3, 1]
    assert [row.place for one in counts for row in one.rejected] == [7]
    table = parquet.read_table(output)
    assert table["id"].to_pylist() == [f"{number}.png" for number in (0, 1, 2, 3, 4, 5, 7)]
    async with Mill(model, settings) as mill:
        expected = (await mill.run(EmbedPictures(tuple(map(Picture, FILES))))).embeddings
    rows = np.asarray(table["embedding"].combine_chunks().flatten()).reshape(len(FILES), -1)
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_a_block_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill_ray.bulk.blocks.BLOCK_CHARACTERS", len(FILES[0]) // 4)
    _, found = scan(InputAddress(str(write_rows(tmp_path, "bytes"))), 100)
    assert 2 < len(found.blocks) < 8


def test_paths_stay_in_the_folder_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(FILES[0])
    (tmp_path / "in/sub/a.png").write_bytes(FILES[1])
    (tmp_path / "in/text").write_bytes(b"text")
    rows = write_corpus(tmp_path / "in/rows.jsonl", [{"image": "../secret.png"}])
    with pytest.raises(InvalidCorpus, match="no row with a picture in the column 'image'"):
        scan(InputAddress(str(rows)), 10)
    # A storage without links, as object stores are.
    [file] = SharedStorage(str(rows)).files()
    folder = StoredPictures(StoredFile(file.name, file.path, file.size, file.changed, fs.LocalFileSystem()))
    found = folder.find("sub/../sub/a.png")
    assert isinstance(found, PictureFile)
    assert found.read().data == FILES[1]
    for name, problem in {
        "../secret.png": "leads out of",
        str(tmp_path / "secret.png"): "leads out of",
        "../in-other/a.png": "leads out of",
        ".": "leads out of",
        "sub": "is no file",
        "missing.png": "is no file",
        "text": "is no PNG",
        "rows.jsonl\0": "cannot be read",
    }.items():
        refused = folder.find(name)
        assert isinstance(refused, str)
        assert problem in refused


def test_a_database_has_no_pictures() -> None:
    database = DatabaseInput.__new__(DatabaseInput)  # to connect needs SQLAlchemy
    database.name = "sqlite://"
    with pytest.raises(InvalidConfig, match="sqlite://: pictures are read from files, not from a database"):
        database.find_pictures()

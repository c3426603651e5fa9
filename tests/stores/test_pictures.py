"""Pictures in a store are found by words, and only those that have changed are embedded again."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from stores.store_places import place_in
from support.drawn_shapes import draw_shapes
from support.two_towers import save_clip
from vecmill import EmbedPictures, Picture, SyncMill, embed_to_store
from vecmill.commands.main import main
from vecmill.errors import InvalidConfig
from vecmill.stores.content_digests import id_of_input


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "pictures"
    found.mkdir()
    for name, data in list(draw_shapes().items())[:6]:
        (found / f"{name}.png").write_bytes(data)
    return found


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(main, ["embed", *map(str, arguments)], prog_name="vecmill")
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize("kind", ["parquet", pytest.param("qdrant", marks=pytest.mark.full)])
def test_a_folder_is_brought_up_to_date(kind: str, model: Path, folder: Path, tmp_path: Path) -> None:
    place = place_in(kind, tmp_path)
    line = (folder, "--to", place.address, "--model", model, "--source", "s", "--delete-vanished")
    assert "6 pictures embedded" in run(*line).output
    assert "0 pictures embedded, 6 unchanged" in run(*line).output
    first, second, *_, last = sorted(folder.iterdir())
    first.write_bytes(last.read_bytes())
    second.unlink()
    assert "1 pictures embedded, 4 unchanged, 1 rows deleted" in run(*line).output
    rows = place.read()
    names = sorted(path.name for path in folder.iterdir())
    assert sorted(rows) == names
    with SyncMill(model) as mill:
        pictures = tuple(Picture.read(folder / name) for name in names)
        expected = mill.run(EmbedPictures(pictures, normalize=True)).embeddings
    found = np.array([rows[name]["embedding"] for name in names], np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    assert np.abs(found - expected).max() < 1e-5


def test_rows_of_a_program_have_pictures_as_bytes(model: Path, tmp_path: Path) -> None:
    place = place_in("parquet", tmp_path)
    shapes = list(draw_shapes().values())[:3]
    rows = [{"picture": data, "name": str(at)} for at, data in enumerate(shapes)]
    done = embed_to_store(
        rows, place.address, source="s", model=model, picture_column="picture", copy_columns=["name"]
    )
    assert (done.embedded, done.unchanged) == (3, 0)
    # Without a column of ids, the id of a picture is the digest of its content.
    assert sorted(place.read()) == sorted(id_of_input(Picture(data)) for data in shapes)


def test_what_is_for_texts_is_refused(model: Path, folder: Path, tmp_path: Path) -> None:
    place = place_in("parquet", tmp_path)
    for option, value in {"purpose": "query", "vectors": "sparse"}.items():
        with pytest.raises(InvalidConfig, match=rf"--{option} is for texts"):
            embed_to_store(folder, place.address, model=model, **{option: value})  # type: ignore[arg-type]

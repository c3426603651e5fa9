"""The directory: the model's own files and no others, and never in anybody else's place."""

from pathlib import Path

import pytest

from support.tiny_models import save_tiny_bert
from vecmill.commands.optimize.output_directory import JOURNAL_FILE, copy_model, open_directory
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidConfig
from vecmill.models import fingerprint_model, locate_model
from vecmill.models.location import MANIFEST_FILE


def copied(source: Path, target: Path) -> list[str]:
    target.mkdir()
    copy_model(describe_model(locate_model(source)), target)
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def test_the_copy_is_the_same_model(tmp_path: Path) -> None:
    source = save_tiny_bert(tmp_path / "model")
    copied(source, tmp_path / "copy")
    one, other = (describe_model(locate_model(path)) for path in (source, tmp_path / "copy"))
    assert fingerprint_model(one) == fingerprint_model(other)


def test_what_serving_never_reads_stays_behind(tmp_path: Path) -> None:
    source = save_tiny_bert(tmp_path / "model")
    for name in ("pytorch_model.bin", "other.safetensors", "README.md", ".git/config.json", "run.py"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"{}")
    names = copied(source, tmp_path / "copy")
    assert {"config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"} <= set(names)
    assert not {"pytorch_model.bin", "other.safetensors", "README.md", "run.py"} & set(names)
    assert not [name for name in names if name.startswith(".git")]


def test_weights_are_linked_and_settings_copied(tmp_path: Path) -> None:
    source = save_tiny_bert(tmp_path / "model")
    copied(source, tmp_path / "copy")
    assert (source / "model.safetensors").samefile(tmp_path / "copy/model.safetensors")
    (tmp_path / "copy/config.json").write_text("changed")
    assert (source / "config.json").read_text() != "changed"


def test_files_of_a_hubs_cache_are_no_links_into_it(tmp_path: Path) -> None:
    source = save_tiny_bert(tmp_path / "models--a--b/snapshots/abc")
    blobs = tmp_path / "models--a--b/blobs"
    blobs.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).rename(blobs / name)
        (source / name).symlink_to(blobs / name)
    copied(source, tmp_path / "copy")
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.is_symlink()]


def test_another_disk_gets_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    source = save_tiny_bert(tmp_path / "model")
    assert "model.safetensors" in copied(source, tmp_path / "copy")


def test_a_model_may_be_optimised_again_where_it_is(tmp_path: Path) -> None:
    source = save_tiny_bert(tmp_path / "model")
    weights = (source / "model.safetensors").read_bytes()
    copy_model(describe_model(locate_model(source)), source)
    assert (source / "model.safetensors").read_bytes() == weights


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InvalidConfig, match="other files"):
        open_directory(tmp_path)


@pytest.mark.parametrize("name", [MANIFEST_FILE, JOURNAL_FILE])
def test_a_directory_of_an_earlier_run_is_taken(tmp_path: Path, name: str) -> None:
    open_directory(tmp_path / "new")
    (tmp_path / "new" / name).write_text("")
    (tmp_path / "new/config.json").write_text("")
    open_directory(tmp_path / "new")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="cannot be written"):
        open_directory(tmp_path / "file/folder")


def test_an_existing_directory_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(InvalidConfig, match="cannot be written: Permission denied"):
        open_directory(tmp_path)


def test_pytorch_weights_without_safetensors_are_part_of_the_model(tmp_path: Path) -> None:
    source = save_tiny_bert(tmp_path / "model")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    (source / "training_args.bin").write_bytes(b"")
    names = copied(source, tmp_path / "copy")
    assert "pytorch_model.bin" in names
    assert "training_args.bin" not in names

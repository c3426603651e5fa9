"""How much memory loaded engines may take: no more than the container has, whatever the machine has."""

from pathlib import Path

import pytest

from vecmill.hardware.memory import available_mb


def group(folder: Path, *, limit: str, used: int, read_files: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {read_files}\n")
    return folder


def test_a_container_s_limit_counts(tmp_path: Path) -> None:
    small = group(tmp_path, limit="50000000", used=30_000_000, read_files=5_000_000)
    assert available_mb(small) == 25.0


@pytest.mark.parametrize("limit", ["max", "4000000000000000"])
def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path, limit: str) -> None:
    whole = available_mb(tmp_path / "no group")
    found = available_mb(group(tmp_path, limit=limit, used=1, read_files=0))
    assert whole is not None
    assert found is not None
    assert found == pytest.approx(whole, rel=0.5)

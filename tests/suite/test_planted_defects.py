"""The defects of `make defects` can be planted in the sources as they are, and each room has one."""

from pathlib import Path

import pytest

from suite.planted_defects import Edit, read_defects
from support.source_tree import ROOT


def test_each_defect_can_be_planted() -> None:
    for defect in read_defects():
        assert defect.tests
        for edit in defect.edits:
            assert (ROOT / edit.file).read_text("utf-8").count(edit.before) == 1, (defect.name, edit)
            assert edit.before != edit.after


def test_a_text_that_is_not_there_once_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("a = 1\nb = 1\n")
    Edit("module.py", "a = 1", "a = 2").apply(tmp_path)
    assert (tmp_path / "module.py").read_text() == "a = 2\nb = 1\n"
    for before in ("c", " = "):
        with pytest.raises(LookupError, match=r"module\.py does not have this text once"):
            Edit("module.py", before, "").apply(tmp_path)

"""Every package that is installed for serving has a licence that is allowed."""

from pathlib import Path

import pytest

from audit.licences import Licence, is_allowed, read_licences
from support.source_tree import ROOT

SERVE = ROOT / ".venv/serve"


@pytest.mark.promise("known-licences")
def test_what_is_installed_for_serving_may_be_used() -> None:
    if not (SERVE / "ready").exists():
        pytest.skip("`make serve-env` has not been run here")
    if (ROOT / ".venv/extras").exists():
        pytest.skip("packages that the lock does not have were added with EXTRAS")
    licences = read_licences(SERVE)
    assert {"vecmill", "vecmill-server", "numpy"} <= {licence.package for licence in licences}
    assert [f"{licence.package}: {licence.problem}" for licence in licences if licence.problem] == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND BSD-2-Clause", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("Apache-2.0 AND GPL-3.0-only", False),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", False),
        ("(MIT OR GPL-3.0-only) AND ISC", True),
        ("(MIT AND GPL-3.0-only) OR LGPL-2.1-only", False),
        ("AGPL-3.0-only", False),
        ("UNKNOWN", False),
    ],
)
def test_expressions_are_read(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed


def test_copyleft_is_allowed_only_where_it_is_listed() -> None:
    assert Licence("orjson", "3", "MPL-2.0 AND (Apache-2.0 OR MIT)").problem is None
    assert Licence("another", "3", "MPL-2.0").problem is not None


def test_a_package_without_a_licence_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "lib/python3.11/site-packages/nameless-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: nameless\nVersion: 1\n")
    (licence,) = read_licences(tmp_path)
    assert licence.problem == "no licence in its metadata"

"""Tests that run in the emulated root alone, beside the references that were written outside."""

from pathlib import Path

import pytest

from arm64.emulator import INSIDE_RESULTS
from arm64.references import Reference, read_references

REFERENCES = INSIDE_RESULTS / "references"

collect_ignore_glob = [] if REFERENCES.is_dir() else ["test_*.py"]


@pytest.fixture(scope="session")
def bert() -> Reference:
    """A small model whose outputs are close to those of x86-64."""
    return next(one for one in read_references(REFERENCES) if one.family == "bert")


@pytest.fixture(scope="session")
def results() -> Path:
    """The folder that the machine outside reads."""
    return INSIDE_RESULTS

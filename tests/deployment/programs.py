"""Programs of Debian that some tests need."""

import shutil

import pytest


def needs_program(name: str, package: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test where a program is missing."""
    reason = f"{name} is not installed: install the Debian package {package}"
    return pytest.mark.skipif(shutil.which(name) is None, reason=reason)

"""One request passes little code, and that stays so. `make bench-path` has the aim, and what it costs."""

import pytest

from support.request_path import MOST_COROUTINES, trace_request

MOST_FUNCTIONS, MOST_FILES = 130, 36


@pytest.mark.linux
def test_a_short_text_passes_few_functions_and_files_and_waits_once() -> None:
    path = trace_request()
    told = [f"{file.rpartition('/src/')[2]}: {function}" for file, function in path.functions]
    assert len(path.coroutines) <= MOST_COROUTINES, path.coroutines
    assert len(path.functions) <= MOST_FUNCTIONS, told
    assert len(path.files) <= MOST_FILES, path.files

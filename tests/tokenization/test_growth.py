"""A tokenizer that could make a text a thousand times as long is refused before it reads one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.tiny_models import save_tiny_bert

TEN_PIECES = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 1_000}
FOUR_TIMES = {"type": "Sequence", "normalizers": [TEN_PIECES] * 4}

LOADING = """
import resource, sys
from vecmill.directory_layouts import describe_model
from vecmill.errors import VecmillError
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer

resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
try:
    Tokenizer.load(describe_model(locate_model(sys.argv[1])))
except VecmillError as error:
    print(type(error).__name__, error.message)
"""


@pytest.mark.xfail(strict=True, reason="the process is ended")
@pytest.mark.parametrize("key", ['"normalizer"', r'"normali\u007aer"'], ids=["plain", "escaped"])
def test_normalizers_that_multiply_a_text_do_not_end_the_process(key: str, tmp_path: Path) -> None:
    """Also those that the library runs while it reads the file, to find a normalised added token."""
    directory = save_tiny_bert(tmp_path / "model")
    file = directory / "tokenizer.json"
    document = json.loads(file.read_text())
    del document["normalizer"]
    document["added_tokens"].append(
        {**document["added_tokens"][0], "id": 3, "content": "small", "normalized": True, "special": False}
    )
    rest = json.dumps(document)
    file.write_text(f"{rest[:-1]}, {key}: {json.dumps(FOUR_TIMES)}}}")
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(directory)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "UnsupportedModel" in done.stdout
    assert (
        f"{file}: the normalizer may make a text 1000 times as long with its stage 1, Replace" in done.stdout
    )

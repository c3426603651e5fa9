"""What a program imports from `vecmill`: all that docstrings name, typed, and nothing heavy at once."""

import pydoc
import re
import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

import vecmill
from support import library_program
from vecmill import errors
from vecmill.errors import VecmillError
from vecmill.values.engine_plan import Precision, PrecisionName
from vecmill.values.request_choices import ChunkingMode, ChunkingModeName, Purpose, PurposeName

# Classes whose values a program writes, beside requests.
SETTINGS = {
    "BatchConfig",
    "Chunking",
    "InputConfig",
    "MillConfig",
    "QueueConfig",
    "TextOptions",
    "Truncation",
}

# Names of values, and members of enumerations.
NO_NAMES = {"None", "LATE", "BACKGROUND", "BULK", "INTERACTIVE"}


def named_in_docstrings() -> set[str]:
    found = set[str]()
    for name in vecmill.__all__:
        value = getattr(vecmill, name)
        members = vars(value) if isinstance(value, type) else {}
        public = [each for member, each in members.items() if not member.startswith("_")]
        for text in (value.__doc__, *(each.__doc__ for each in public)):
            found.update(re.findall(r"`([A-Z]\w+)[^`]*`", text or ""))
    return found - NO_NAMES


def test_every_name_in_a_docstring_is_imported_from_the_package() -> None:
    assert named_in_docstrings() <= {*vecmill.__all__}


def test_every_error_is_imported_from_the_package() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, VecmillError)
    }
    assert kinds <= {*vecmill.__all__}


def test_the_package_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'onnxruntime', 'asyncio', 'tokenizers'}"
    program = f"import sys, vecmill; print(sorted({heavy} & {{*sys.modules}}))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "[]\n"


def test_the_names_of_choices_are_those_of_their_enumerations() -> None:
    assert get_args(PrecisionName) == tuple(Precision)
    assert get_args(PurposeName) == tuple(Purpose)
    assert get_args(ChunkingModeName) == tuple(ChunkingMode)


def test_choices_may_be_written_as_strings() -> None:
    assert vecmill.MillConfig(precision="int8").precision is Precision.INT8
    assert vecmill.InputConfig(on_long_input="error").on_long_input is vecmill.OnLongInput.ERROR
    assert vecmill.Chunking("late").mode is ChunkingMode.LATE
    with pytest.raises(vecmill.InvalidConfig, match="precision is 'int4'; it must be one of fp32, fp16"):
        vecmill.MillConfig(precision="int4")  # type: ignore[arg-type]
    with pytest.raises(vecmill.InvalidRequest, match=r"`purpose` is 'search'; it must be one of query"):
        vecmill.TextOptions(purpose="search")  # type: ignore[arg-type]
    with pytest.raises(vecmill.InvalidRequest, match=r"`chunking.mode` is 'all'"):
        vecmill.Chunking("all")  # type: ignore[arg-type]


WRITTEN = [
    kind
    for name in vecmill.__all__
    if is_dataclass(kind := getattr(vecmill, name))
    and (name in SETTINGS or (isinstance(kind, type) and issubclass(kind, vecmill.Request)))
]


@pytest.mark.parametrize("kind", WRITTEN)
def test_help_explains_each_field_that_a_program_sets(kind: Any) -> None:
    shown = pydoc.plain(pydoc.render_doc(kind))
    for field in fields(kind):
        if field.name != "timeline":  # which only those need who trace requests
            (explained,) = re.findall(rf"- `{field.name}`([^:]*): [\w`]", shown)
            assert explained.startswith(" (default ") == (
                field.default is not MISSING or callable(field.default_factory)
            )
    assert len(WRITTEN) >= 16


def test_help_shows_defaults_as_they_are_written() -> None:
    shown = " ".join((vecmill.QueueConfig.__doc__ or "").split())
    assert "- `max_queue_tokens` (default 1_000_000): Tokens that may wait in the queue" in shown
    assert "- `queue` (default QueueConfig()): " in (vecmill.MillConfig.__doc__ or "")
    assert "- `on_long_input` (default cut): " in (vecmill.InputConfig.__doc__ or "")
    assert "- `options` (default TextOptions()): " in (vecmill.Embed.__doc__ or "")
    order = re.findall(r"^- `(\w+)`", vecmill.Embed.__doc__ or "", re.MULTILINE)
    assert order.index("chunking") < order.index("options")  # what all requests have comes last


@pytest.mark.full  # `make check` checks the program with the rest
def test_a_program_with_these_names_passes_a_strict_type_checker(tmp_path: Path) -> None:
    options = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path)]
    command = [sys.executable, "-m", "mypy", *options, library_program.__file__]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_program_is_made_of_what_the_settings_accept() -> None:
    assert library_program.CONFIG.plan().precision is Precision.INT8
    assert library_program.CONFIG.queue.timeout_s is None

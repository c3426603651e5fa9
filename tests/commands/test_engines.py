"""`vecmill engines`: one line for each device, one for what is missing, one for what is broken."""

import subprocess
import sys
from importlib.util import find_spec
from types import MappingProxyType

import pytest
from click.testing import CliRunner

from vecmill import engines
from vecmill.commands.main import main
from vecmill.engines import ENGINES, EngineEntry
from vecmill.engines.base import EngineCapabilities
from vecmill.errors import InvalidConfig, MissingExtra
from vecmill.values.engine_plan import Precision
from vecmill.values.messages import pip_command


class Crowded:
    """An engine that finds much."""

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        return EngineCapabilities({"cuda:0": (Precision.FP16, Precision.FP32), "cpu": (Precision.FP32,)})


class Confused:
    """An engine whose runtime fails when it looks about."""

    @classmethod
    def find_capabilities(cls) -> EngineCapabilities:
        raise RuntimeError("no driver\nnothing at all")


def test_the_engine_for_tests_is_not_offered() -> None:
    done = CliRunner().invoke(main, ["engines"])
    assert "fake" not in done.output
    with pytest.raises(InvalidConfig, match="Choose one of: neuron, onnx, openvino, torch, torch-compile"):
        engines.find_engine("steam")


def install(monkeypatch: pytest.MonkeyPatch, **entries: EngineEntry) -> None:
    monkeypatch.setattr(engines, "ENGINES", MappingProxyType(entries))


def run() -> list[str]:
    result = CliRunner().invoke(main, ["engines"])
    assert (result.exit_code, result.exception) == (0, None)
    return result.output.splitlines()


def test_every_engine_is_listed() -> None:
    heading, *lines = run()
    assert heading.split() == ["engine", "installed", "device", "precisions"]
    assert {line.split()[0] for line in lines} == set(ENGINES) - {"fake"}
    assert any(line.split()[:3] == ["onnx", "yes", "cpu"] and "fp32" in line for line in lines)


def test_devices_and_precisions_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch,
        crowded=EngineEntry(f"{Crowded.__module__}:Crowded"),
        other=EngineEntry("gone:Gone", ("gone",), "other"),
    )
    assert run() == [
        "engine   installed  device  precisions",
        "crowded  yes        cuda:0  fp16, fp32",
        "crowded  yes        cpu     fp32",
        f"other    no         {pip_command('install', 'vecmill[other]')}",
    ]


def test_a_broken_engine_is_one_line_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch,
        torn=EngineEntry("vecmill_torn:Torn", extra="torn"),
        confused=EngineEntry(f"{Confused.__module__}:Confused"),
        crowded=EngineEntry(f"{Crowded.__module__}:Crowded"),
    )
    _, torn, confused, *crowded = run()
    assert torn.startswith(
        "torn      broken     The torn engine is installed but cannot be imported: No module named"
    )
    assert "'vecmill[torn]'" in torn
    # It would reinstall vecmill too, which no package index has.
    assert "--force-reinstall" not in torn
    assert confused == "confused  broken     RuntimeError: no driver nothing at all"
    assert len(crowded) == 2


def test_two_wheels_of_a_runtime_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "installed_wheels", lambda: ("onnxruntime", "onnxruntime-gpu"))
    with pytest.raises(MissingExtra, match="overwrite each other"):
        engines.find_engine("onnx")
    [line] = [line for line in run() if line.startswith("onnx ")]
    assert "onnxruntime and onnxruntime-gpu are both installed" in line


def test_engines_that_are_not_installed_are_not_imported() -> None:
    program = (
        "import sys, importlib.util as u\n"
        "real = u.find_spec\n"
        "import vecmill.engines as e\n"
        "e.find_spec = lambda name: None if name != 'onnxruntime' else real(name)\n"
        "from vecmill.commands.engines import list_engines\n"
        "list_engines()\n"
        "print(sorted({'torch', 'openvino', 'optimum', 'onnx', 'onnx_ir'} & set(sys.modules)))"
    )
    assert find_spec("torch") is not None, "the test needs something that could be imported by mistake"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

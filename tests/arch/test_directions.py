"""Who may import whom. Every rule is shown to catch a planted offence."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib import import_module

import pytest

import vecmill
from support.source_tree import Module, modules

REFERENCE_LIBRARIES = ("torch", "transformers", "sentence_transformers")
ENGINE_LIBRARIES = (*REFERENCE_LIBRARIES, "openvino", "onnx", "onnx_ir", "onnxruntime")
# What commands compute with. `vecmill --help` shows the first lines of their help without it.
LIBRARIES_OF_WORK = (
    "asyncio",
    "huggingface_hub",
    "jinja2",
    "numpy",
    "safetensors",
    "tokenizers",
    "vecmill.engines",
    "vecmill.mill",
    "vecmill.models",
)
SERVER_LIBRARIES = (
    "httptools",
    "opentelemetry",
    "orjson",
    "prometheus_client",
    "python_multipart",
    "pythonjsonlogger",
    "starlette",
    "uvicorn",
    "uvloop",
)


@dataclass(frozen=True)
class Rule:
    """Modules inside `places`, except those inside `but`, import nothing of `never`."""

    places: tuple[str, ...]
    never: tuple[str, ...]
    but: tuple[str, ...] = ()

    def offences(self, tree: Iterable[Module]) -> list[str]:
        return [
            f"{module.name}:{found.line} imports {found.name}"
            for module in tree
            if module.within(*self.places) and not module.within(*self.but)
            for found in module.imports
            if any(found.reaches(package) for package in self.never)
        ]


ALL = ("vecmill", "vecmill_ray", "vecmill_server")
BOTH = ("vecmill", "vecmill_server")
# What evaluates arrays and knows no model.
PURE_EVALUATION = tuple(
    f"vecmill.evaluation.{name}"
    for name in (
        "document_scores",
        "exact_search",
        "labelled_texts",
        "neighbour_agreement",
        "retrieval_measures",
        "significance",
        "vector_forms",
    )
)
PURE = tuple(
    f"vecmill.batching.{name}"
    for name in ("forecast", "line", "pace", "policy", "queue", "scheduler", "ticket")
)
RULES = {
    "the library knows no server": Rule(("vecmill",), ("vecmill_ray", "vecmill_server", *SERVER_LIBRARIES)),
    "the scheduler has no clock and no thread": Rule(
        PURE, ("asyncio", "concurrent", "threading", "time", "vecmill.hardware", "vecmill.values.clock")
    ),
    "what is measured knows no model": Rule(
        PURE_EVALUATION,
        ("asyncio", "httpx2", "threading", "vecmill.bulk", "vecmill.engines", "vecmill.mill", "vecmill.sync"),
    ),
    "the measures stay in their module": Rule(
        ALL, ("ir_measures", "pytrec_eval"), but=("vecmill.evaluation.retrieval_measures",)
    ),
    "engines know nothing of batching": Rule(
        ("vecmill.engines",), ("asyncio", "vecmill.batching", "vecmill.mill")
    ),
    "torch stays in its engine": Rule(
        BOTH,
        REFERENCE_LIBRARIES,
        # optimum-neuron takes and gives torch's tensors.
        but=(
            "vecmill.engines.torch",
            "vecmill.engines.neuron",
            "vecmill.verification.reference",
        ),
    ),
    "openvino stays in its engine": Rule(BOTH, ("openvino",), but=("vecmill.engines.openvino",)),
    "ONNX Runtime stays in its engine": Rule(
        BOTH, ("onnxruntime",), but=("vecmill.engines.onnx", "vecmill.quantization")
    ),
    "graphs alone build ONNX": Rule(
        BOTH, ("onnx", "onnx_ir"), but=("vecmill.architectures", "vecmill.graphs", "vecmill.quantization")
    ),
    "opentelemetry stays in tracing": Rule(
        ("vecmill_server",),
        ("opentelemetry",),
        but=("vecmill_server.telemetry.tracing.tracer",),
    ),
    "Pillow stays with the pictures": Rule(BOTH, ("PIL",), but=("vecmill.pictures",)),
    "Ray stays in its package": Rule(BOTH, ("ray", "vecmill_ray")),
    "nothing unpickles": Rule(ALL, ("pickle", "cloudpickle", "dill", "joblib", "shelve")),
    "middleware is pure ASGI": Rule(("vecmill_server",), ("starlette.middleware.base",)),
}
PLANTED = {
    "what is measured knows no model": (
        "vecmill.evaluation.significance",
        "from vecmill.sync import SyncMill",
    ),
    "the measures stay in their module": ("vecmill.evaluation.quality", "import ir_measures"),
    "the library knows no server": ("vecmill.vectors", "import orjson"),
    "the scheduler has no clock and no thread": (
        "vecmill.batching.scheduler",
        "from time import monotonic",
    ),
    "engines know nothing of batching": ("vecmill.engines.onnx", "from ..batching import queue"),
    "torch stays in its engine": ("vecmill.tokenization.tokenizer", "def load():\n    import torch.nn"),
    "openvino stays in its engine": ("vecmill.engines.onnx", "import openvino"),
    "ONNX Runtime stays in its engine": ("vecmill.engines", "import onnxruntime as ort"),
    "graphs alone build ONNX": ("vecmill.engines.onnx", "from onnx import helper"),
    "opentelemetry stays in tracing": ("vecmill_server.telemetry.tracing.trace", "import opentelemetry.sdk"),
    "Pillow stays with the pictures": ("vecmill.operations", "from PIL import Image"),
    "Ray stays in its package": ("vecmill_server.process.runner", "import ray"),
    "nothing unpickles": ("vecmill.models.weights", "import pickle"),
    "middleware is pure ASGI": (
        "vecmill_server.app.middleware",
        "from starlette.middleware.base import BaseHTTPMiddleware",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_direction(name: str) -> None:
    assert RULES[name].offences(modules()) == []


@pytest.mark.parametrize("name", RULES)
def test_direction_catches_an_offence(name: str) -> None:
    place, text = PLANTED[name]
    assert RULES[name].offences([Module.parse(place, text)])


def test_importing_the_packages_loads_no_engine_library() -> None:
    program = (
        "import sys, vecmill, vecmill.commands.main, vecmill.mill, vecmill.engines;"
        "import vecmill_server.app;"
        f"print([name for name in {ENGINE_LIBRARIES!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_help_waits_for_nothing_that_a_command_computes_with() -> None:
    program = (
        "import sys, vecmill.commands.main as cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        f"print([name for name in {(*SERVER_LIBRARIES, *LIBRARIES_OF_WORK)!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert "  serve " in done.stdout  # of the server's package
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_face_of_the_library_is_the_same_for_programs_and_for_type_checkers() -> None:
    (face,) = (module for module in modules() if module.name == "vecmill")
    for_checkers = {found.name for found in face.imports if found.name.startswith("vecmill.")}
    for_programs = {name: getattr(vecmill, name) for name in vecmill.__all__}
    assert len(for_checkers) == len(for_programs)
    for name in for_checkers:
        module, _, last = name.rpartition(".")
        assert for_programs[last] is getattr(import_module(module), last)
    assert {*vecmill.__all__, "__version__"} <= set(dir(vecmill))


def test_one_module_at_most_reads_the_environment() -> None:
    readers = [module.name for module in modules() if _reads_environment(module)]
    assert len(readers) <= 1, readers


def test_reading_the_environment_is_noticed() -> None:
    for text in ("import os\nos.environ['A']", "from os import environ", "import os\nos.getenv('A')"):
        assert _reads_environment(Module.parse("vecmill.vectors", text)), text


def test_no_import_cycles() -> None:
    _sort(modules())


def test_an_import_cycle_is_noticed() -> None:
    planted = [
        Module.parse("vecmill.a", "from vecmill import b"),
        Module.parse("vecmill.b", "import vecmill.a"),
    ]
    with pytest.raises(CycleError):
        _sort(planted)


def _reads_environment(module: Module) -> bool:
    reached = any(found.name in ("os.environ", "os.getenv") for found in module.imports)
    return reached or "os.environ" in module.text or "os.getenv" in module.text


def _sort(tree: Iterable[Module]) -> list[str]:
    """Module names, imported before importer. Raises `CycleError`."""
    names = {module.name for module in tree}
    graph = {
        module.name: {
            target
            for found in module.imports
            if found.at_import
            for target in _targets(found.name, names)
            if target != module.name
        }
        for module in tree
    }
    return list(TopologicalSorter(graph).static_order())


def _targets(name: str, names: set[str]) -> list[str]:
    """The module behind `a.b`: `a.b` where that is a module, else `a`, which holds `b`."""
    return [target for target in (name, name.rpartition(".")[0]) if target in names][:1]

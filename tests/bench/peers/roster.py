"""The peers: how each is started, in which environment, and with which packages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from support.source_tree import ROOT

ENVIRONMENTS = ROOT / "tests/bench/peers/environments"
PROGRAMS = ROOT / "tests/bench/peers/programs"
BASE = "vecmill, onnx fp32"
OPTIMIZED = "vecmill, what optimize chose"
# Servers that are no Python packages. They are measured if somebody starts one.
BY_URL = ("TEI", "Ollama", "vLLM")

# No peer asks a network for anything: what it lacks is an error of its row.
OFFLINE = MappingProxyType(
    {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HOME": "{hub}",
        "DO_NOT_TRACK": "1",
        "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        "VECMILL_CACHE_DIR": "{folder}/cache",
    }
)


class Transport(StrEnum):
    """How the texts reach a peer."""

    HTTP = "HTTP"
    IN_PROCESS = "in process"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer, or one of our own engines.

    `environment` names a file of requirements, `None` stands for the environment of the tests. `command` and
    `variables` have the fields {python}, {bin}, {name}, {hub_name}, {source}, {model}, {flat}, {optimized},
    {hub}, {gguf}, {programs}, {folder}, {port} and {cores}. `folder` is the working directory, by default
    that of the comparison.
    `prepare` is a command that runs once before the first start. `url` is that of a server that runs already.
    """

    name: str
    environment: str | None = None
    packages: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    transport: Transport = Transport.HTTP
    path: str = "/v1"
    url: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this is vecmill."""
        return self.name.startswith("vecmill")


def list_peers(urls: Iterable[str] = (), *, has_optimized: bool = False) -> list[Peer]:
    """Return all peers: ours first, then the others, then those of `urls`, each NAME=URL.

    With `has_optimized`, a directory that `vecmill optimize` wrote is one of ours. The name of a server of
    `BY_URL` may have a version after it. Without a URL such a server cannot be started. Raises
    `ValueError` for an entry of `urls` that is not NAME=URL.
    """
    given = dict(map(_split_url, urls))
    servers = [Peer(name, url=url) for name, url in given.items()]
    missing = [Peer(name) for name in BY_URL if not any(each.startswith(name) for each in given)]
    return [*_list_ours(has_optimized=has_optimized), *SERVERS, *LIBRARIES, *servers, *missing]


def _split_url(entry: str) -> tuple[str, str]:
    name, equals, url = entry.partition("=")
    if not equals or not url.startswith("http"):
        raise ValueError(f"{entry} is not NAME=URL, such as TEI=http://127.0.0.1:8080")
    return name, url


def _list_ours(*, has_optimized: bool) -> list[Peer]:
    plans = (
        (BASE, ("--engine", "onnx", "--precision", "fp32")),
        ("vecmill, onnx int8", ("--engine", "onnx", "--precision", "int8")),
        ("vecmill, openvino bf16", ("--engine", "openvino", "--precision", "bf16")),
        ("vecmill, torch fp32", ("--engine", "torch", "--precision", "fp32")),
    )
    ours = [_ours(name, options) for name, options in plans]
    if has_optimized:
        ours.append(_ours(OPTIMIZED, ("{optimized}",)))
    return ours


def _ours(name: str, options: Sequence[str]) -> Peer:
    start = ("{python}", "-m", "vecmill", "serve", "--port", "{port}", "--lame-duck-s", "0")
    # The peers wait as long as it takes, so no request is refused for its wait.
    patient = ("--target-wait-s", "60", "--timeout-s", "120")
    packages = ("vecmill", "onnxruntime", "openvino", "torch")
    engine = name.partition(", ")[2].split(" ")[0].replace("onnx", "onnxruntime")
    kept = tuple(package for package in packages if package in ("vecmill", engine))
    served = () if "{optimized}" in options else ("{source}",)
    return Peer(name, packages=kept, command=(*start, *patient, *served, *options))


def _infinity(engine: str, environment: str, *options: str) -> Peer:
    # It gives optimum the whole path of the graph, and optimum 2 expects its name.
    start = ("{bin}/infinity_emb", "v2", "--model-id", ".", "--served-model-name", "{name}")
    place = ("--engine", engine, "--device", "cpu", "--host", "127.0.0.1", "--port", "{port}")
    runtime = {"torch": "torch", "optimum": "onnxruntime"}[engine]
    packages = ("infinity-emb", runtime, "transformers")
    return Peer(
        f"infinity, {engine}", environment, packages, (*start, *place, *options), path="/", folder="{flat}"
    )


def _tutorial(name: str, environment: str, packages: tuple[str, ...], app: str) -> Peer:
    command = ("{python}", "-m", "uvicorn", f"{app}:app", "--app-dir", "{programs}", "--port", "{port}")
    quiet = ("--log-level", "warning")
    return Peer(name, environment, packages, (*command, *quiet), variables={"MODEL": "{model}"})


def _library(name: str, environment: str, packages: tuple[str, ...], model: str = "{model}") -> Peer:
    library = name.replace(", ", "-")
    command = ("{python}", "{programs}/in_process.py", library, model)
    return Peer(name, environment, packages, command, transport=Transport.IN_PROCESS)


SERVERS = (
    _infinity("torch", "infinity"),
    _infinity("optimum", "infinity-optimum", "--pooling-method", "mean"),
    _tutorial(
        "FastAPI and transformers",
        "transformers",
        ("fastapi", "transformers", "torch"),
        "fastapi_transformers",
    ),
    _tutorial("FastAPI and ONNX Runtime", "onnxruntime", ("fastapi", "onnxruntime"), "fastapi_onnxruntime"),
    Peer(
        "llama-cpp-python, f32",
        "llama-cpp",
        ("llama-cpp-python",),
        (
            *("{python}", "-m", "llama_cpp.server", "--model", "{gguf}", "--model_alias", "{name}"),
            *("--embedding", "true", "--n_ctx", "512", "--verbose", "false"),
            *("--n_threads", "{cores}", "--n_threads_batch", "{cores}"),
            *("--host", "127.0.0.1", "--port", "{port}"),
        ),
        ("{python}", "{programs}/write_gguf.py", "{model}", "{gguf}"),
    ),
)
LIBRARIES = (
    _library("sentence-transformers", "sentence-transformers", ("sentence-transformers", "torch")),
    _library(
        "sentence-transformers, onnx",
        "sentence-transformers-backends",
        ("sentence-transformers", "onnxruntime"),
    ),
    _library(
        "sentence-transformers, openvino",
        "sentence-transformers-backends",
        ("sentence-transformers", "openvino"),
    ),
    _library("fastembed", "fastembed", ("fastembed", "onnxruntime")),
    _library("embed-anything", "embed-anything", ("embed-anything",), "{hub_name}"),
)

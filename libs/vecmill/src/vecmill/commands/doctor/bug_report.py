"""What a bug report needs: versions, the machine, its limits, engines, caches, and what is wrong there.

Of environment variables it prints the names only, because values may be secrets.
"""

import os
import platform
import re
import resource
import shutil
import sys
import sysconfig
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from vecmill.commands.engines import list_engines
from vecmill.hardware.cores import Topology, available_cores
from vecmill.hardware.memory import available_mb, memory_limit_mb
from vecmill.hardware.processor import instruction_sets, processor_model, read_caches
from vecmill.values.environment import environment_variables

OWN_DISTRIBUTIONS = {
    "vecmill": "the library",
    "vecmill-server": "the server",
    "vecmill-minilm": "the model for when none is named",
    "vecmill-ray": "for Ray clusters",
}

# Variables that change how vecmill, the hub's client, the runtimes or the network behave.
VARIABLES = re.compile(
    r"(VECMILL|HF|HUGGINGFACE|OMP|MKL|ORT|CUDA|NVIDIA|HIP|NEURON|TORCH|PYTHON|SSL|MALLOC|LD)_?[A-Z0-9_]+"
    r"|(HTTPS?|ALL|NO)_PROXY|XDG_CACHE_HOME|TMPDIR|LISTEN_FDS|NOTIFY_SOCKET",
    re.IGNORECASE,
)

# The option that has CPython optimised by a profile, and the place of Pythons that are optimised without it.
OPTIMIZED = "--enable-optimizations"
SYSTEM_PREFIX = Path("/usr")

LEAST_FREE_MB = 1_000
LEAST_DESCRIPTORS = 4_096

Fact = tuple[str, str]


def write_bug_report(folder: Path) -> Iterator[str]:
    """Return the lines that `vecmill doctor` prints; `folder` is that of prepared models."""
    sections = {
        "versions": list(_versions()),
        "machine": list(_machine()),
        "limits": list(_limits()),
        "caches": list(_caches(folder)),
        "environment": [("set", ", ".join(list_variables(environment_variables())) or "nothing of note")],
    }
    for heading, facts in sections.items():
        yield heading
        width = max(len(label) for label, _ in facts)
        yield from (f"  {label:<{width}}  {value}" for label, value in facts)
    yield "engines"
    yield from (f"  {line}" for line in list_engines())
    yield "findings"
    yield from (f"  {finding}" for finding in list(_findings(folder)) or ["none"])


def list_variables(names: Collection[str]) -> list[str]:
    """Return which of the environment variables `names` matter here, sorted."""
    return sorted(name for name in names if VARIABLES.fullmatch(name))


def is_optimized_python() -> bool:
    """Return whether this Python was optimised by a profile when it was built, as far as can be known.

    The Pythons of distributions, in /usr, are, and do not name the option.
    """
    arguments = sysconfig.get_config_var("CONFIG_ARGS")
    return not arguments or OPTIMIZED in arguments or Path(sys.base_prefix) == SYSTEM_PREFIX


def _versions() -> Iterator[Fact]:
    build = "" if is_optimized_python() else f", built without {OPTIMIZED}"
    yield "python", f"{platform.python_version()} ({platform.python_implementation()}{build})"
    yield "system", platform.platform()
    for name, content in OWN_DISTRIBUTIONS.items():
        yield name, _version_of(name) or f"not installed ({content})"
    for name in sorted(_required() - set(OWN_DISTRIBUTIONS)):
        found = _version_of(name)
        if found is not None:
            yield name, found


def _required() -> set[str]:
    """Return the distributions that our distributions require, those of extras included."""
    found = set()
    for name in OWN_DISTRIBUTIONS:
        try:
            requirements = requires(name) or []
        except PackageNotFoundError:
            continue
        found |= {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in requirements}
    return found


def _version_of(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _machine() -> Iterator[Fact]:
    yield "processor", processor_model()
    yield "instruction sets", ", ".join(instruction_sets()) or "unknown"
    caches = ", ".join(f"{cache.name} {cache.kilobytes:,} KB" for cache in read_caches())
    yield "caches", caches or "unknown"
    topology = Topology.read()
    sizes = ", ".join(str(len(group)) for group in topology.groups)
    nodes = f"NUMA nodes: {topology.numa_nodes}; cores of one node and speed: {sizes}"
    yield "cores", f"{available_cores()} of {os.cpu_count()}; {nodes}"
    yield "memory", f"{_mb(available_mb())} available"


def _limits() -> Iterator[Fact]:
    yield "memory", _mb(memory_limit_mb(), without="no limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "file descriptors", f"{_count(soft)}, at most {_count(hard)}"
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    yield "threads and processes", _count(processes)


def _caches(folder: Path) -> Iterator[Fact]:
    yield "prepared models", _describe_folder(folder, "*/")
    from huggingface_hub.constants import HF_HUB_CACHE

    yield "downloaded models", _describe_folder(Path(HF_HUB_CACHE), "models--*/")


def _describe_folder(folder: Path, pattern: str) -> str:
    if not folder.is_dir():
        return f"{folder} does not exist yet"
    access = "" if os.access(folder, os.W_OK) else ", which this user cannot write"
    count = sum(1 for _ in folder.glob(pattern))
    return f"{count} in {folder}{access}; {_mb(_free_mb(folder))} free on its disk"


def _findings(folder: Path) -> Iterator[str]:
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if not os.access(place, os.W_OK):
        yield f"{place} cannot be written, so each start prepares its models again. Choose --cache-dir."
    elif _free_mb(place) < LEAST_FREE_MB:
        yield f"The disk of {place} has {_mb(_free_mb(place))} free. Free space, or choose --cache-dir."
    available = available_mb()
    if available is not None and available < LEAST_FREE_MB:
        yield f"Only {_mb(available)} of memory are available."
    if not is_optimized_python():
        yield (
            f"{sys.base_prefix} has a Python that was built without {OPTIMIZED}, as pyenv does by default. "
            "The server's own work takes 1.2 times as long. Build it with the option, or use the system's "
            "Python."
        )
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= descriptors < LEAST_DESCRIPTORS:
        yield (
            f"The limit of {descriptors} file descriptors is less than --max-connections of the server by "
            "default. Raise the limit (ulimit -n), or lower --max-connections."
        )


def _free_mb(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 1e6


def _mb(size_mb: float | None, without: str = "unknown") -> str:
    return without if size_mb is None else f"{size_mb:,.0f} MB"


def _count(limit: int) -> str:
    return "no limit" if limit == resource.RLIM_INFINITY else str(limit)

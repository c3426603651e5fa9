"""What all tests share: one live server, and how randomness is handled."""

import functools
import gc
import logging
import os
import ssl
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import certifi
import hypothesis
import pytest

from suite import durations
from support.alone import turn
from support.server import LiveServer, live_server
from vecmill.hardware.system_calls import is_linux
from vecmill.tokenization import shared
from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.shared import LoadedTokenizer

# A failure prints the line that repeats it; how long an example takes is not a promise that
# a shared machine can keep.
hypothesis.settings.register_profile("vecmill", deadline=None, print_blob=True)
hypothesis.settings.load_profile("vecmill")

# The threads that torch computes with wait for each other at full speed: tiny models keep two cores busy for
# ten times as long as they would keep one. Engines set the number of their threads themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A library of a few modules is not worth a look through everything that is loaded.
MANY_MODULES = 200

# That tests share at a time.
MOST_TOKENIZERS = 50

# What `configure_logging` changes.
LOGGERS = (None, "uvicorn")
LOG_FLAGS = ("logThreads", "logMultiprocessing")


class LoadedModules:
    """What is imported stays to the end, torch above all: nothing to look through for garbage."""

    def __init__(self) -> None:
        self._count = 0

    def pytest_collection(self) -> None:
        """Let thousands of tests be collected without a look through those that are there."""
        gc.disable()

    def pytest_collection_finish(self) -> None:
        """Set what the test modules import apart."""
        self._set_apart()
        gc.enable()

    def pytest_runtest_logfinish(self) -> None:
        """Set apart what a test was the first to import."""
        if len(sys.modules) - self._count > MANY_MODULES:
            self._set_apart()

    def _set_apart(self) -> None:
        self._count = len(sys.modules)
        gc.collect()
        gc.freeze()


def share_client_context() -> None:
    """Let all httpx clients that verify by certifi, or by the file of SSL_CERT_FILE, share one TLS context.

    Each would read all its certificates, which takes longer than most requests.
    """
    create = ssl.create_default_context
    known = functools.cache(lambda cafile: create(cafile=cafile))
    shared = {certifi.where(), os.environ.get("SSL_CERT_FILE")} - {None}

    def create_or_share(
        purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, *, cafile: str | None = None, **others: Any
    ) -> ssl.SSLContext:
        if purpose is ssl.Purpose.SERVER_AUTH and cafile in shared and not others:
            return known(cafile)
        return create(purpose, cafile=cafile, **others)

    ssl.create_default_context = create_or_share  # type: ignore[assignment]


def share_tokenizers() -> None:
    """Let all models whose tokenizers have equal files share one, as those of a server do.

    Building it takes longer than most tests, and nothing changes it later (`LoadedTokenizer`). What a test
    builds in another way is not shared.
    """
    build = LoadedTokenizer.build
    known: dict[str, LoadedTokenizer] = {}

    def build_or_share(files: TokenizerFiles) -> LoadedTokenizer:
        if vars(shared)["build_tokenizer"] is not build_tokenizer:
            return build(files)
        digest = files.digest()
        if digest not in known:
            if len(known) == MOST_TOKENIZERS:
                known.clear()
            known[digest] = build(files)
        return known[digest]

    pytest.MonkeyPatch().setattr(LoadedTokenizer, "build", build_or_share)


def pytest_configure(config: pytest.Config) -> None:
    share_client_context()
    share_tokenizers()
    if not is_linux():
        # Imported here, because other runs do not need it.
        from support.float_environment import let_another_thread_open_the_first_session

        let_another_thread_open_the_first_session()
    config.pluginmanager.register(LoadedModules())
    durations.register(config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test with the marker `alone` while no other worker runs a test."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with turn(Path(item.config.option.basetemp).parent, alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test with the marker `linux` on other systems."""
    if item.get_closest_marker("linux") is not None and not is_linux():
        pytest.skip("needs a call that only Linux has")


@pytest.fixture(scope="session")
def kept_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of prepared models that all tests of a run share, as compiling a model takes long."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "kept_models"


@pytest.fixture(scope="session")
def kept_programs(kept_models: Path) -> Iterator[Path]:
    """`kept_models`, where the engine torch-compile needs less than half of its time to compile.

    Headers are not precompiled for one program, the code that calls the kernels is not optimised, and the
    compiler is not asked whether it knows the instructions of the processor. The kernels are the same.
    """
    from vecmill.engines.torch import compiled

    options = {
        **compiled._OPTIONS,
        "aot_inductor.precompile_headers": False,
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "cpp.vec_isa_ok": True,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_OPTIONS", options)
        yield kept_models


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache and the log of the live server."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="session")
def server(server_folder: Path) -> Iterator[LiveServer]:
    """The embedded model, served by `vecmill serve` in a process of its own."""
    with live_server(server_folder, arguments=("--batch-dir", str(server_folder / "batches"))) as running:
        yield running


@pytest.fixture(autouse=True)
def restored_log() -> Iterator[None]:
    """Undo `configure_logging`, which commands call in the process of a test."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], [logging.getLogger(name).level for name in LOGGERS]
    flags = {flag: getattr(logging, flag) for flag in LOG_FLAGS}
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    for name, level in zip(LOGGERS, levels, strict=True):
        # Setting a level empties the caches of all loggers, of which the reference libraries make hundreds.
        if logging.getLogger(name).level != level:
            logging.getLogger(name).setLevel(level)
    for flag, value in flags.items():
        setattr(logging, flag, value)

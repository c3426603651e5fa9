"""Hostile model repositories and hostile model names: nothing of theirs runs, and no file of ours is read.

Each repository has code that writes a file when it runs. The file must not exist after the model was loaded
or refused, on any engine, in the reference implementation of `vecmill check`, and through a hub.
"""

import json
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from click.testing import CliRunner
from onnx import helper

from support.fake_hub import Repository, point_client_at, run_fake_hub
from support.http_server import QUIET, HttpServer, serve_in_thread
from support.pytorch_files import write_file
from support.small_exports import save_small_export, small_graph
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands.main import main
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, load_engine
from vecmill.errors import SetupError, UnsupportedModel
from vecmill.models import locate_model
from vecmill.models.heads import ChatTemplate
from vecmill.tokenization.chat_template import compile_chat
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch
from vecmill.values.engine_plan import EnginePlan
from vecmill.verification.reference import load_reference_implementation
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.model_choice import ModelChoice
from vecmill_server.service.service import create_service

MARK = "VECMILL_TEST_MARK"
CODE = f"""
import os
open(os.environ[{MARK!r}], "a").close()
from transformers import BertConfig, BertModel, BertTokenizerFast
# The library marks the classes of a repository, so they must not be its own.
class OwnConfig(BertConfig): pass
class OwnModel(BertModel): config_class = OwnConfig
class OwnTokenizer(BertTokenizerFast): pass
class Module:
    load = classmethod(lambda *_, **__: None)
"""
# A pickle that runs a program when it is read.
PROGRAM = f"cbuiltins\nexec\n(Vimport os; open(os.environ['{MARK}'], 'a').close()\ntR.".encode()
PICKLE = write_file("zip", PROGRAM)
# Names that a careless reader imports, opens or runs.
TRAPS: dict[str, str | bytes] = {
    "own.py": CODE,
    "__init__.py": CODE,
    "setup.py": CODE,
    "sitecustomize.py": CODE,
    "numpy.py": CODE,
    "handler.py": CODE,
    "pytorch_model.bin": PICKLE,
    "training_args.bin": PICKLE,
    "optimizer.pt": PICKLE,
    "1_Pooling/pytorch_model.bin": PICKLE,
    "own.so": b"\x7fELF",
}


@pytest.fixture(autouse=True)
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that tells that code of a repository has run."""
    path = tmp_path / "code_was_run"
    monkeypatch.setenv(MARK, str(path))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return path


def edit(directory: Path, name: str, **values: Any) -> None:
    path = directory / name
    document = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**document, **values}))


AUTO_MAP = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel", "AutoTokenizer": "own.OwnTokenizer"}


def nothing_else(directory: Path) -> None:
    """Traps beside a model that is whole."""


def own_architecture(directory: Path) -> None:
    edit(directory, "config.json", model_type="own", auto_map=AUTO_MAP)


def own_class_of_a_known_architecture(directory: Path) -> None:
    edit(directory, "config.json", auto_map=AUTO_MAP)


def own_class_of_a_rebuilt_architecture(directory: Path) -> None:
    edit(directory, "config.json", model_type="nomic_bert", auto_map=AUTO_MAP)


def own_class_in_another_repository(directory: Path) -> None:
    edit(directory, "config.json", auto_map={"AutoModel": "owner/code--own.OwnModel"})


def trust_in_the_settings(directory: Path) -> None:
    trust = {"trust_remote_code": True}
    arguments = {f"{kind}_kwargs": trust for kind in ("model", "processor", "config")}
    edit(directory, "sentence_bert_config.json", **arguments)
    edit(directory, "config.json", auto_map=AUTO_MAP, **trust)


def own_tokenizer(directory: Path) -> None:
    edit(directory, "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.OwnTokenizer", None]})


def own_tokenizer_class(directory: Path) -> None:
    edit(directory, "tokenizer_config.json", tokenizer_class="own.OwnTokenizer")


def own_module(directory: Path) -> None:
    change_module(directory, 1, "own.Module")


def own_module_in_place_of_the_encoder(directory: Path) -> None:
    change_module(directory, 0, "own.Module")


def own_module_of_a_renamed_class(directory: Path) -> None:
    change_module(directory, 2, "pylate.models.Dense.Dense")


def change_module(directory: Path, place: int, kind: str) -> None:
    modules = json.loads((directory / "modules.json").read_text())
    modules[place]["type"] = kind
    (directory / "modules.json").write_text(json.dumps(modules))


def own_activation(directory: Path) -> None:
    change_module(directory, 2, "sentence_transformers.models.Dense")
    settings = {"in_features": 32, "out_features": 32, "bias": True, "activation_function": "own.Module"}
    (directory / "2_Normalize").mkdir(exist_ok=True)
    edit(directory, "2_Normalize/config.json", **settings)


def own_similarity(directory: Path) -> None:
    edit(directory, "config_sentence_transformers.json", similarity_fn_name="own.Module")


def only_a_pickle(directory: Path) -> None:
    (directory / "model.safetensors").unlink()


def a_pickle_that_the_index_names(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    weights = {"embeddings.word_embeddings.weight": "pytorch_model.bin"}
    edit(directory, "model.safetensors.index.json", weight_map=weights)


def a_pickle_by_another_name(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(PICKLE)


Change = Callable[[Path], None]
HOSTILE: tuple[Change, ...] = (
    nothing_else,
    own_architecture,
    own_class_of_a_known_architecture,
    own_class_of_a_rebuilt_architecture,
    own_class_in_another_repository,
    trust_in_the_settings,
    own_tokenizer,
    own_tokenizer_class,
    own_module,
    own_module_in_place_of_the_encoder,
    own_module_of_a_renamed_class,
    own_activation,
    own_similarity,
    only_a_pickle,
    a_pickle_that_the_index_names,
    a_pickle_by_another_name,
)
# The compiler takes half a minute, and reads no more of a model than the other engines.
SLOW = ("torch-compile",)
QUICK = tuple(
    name for name, entry in ENGINES.items() if entry.is_installed and name not in (*SLOW, "fake", "neuron")
)


def save_hostile(directory: Path, change: Change) -> Path:
    save_tiny_bert(directory, TinyBert())
    for name, content in TRAPS.items():
        (directory / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    change(directory)
    return directory


def use(directory: Path, engine: str, cache_dir: Path) -> bool:
    """Load and run the model, as a server would; return whether this was possible."""
    try:
        description = describe_model(locate_model(directory))
        sequences = Tokenizer.load(description).encode(["a text"])
        loaded = load_engine(description, EnginePlan(engine), cores=1, cache_dir=cache_dir)
    except SetupError:
        return False
    loaded.run(Batch.of(sequences), width=1)
    loaded.close()
    return True


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_no_engine_runs_what_a_directory_brings(tmp_path: Path, mark: Path, change: Change) -> None:
    directory = save_hostile(tmp_path / "model", change)
    outcomes = {engine: use(directory, engine, tmp_path / "cache") for engine in QUICK}
    assert not mark.exists()
    assert any(outcomes.values()) == (change in (nothing_else, own_similarity, own_tokenizer_class)), outcomes


@pytest.mark.full
@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_the_compiled_engine_runs_nothing_of_it_either(tmp_path: Path, mark: Path, change: Change) -> None:
    use(save_hostile(tmp_path / "model", change), *SLOW, tmp_path / "cache")
    assert not mark.exists()


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_the_reference_implementation_runs_nothing_of_it(tmp_path: Path, mark: Path, change: Change) -> None:
    directory = save_hostile(tmp_path / "model", change)
    with suppress(Exception):  # each library raises exceptions of its own
        load_reference_implementation(describe_model(locate_model(directory)))
    assert not mark.exists()


@pytest.mark.parametrize(
    "change", [only_a_pickle, a_pickle_that_the_index_names], ids=lambda change: change.__name__
)
def test_pickles_are_refused_by_the_name_that_they_call(tmp_path: Path, mark: Path, change: Change) -> None:
    directory = save_hostile(tmp_path / "model", change)
    description = describe_model(locate_model(directory))
    loads = (
        lambda: load_engine(description, EnginePlan(), cores=1, cache_dir=tmp_path / "cache"),
        lambda: load_reference_implementation(description),
    )
    for load in loads:
        with pytest.raises(UnsupportedModel, match=r"pytorch_model\.bin names 'builtins\.exec'"):
            load()
    assert not mark.exists()


def test_the_reference_implementation_opens_no_weights_that_are_ignored(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(torch, "load", lambda *arguments, **_: opened.append(arguments))
    directory = save_hostile(tmp_path / "model", nothing_else)
    edit(directory, "sentence_bert_config.json", model_kwargs={"use_safetensors": False})
    load_reference_implementation(describe_model(locate_model(directory)))
    exported = save_small_export(tmp_path / "exported")
    (exported / "pytorch_model.bin").write_bytes(PICKLE)
    with pytest.raises(OSError, match="safetensors"):
        load_reference_implementation(describe_model(locate_model(exported)))
    assert opened == []
    assert not mark.exists()


def test_the_pickle_does_run_in_a_reader_that_trusts_it(tmp_path: Path, mark: Path) -> None:
    # Else the tests above would prove nothing.
    (tmp_path / "pytorch_model.bin").write_bytes(PICKLE)
    with suppress(TypeError):
        torch.load(tmp_path / "pytorch_model.bin", weights_only=False)
    assert mark.exists()


def test_the_code_does_run_once_it_is_trusted(tmp_path: Path, mark: Path) -> None:
    # Else the tests above would prove nothing.
    directory = save_hostile(tmp_path / "model", own_class_of_a_known_architecture)
    description = describe_model(locate_model(directory, trusts_code=True))
    assert not mark.exists()
    load_engine(description, EnginePlan("torch"), cores=1, cache_dir=tmp_path / "cache").close()
    assert mark.exists()


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_a_hub_is_trusted_no_more(
    tmp_path: Path, mark: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = save_hostile(tmp_path / "model", change)
    paths = [path for path in directory.rglob("*") if path.is_file()]
    files = {str(path.relative_to(directory)): path.read_bytes() for path in paths}
    cache = tmp_path / "hub"
    with run_fake_hub() as hub:
        hub.repositories["owner/model"] = Repository(files)
        point_client_at(hub, cache, monkeypatch)
        described = CliRunner().invoke(main, ["describe", "owner/model"])
        assert not {path.name for path in cache.glob("models--*/snapshots/*/**/*")} & {
            Path(n).name for n in TRAPS
        }
        pulled = CliRunner().invoke(main, ["pull", "owner/model"])
    for result in (described, pulled):
        assert (result.exit_code, result.exception is None) in ((0, True), (2, False)), result.output
    assert not mark.exists()
    stored = {path.name for path in cache.glob("models--*/snapshots/*/**/*")}
    weights = {"pytorch_model.bin"} if change is only_a_pickle else set()
    assert stored & {Path(name).name for name in TRAPS} == weights


def test_own_operators_of_a_graph_are_refused(tmp_path: Path) -> None:
    graph = small_graph()
    graph.graph.node.append(helper.make_node("Run", ["input_ids"], ["other"], domain="own", library="own.so"))
    graph.opset_import.append(helper.make_opsetid("own", 1))
    directory = save_small_export(tmp_path / "model", graph)
    (directory / "own.so").write_bytes(b"\x7fELF")
    with pytest.raises(UnsupportedModel, match=r"cannot load .*model\.onnx"):
        load_engine(
            describe_model(locate_model(directory)), EnginePlan(), cores=1, cache_dir=tmp_path / "cache"
        )


def test_a_graph_cannot_name_a_compiled_program(tmp_path: Path) -> None:
    graph = small_graph()
    node = helper.make_node(
        "EPContext", ["input_ids"], ["other"], domain="com.microsoft", embed_mode=0, ep_cache_context="own.so"
    )
    graph.graph.node.append(node)
    graph.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    directory = save_small_export(tmp_path / "model", graph)
    onnx.load(directory / "model.onnx")
    with pytest.raises(UnsupportedModel, match=r"cannot load .*model\.onnx"):
        load_engine(
            describe_model(locate_model(directory)), EnginePlan(), cores=1, cache_dir=tmp_path / "cache"
        )


ESCAPES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ lipsum.__globals__['os'].popen('true').read() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({}) }}",
    "{{ (messages|attr('__class__')).__base__ }}",
    "{{ ('%s'|format(1)).__class__.__base__ }}",
    "{{ ''.format_map.__self__.__class__ }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ range(10**9)|list }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
)


@pytest.mark.parametrize("source", ESCAPES)
def test_chat_templates_do_not_leave_their_sandbox(tmp_path: Path, source: str) -> None:
    shown = "{% for message in messages %}{{ message.content }}{% endfor %}"
    template = ChatTemplate(tmp_path / "chat_template.jinja", source + shown, False, (), ())
    try:
        text = compile_chat(template)("", "the query", "the document")
    except UnsupportedModel as error:
        text = error.message.partition(": ")[2]
    # Attributes that the sandbox hides are empty.
    assert text == "the querythe document" or text.startswith("the chat template fails for a query")


WASTEFUL = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ [0] * 10**9 }}",
    "{{ 10**(10**10) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ 'a'|center(10**9) }}",
    "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
)


@pytest.mark.promise("model-directories")
@pytest.mark.parametrize("source", WASTEFUL)
def test_chat_templates_take_neither_time_nor_memory(tmp_path: Path, source: str) -> None:
    shown = "{% for message in messages %}{{ message.content }}{% endfor %}"
    template = ChatTemplate(tmp_path / "chat_template.jinja", source + shown, False, (), ())
    start_s = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedModel, match="the chat template fails for a query"):
            compile_chat(template)
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()
    assert time.process_time() - start_s < 5


# ------------------------------------------------------------------ names of models

NAMES = (
    "..",
    "../owner/model",
    "owner/..",
    "owner/model/..",
    "owner/model@../x",
    "/no/such/model",
    "%2e%2e/model",
    "owner/%2e%2e",
    "%2Fetc%2Fpasswd",
    "owner/model\0",
    "\0",
    "owner\\model",
    "..\\..\\model",
    "~nobody_of_this_name/model",
    "owner/mo del",
    "owner/model?x=1",
    "owner/model#x",
    "https://example.org/owner/model",
    "file:///etc",
    "owner/modèl",
    "-x",
    "o" * 10_000,
    "o/" + "m" * 10_000,
    "/" * 10_000 + "x",
    "",
)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:20]))
def test_a_start_with_another_name_ends_with_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with run_fake_hub() as hub:
        point_client_at(hub, Path("/nonexistent"), monkeypatch)
        with pytest.raises(SetupError) as caught:
            create_service((ModelChoice(name),), ServerSettings(), MillConfig())
        result = CliRunner().invoke(main, ["describe", "--", name])
    assert len(caught.value.message) < 1_000
    assert hub.asked == []
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)


@dataclass(slots=True)
class Accesses:
    """The paths that this process opened or looked at while `watching`."""

    paths: list[str]
    watching: bool = False

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event in ("open", "os.listdir", "os.scandir"):
            self.paths.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else "")

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, whose first argument is noted."""

        def noting(path: Any, *others: Any, **named: Any) -> Any:
            self.note("open", (path,))
            return call(path, *others, **named)

        return noting


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    # The history of the metrics that the console shows reads /proc, whatever a request says.
    with serve_in_thread(replace(QUIET, console=False)) as server:
        yield server


def test_names_in_requests_reach_no_file_system(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    accesses = Accesses([])
    sys.addaudithook(accesses.note)  # it stays, and notes nothing more
    for call in ("stat", "lstat"):
        monkeypatch.setattr(os, call, accesses.watched(getattr(os, call)))
    names = [name for name in NAMES if name] + ["/etc/passwd", "../../../../etc/passwd", "/usr"]
    accesses.watching = True
    try:
        for name in names:
            for path, body in (
                ("/v1/embeddings", {"input": "a text"}),
                ("/v1/rerank", {"query": "a", "documents": ["b"]}),
            ):
                answer = server.client.post(path, json={**body, "model": name})
                assert answer.status_code == 404, (name[:50], path)
                assert len(answer.text) < 1_000
            encoded = "".join(f"%{byte:02x}" for byte in name.rstrip("\0")[-1_000:].encode()) or "%00"
            deployment = f"/openai/deployments/{encoded}/embeddings"
            assert server.client.post(deployment, json={"input": "a text"}).status_code == 404
            assert server.client.get(f"/v1/models/{encoded}").status_code == 404
    finally:
        accesses.watching = False
    asked = {part for name in names for part in name.strip("./\0").split("/") if part}
    assert not [path for path in accesses.paths if any(part in path for part in asked)]

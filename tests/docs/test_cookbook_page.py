"""The recipes of docs/cookbook.md run, with tiny models under the names that the page has."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from docs.test_examples import FILES, WRITTEN_URL
from support.bge_m3 import save_bge_m3
from support.server import LiveServer
from support.source_tree import ROOT
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import Rerank, SyncMill
from vecmill.commands.main import main

PAGE = ROOT / "docs/cookbook.md"
TEXT = PAGE.read_text("utf-8")
PROMPTS = {"query": "a question: ", "document": "a text: "}
WIDE = {"hidden_size": 384, "num_hidden_layers": 1}


def save_bert(folder: Path, *, seed: int, prompts: Mapping[str, str] | None = None) -> Path:
    return save_tiny_bert(folder, TinyBert(seed=seed, prompts=prompts or {}, config=WIDE))


MODELS: Mapping[str, Callable[[Path], Path]] = {
    "BAAI/bge-m3": partial(save_bge_m3, seed=3),
    "google/embeddinggemma-300m": partial(save_bert, seed=1, prompts=PROMPTS),
    "intfloat/multilingual-e5-small": partial(save_bert, seed=2),
    "BAAI/bge-small-en-v1.5": partial(save_bert, seed=3),
    "sentence-transformers/all-MiniLM-L6-v2": partial(save_bert, seed=4),
}
# What a recipe names without a language is not run, because it downloads, measures or serves.
BLOCKS = re.findall(r"^ *```(\w*)\n(.*?)^ *```", TEXT, flags=re.MULTILINE | re.DOTALL)
PROGRAMS = [
    re.sub(r"^  ", "", text, flags=re.M) if text[0] == " " else text
    for kind, text in BLOCKS
    if kind == "python"
]


def commands(*languages: str) -> Iterator[list[str]]:
    """Yield the words of each command of vecmill, after its variables."""
    for language, text in BLOCKS:
        if language in languages:
            for line in text.splitlines():
                yield shlex.split(line.partition("vecmill ")[2])


RUN = list(commands("sh"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, save in MODELS.items():
        save(folder / name)
    return folder


@pytest.fixture(autouse=True)
def home(models: Path, tmp_path: Path, user_caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the page names, and with the models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(user_caches))
    for name, text in FILES.items():
        Path(name).write_text(text, "utf-8")
    for name in MODELS:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).symlink_to(models / name)


def run_program(word: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that the only program with a word prints."""
    [program] = [each for each in PROGRAMS if word in each]
    exec(compile(program, str(PAGE), "exec"), {})
    return capsys.readouterr().out.splitlines()


def test_a_hybrid_search_prints_the_scores_of_all_three_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split(" ", 1) for line in run_program("EmbedOutputs", capsys)]
    with SyncMill("BAAI/bge-m3") as mill:
        question = "Which animals sleep a lot?"
        scores = mill.run(Rerank((question,), tuple(text for _, text in lines))).scores
    assert len(lines) == 2
    assert [float(score) for score, _ in lines] == pytest.approx(scores.tolist(), abs=1e-3)
    assert sorted(scores, reverse=True) == scores.tolist()


def test_passages_are_ordered_by_the_prompts_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_program("embeddinggemma", capsys)
    with SyncMill("google/embeddinggemma-300m") as mill:
        assert dict(mill.prompts) == PROMPTS
        (query,) = mill.embed("Which animals sleep a lot?", prompt_name="query")
        similarities = mill.embed(lines, prompt_name="document") @ query
    assert len(lines) == 3
    assert sorted(similarities, reverse=True) == similarities.tolist()


def test_a_prompt_of_ones_own_is_applied(capsys: pytest.CaptureFixture[str]) -> None:
    [printed] = run_program("TextOptions", capsys)
    with SyncMill("intfloat/multilingual-e5-small") as mill:
        rows = mill.embed(["query: Which animals sleep a lot?", "passage: Katzen schlafen viel."])
    assert float(printed.strip("[]")) == pytest.approx(float(rows[0] @ rows[1]), abs=1e-5)


def test_bits_are_ordered_again_by_the_query(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_program("bitwise_count", capsys)
    with SyncMill("BAAI/bge-small-en-v1.5") as mill:
        (query,) = mill.embed("Which animals sleep a lot?", purpose="query")
        similarities = ((mill.embed(lines) > 0) * 2.0 - 1) @ query
    assert len(set(lines)) == 3
    assert sorted(similarities, reverse=True) == similarities.tolist()


def test_every_command_of_a_shell_runs(server: LiveServer, subtests: pytest.Subtests) -> None:
    assert {words[0] for words in RUN} == {"evaluate", "embed", "compare", "space"}
    for words in RUN:
        with subtests.test(msg=shlex.join(words)):
            asked = [word.replace(WRITTEN_URL, server.url) for word in words]
            done = CliRunner().invoke(main, asked, prog_name="vecmill", catch_exceptions=False)
            assert done.exit_code == 0, done.output


def test_an_import_that_is_complete_embeds_nothing(server: LiveServer) -> None:
    [words] = [words for words in RUN if "--server" in words]
    asked = [word.replace(WRITTEN_URL, server.url) for word in words]
    for said in (f"{len(FILES['corpus.jsonl'].splitlines())} texts embedded", "0 texts embedded"):
        done = CliRunner().invoke(main, asked, prog_name="vecmill", catch_exceptions=False)
        assert said in done.output


def test_every_vector_of_the_table_has_the_bytes(models: Path) -> None:
    rows = re.findall(r"^\| `(\w+)`.* \| ([\d,]+) \| ", TEXT, flags=re.MULTILINE)
    config = json.loads((models / "BAAI/bge-small-en-v1.5/config.json").read_text("utf-8"))
    bits = {"float": 32, "uint8": 8, "int8": 8, "ubinary": 1}
    assert {kind: int(said.replace(",", "")) for kind, said in rows} == {
        kind: config["hidden_size"] * size // 8 for kind, size in bits.items()
    }


def options_of(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def test_every_option_exists() -> None:
    context, known = click.Context(main), set[str]()
    asked = list(commands("sh", ""))
    assert len(asked) > len(RUN)
    for first, second, *rest in asked:
        command = main.get_command(context, first)
        if isinstance(command, click.Group):
            command = command.get_command(context, second)
        assert command is not None, first
        own = options_of(command)
        assert {word for word in (second, *rest) if word.startswith("-")} <= own, first
        known |= own
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT))
    assert named - known == set()

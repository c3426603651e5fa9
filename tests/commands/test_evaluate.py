"""`vecmill evaluate` and `vecmill compare` as a person runs them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.drawn_labels import write_labels
from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands import main as cli


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [*map(str, arguments)], prog_name="vecmill", catch_exceptions=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """The options that name labelled texts."""
    names = ("--queries", "--qrels", "--corpus")
    found = write_labels(tmp_path_factory.mktemp("labels"))
    return [word for pair in zip(names, found, strict=True) for word in pair]


def test_a_report_in_every_form(model: Path, files: list[object], tmp_path: Path) -> None:
    outputs = [tmp_path / f"report{suffix}" for suffix in (".md", ".json", ".html")]
    written = [word for output in outputs for word in ("-o", output)]
    done = run("evaluate", model, *files, "--dtype", "float", "--dtype", "int8", *written)
    assert done.exit_code == 0, done.output
    assert done.stdout == outputs[0].read_text("utf-8")
    assert "documents: 60" in done.stderr
    document = json.loads(outputs[1].read_text("utf-8"))
    assert [row["dtype"] for row in document["rows"]] == ["float", "int8"]
    assert "<svg" in outputs[2].read_text("utf-8")
    again = run("evaluate", model, *files, "--json")
    assert json.loads(again.stdout)["rows"][0]["ndcg_by_query"] == document["rows"][0]["ndcg_by_query"]


def test_pairs(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{text[:12]}\t{text}\n" for text in short_texts(4, 9)), "utf-8")
    done = run("evaluate", model, "--pairs", file)
    assert "9 queries, 9 documents." in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "report.pdf"), "the file name extension must be one of .md, .json, .html"),
        (("-o", "no-such-folder/report.md"), "There is no folder"),
        (("--plan", "onnx:int3"), "after the engine and a colon must come one of"),
        (("--document-vectors", "none.parquet"), "There is no file none.parquet"),
        (("--pairs", "pairs.tsv"), "Name queries, qrels and corpus, or only a file of pairs."),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(
    model: Path, files: list[object], arguments: tuple[str, ...], message: str
) -> None:
    done = run("evaluate", model, *files, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_comparison(model: Path, files: list[object], tmp_path: Path) -> None:
    other = save_tiny_bert(tmp_path / "other", TinyBert(seed=7))
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(short_texts(5, 30)), "utf-8")
    done = run("compare", model, other, "--texts", texts, "--neighbours-at", 3, *files)
    assert done.exit_code == 0, done.output
    assert "the same of the 3 nearest" in done.stdout
    assert "# Retrieval quality" in done.stdout
    found = json.loads(run("compare", model, other, "--texts", texts, "--json").stdout)
    assert (found["texts"], found["quality"]) == (30, None)
    assert found["first"]["space"] != found["second"]["space"]
    part = run("compare", model, other, "--texts", texts, *files[:2])
    assert "Name --queries, --qrels and --corpus, or only --pairs." in part.stderr

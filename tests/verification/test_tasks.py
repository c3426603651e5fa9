"""Models of every task are compared with their own library's outputs, and wrong outputs are told."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.scales import in_part
from support.task_models import save_causal, save_colbert, save_splade, save_task_model
from support.texts import short_texts
from vecmill.commands.check.model_comparison import compare_model
from vecmill.commands.main import main
from vecmill.config import MillConfig
from vecmill.verification import reference
from vecmill.verification.comparison import VerificationReport

LABELS = ["O", "B-PER", "I-PER", "B-LOC"]
EXPANSION = {"strategy": "fixed", "attend": False, "length": 16}
# The ten best of a query's documents are compared where it has more than twenty.
TEXTS = short_texts(seed=8, count=25)


def save_reranker(folder: Path) -> None:
    save_task_model(folder, "BertForSequenceClassification", num_labels=1)


def save_classifier(folder: Path) -> None:
    save_task_model(folder, "BertForSequenceClassification", num_labels=3)


def save_tagger(folder: Path) -> None:
    labels = dict(enumerate(LABELS))
    numbers = {label: number for number, label in labels.items()}
    save_task_model(folder, "BertForTokenClassification", seed=1, id2label=labels, label2id=numbers)


def save_cross_encoder_of_labels(folder: Path) -> None:
    """Saved by CrossEncoder, with a prompt and an activation of its own."""
    import torch
    from sentence_transformers import CrossEncoder

    plain = save_task_model(folder.with_name("plain"), "BertForSequenceClassification", num_labels=3)
    prompts: dict[str, Any] = {"prompts": {"ask": "in which of the "}, "default_prompt_name": "ask"}
    CrossEncoder(str(plain), device="cpu", activation_fn=torch.nn.Sigmoid(), **prompts).save_pretrained(
        str(folder)
    )


def save_sparse(folder: Path) -> None:
    save_splade(folder, save_task_model(folder.with_name("masked"), "BertForMaskedLM"))


def save_multi_vector(folder: Path) -> None:
    save_colbert(folder, save_task_model(folder.with_name("encoder"), "BertModel"), EXPANSION)


# What saves a model, what it is for where that must be said, whose outputs count, and what is reported.
CASES: dict[str, tuple[Callable[[Path], Any], str | None, str, str]] = {
    "reranker": (save_reranker, None, "sentence-transformers", "same decisions      1.0"),
    "reranker in prose": (save_causal, "rerank", "transformers", "same decisions      1.0"),
    "classifier": (save_classifier, None, "transformers", "same decisions      1.0"),
    "cross-encoder of labels": (
        save_cross_encoder_of_labels,
        None,
        "sentence-transformers",
        "same decisions      1.0",
    ),
    "tokens": (save_tagger, None, "transformers", "same decisions      1.0"),
    "sparse": (save_sparse, None, "sentence-transformers", "recall@10           1.0"),
    "multi-vector": (save_multi_vector, None, "sentence-transformers", "recall@10           1.0"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the directory of a case, which is saved once."""

    @cache
    def save(name: str) -> Path:
        folder = tmp_path_factory.mktemp("saved") / "model"
        CASES[name][0](folder)
        return folder

    return save


@pytest.mark.parametrize("name", CASES)
def test_every_task_is_compared_with_its_own_library(
    name: str, saved: Callable[[str], Path], kept_models: Path, tmp_path: Path
) -> None:
    model, (_, task, library, kept) = str(saved(name)), CASES[name]
    (tmp_path / "texts").write_text("\n".join(TEXTS), encoding="utf-8")
    options = ["--texts", str(tmp_path / "texts"), "--cache-dir", str(kept_models)]
    options += [] if task is None else ["--task", task]
    right = CliRunner().invoke(main, ["check", model, *options])
    assert right.exit_code == 0, right.output
    assert f"engine onnx, fp32, against {library} " in right.output
    assert kept in right.output
    wrong = CliRunner().invoke(main, ["check", model, "--engine", "fake", *options])
    assert wrong.exit_code == 1, wrong.output
    assert kept not in wrong.output


@pytest.mark.parametrize("name", in_part(CASES, "reranker in prose", "tokens", "sparse"))
def test_without_the_library_our_own_engine_is_the_reference(
    name: str, saved: Callable[[str], Path], kept_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "find_spec", lambda name: None)

    def compare(engine: str) -> VerificationReport:
        config = MillConfig(engine=engine, cache_dir=kept_models)
        found = compare_model(str(saved(name)), config, task=CASES[name][1], texts=TEXTS)
        (report,) = found.reports
        return report

    right = compare("onnx")
    assert right.reference.startswith("vecmill's own fp32 ONNX engine")
    assert right.is_within(1e-5)
    assert not compare("fake").is_within(1e-2)


def test_a_task_that_there_is_not_is_refused(tmp_path: Path) -> None:
    save_reranker(tmp_path / "model")
    result = CliRunner().invoke(main, ["check", str(tmp_path / "model"), "--task", "translate"])
    assert (result.exit_code, "must be one of embed, rerank" in result.output) == (2, True)

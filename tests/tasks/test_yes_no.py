"""A causal model that says yes or no scores as the program on Qwen3-Reranker's model card does."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.published import edit_json
from support.references import Reference
from support.task_models import LONGEST_PROSE, PlainTokenizer, read_logits, save_causal
from tasks.conftest import PAIRS, Open
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel, UnsupportedTask
from vecmill.models import Task, fingerprint_model, locate_model
from vecmill.models.heads import Activation, Head, HeadKind
from vecmill.serving_plan.identity import identify_space
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def judge(
    tmp_path_factory: pytest.TempPathFactory, open_mill: Open
) -> tuple[Reference, PlainTokenizer, SyncMill]:
    folder = tmp_path_factory.mktemp("models") / "judge"
    model, tokenizer = save_causal(folder)
    return model, tokenizer, open_mill(describe_model(locate_model(folder), Task.RERANK))


def card_logits(
    model: Reference, tokenizer: PlainTokenizer, query: str, document: str, instruction: str
) -> FloatArray:
    """The model card's program up to the logits of "no" and "yes", for one pair: (2,)."""
    prefix = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
        'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    )
    suffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    before, after = tokenizer.encode(prefix), tokenizer.encode(suffix)
    body = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    room = LONGEST_PROSE - len(before) - len(after)
    ids = before + tokenizer.encode(body)[:room] + after
    return read_logits(model, ids, [tokenizer.convert_tokens_to_ids(word) for word in ("no", "yes")])


def share_of_yes(logits: FloatArray) -> FloatArray:
    powers = np.exp(logits)
    shares: FloatArray = powers[..., 1] / powers.sum(axis=-1)
    return shares


def test_scores_are_the_share_of_yes(judge: tuple[Reference, PlainTokenizer, SyncMill]) -> None:
    model, tokenizer, mill = judge
    instruction = "Given a web search query, retrieve relevant passages that answer the query"
    pairs = [*PAIRS, ("{document}", "{query} {instruction}")]
    logits = np.stack([card_logits(model, tokenizer, *pair, instruction) for pair in pairs])
    expected = share_of_yes(logits)
    found = [mill.rerank(query, [document]).scores[0] for query, document in pairs]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.05
    assert any(len(tokenizer.encode(query + document)) > LONGEST_PROSE for query, document in pairs)
    np.testing.assert_allclose(
        [mill.rerank(query, [document], raw_scores=True).scores[0] for query, document in pairs],
        logits[:, 1] - logits[:, 0],
        atol=TOLERANCE,
    )


def test_an_instruction_takes_the_place_of_the_usual_one(
    judge: tuple[Reference, PlainTokenizer, SyncMill],
) -> None:
    model, tokenizer, mill = judge
    for instruction in ("is it about the same thing", "{query} and {document}"):
        for query, document in PAIRS[:6]:
            expected = share_of_yes(card_logits(model, tokenizer, query, document, instruction))
            found = mill.rerank(query, [document], instruction=instruction).scores
            np.testing.assert_allclose(found, [expected], atol=TOLERANCE)


def test_prompts_of_the_directory_are_instructions(tmp_path: Path, open_mill: Open) -> None:
    model, tokenizer = save_causal(tmp_path / "judge")
    prompts = {"own": "is it about the same thing"}
    settings = json.dumps({"prompts": prompts, "default_prompt_name": "own"})
    (tmp_path / "judge/config_sentence_transformers.json").write_text(settings)
    mill = open_mill(describe_model(locate_model(tmp_path / "judge"), Task.RERANK))
    for query, document in PAIRS[:6]:
        expected = share_of_yes(card_logits(model, tokenizer, query, document, prompts["own"]))
        found = mill.rerank(query, [document]).scores
        np.testing.assert_allclose(found, [expected], atol=TOLERANCE)


@pytest.mark.parametrize("size", ["0.6B", "4B", "8B"])
@pytest.mark.parametrize("place", ["directory", "hub", "original"])
def test_a_published_name_needs_no_task(place: str, size: str, tmp_path: Path) -> None:
    name = f"Qwen3-Reranker-{size}"
    folder = tmp_path / (name if place == "directory" else "folder")
    save_causal(folder)
    edit_json(folder / "tokenizer_config.json", chat_template="{{ messages }}")
    if place == "original":
        edit_json(folder / "config.json", _name_or_path=f"Qwen/{name}")
    location = locate_model(folder)
    if place == "hub":
        location = replace(location, name=f"Qwen/{name}@main")
    asked = describe_model(location, Task.RERANK)
    assert describe_model(location) == asked
    assert asked.head is not None
    assert len(asked.head.token_ids) == 2


def test_a_head_for_labels_of_a_model_tuned_from_one_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-Reranker-0.6B"
    save_causal(folder)
    edit_json(
        folder / "config.json", architectures=["Qwen3ForSequenceClassification"], id2label={"0": "LABEL_0"}
    )
    description = describe_model(locate_model(folder))
    assert (description.task, description.pair_template) == (Task.RERANK, None)
    assert description.head == Head(HeadKind.SEQUENCE, ("LABEL_0",), Activation.SIGMOID)


def test_a_language_model_of_unknown_name_says_what_is_assumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_causal(tmp_path / "judge")
    save_causal(tmp_path / "llama", "Llama")
    unknown, other = (describe_model(locate_model(tmp_path / name)) for name in ("judge", "llama"))
    assert unknown.task is Task.EMBED
    for description, hint in ((unknown, "--task rerank"), (other, "modules.json")):
        (assumption,) = description.assumptions
        assert "similarities of embeddings" in assumption
        assert hint in assumption
    with caplog.at_level("WARNING", "vecmill"), SyncMill(unknown, MillConfig(cache_dir=tmp_path / "c")):
        assert caplog.messages.count(unknown.assumptions[0]) == 1
    for task in (Task.EMBED, Task.RERANK):
        assert describe_model(locate_model(tmp_path / "judge"), task).assumptions == ()
    plain = describe_model(locate_model(tmp_path / "judge"), Task.EMBED)
    assert identify_space(plain) == identify_space(unknown)
    assert fingerprint_model(plain) == fingerprint_model(unknown)


def test_it_does_not_classify(judge: tuple[Reference, PlainTokenizer, SyncMill]) -> None:
    with pytest.raises(UnsupportedTask, match="ranks documents; it cannot classify"):
        judge[2].classify([("a", "b")])


def test_a_template_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    save_causal(tmp_path / "judge")
    description = describe_model(locate_model(tmp_path / "judge"), Task.RERANK)
    tokenizer = Tokenizer.load(description)
    with pytest.raises(UnsupportedModel, match="reads 50 tokens"):
        PairTokenizer(tokenizer, replace(description, max_tokens=50))

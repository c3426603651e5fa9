"""jinaai/jina-reranker-v2-base-multilingual in the layout of its repository.

Its code computes XLM-RoBERTa, so transformers' class is the reference. Its `compute_score` is the sigmoid of
the logit of each pair.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from support.families import quiet_library
from support.flash_tensors import name_as_flash
from support.published import Published, edit_json, respell, save_published
from support.references import answer, digest_directory
from support.texts import hard_texts, mixed_texts
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.models import Task, locate_model
from vecmill.values.aliases import FloatArray
from vecmill.verification.reference import load_reference

SEED = 5
LONGEST = 64
TOLERANCE = 1e-4
QUERY, *DOCUMENTS = [*mixed_texts(SEED, 8), *hard_texts()[::4], "a long text " * 30]
CODE = {
    "AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig",
    "AutoModel": "modeling_xlm_roberta.XLMRobertaModel",
    "AutoModelForSequenceClassification": "modeling_xlm_roberta.XLMRobertaForSequenceClassification",
}
MODEL = Published(
    "XLMRobertaForSequenceClassification",
    "XLMRobertaTokenizer",
    None,
    {
        "max_position_embeddings": LONGEST + 2,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "layer_norm_eps": 1e-5,
        "num_labels": 1,
    },
    sentence=None,
    tokenizer_config={"model_max_length": LONGEST},
    spelling={
        "auto_map": CODE,
        "emb_pooler": None,
        "num_labels": 1,
        "position_embedding_type": "absolute",
        "use_flash_attn": True,
    },
    instead=("model_type",),
    rename=name_as_flash,
)


def compute_scores(folder: Path) -> FloatArray:
    """The sigmoid of the logit of each pair, each alone, as `compute_score` of the published code."""
    found: FloatArray = answer(["pairs", digest_directory(folder)], lambda: compute_with_class(folder))
    return found


def compute_with_class(folder: Path) -> FloatArray:
    with quiet_library():
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).float().eval()
        scores = []
        for document in DOCUMENTS:
            inputs = tokenizer([[QUERY, document]], padding=True, truncation=True, return_tensors="pt")
            assert inputs["input_ids"].shape[1] <= LONGEST
            with torch.no_grad():
                scores.append(float(torch.sigmoid(model(**inputs).logits.float()).item()))
    return np.array(scores, np.float32)


def save_reranker(folder: Path) -> FloatArray:
    """The model as it was published, beside code that must not run; the scores of the reference."""
    save_published(folder, MODEL, seed=SEED)
    expected = compute_scores(folder)
    respell(folder, MODEL)
    for name in ("configuration_xlm_roberta.py", "modeling_xlm_roberta.py"):
        (folder / name).write_text("raise SystemExit('code of a model ran')\n", encoding="utf-8")
    return expected


def test_scores_are_the_sigmoid_of_the_logits_of_the_reference(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    expected = save_reranker(folder)
    assert "model_type" not in json.loads((folder / "config.json").read_text())
    description = describe_model(locate_model(folder))
    assert (description.task, description.max_tokens) == (Task.RERANK, LONGEST)
    assert not description.runs_code
    with SyncMill(folder, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
        found = mill.rerank(QUERY, DOCUMENTS).scores
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.1


def test_it_is_not_compared_with_the_other_class_of_its_model_type(tmp_path: Path) -> None:
    """transformers would load plain XLM-RoBERTa, with random numbers for the tensors that it misses."""
    folder = tmp_path / "model"
    save_reranker(folder)
    edit_json(folder / "config.json", model_type="xlm-roberta")
    reference = load_reference(describe_model(locate_model(folder)), tmp_path / "prepared")
    assert reference.name.startswith("vecmill's own fp32 ONNX engine")


def test_the_same_weights_under_the_settings_of_plain_xlm_roberta_are_refused(tmp_path: Path) -> None:
    """They would be incomplete: the names of the tensors differ."""
    folder = tmp_path / "model"
    save_reranker(folder)
    auto_map = {**CODE, "AutoConfig": "configuration_xlm_roberta.AnotherConfig"}
    edit_json(folder / "config.json", model_type="xlm-roberta", auto_map=auto_map)
    with pytest.raises(UnsupportedModel, match=r"auto_map names .*not run by default"):
        describe_model(locate_model(folder))

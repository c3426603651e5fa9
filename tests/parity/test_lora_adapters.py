"""LoRA adapters in directories of their own, over bases in every layout, on every engine.

The reference is transformers' class with the low-rank path beside its layers (`support.lora_adapters`), each
text alone, and the pooling of the base. It was not compared with peft, which is not installed.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import quiet_library
from support.lora_adapters import Lora, apply_adapter, change_tensors, list_tensors, write_adapter
from support.published import (
    LONGEST,
    NORMALIZE,
    Published,
    edit_json,
    pooling,
    save_published,
)
from support.references import answer, digest_directory
from support.scales import in_part
from support.texts import hard_texts, mixed_texts
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.models import Task, fingerprint_model, locate_model
from vecmill.requests import Classify, Embed, Rerank, TextOptions
from vecmill.values.aliases import FloatArray
from vecmill.verification.reference import load_reference

TOLERANCE = 1e-4
SEED = 4
ENGINES = ("onnx", "openvino", "torch")
TEXTS = [*mixed_texts(SEED, 6), *hard_texts()[::5]]
QUERY, *DOCUMENTS = TEXTS
DECODER = {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A base, and an adapter that was trained on the class `class_name` of transformers.

    `labels` is the number of logits; 0 for an embedder.
    """

    base: Published
    class_name: str
    lora: Lora
    labels: int = 0


BERT = Published(
    "BertModel", "BertTokenizer", (pooling("mean"), NORMALIZE), prompts={"query": "query: ", "document": ""}
)
RERANKER = Published(
    "XLMRobertaForSequenceClassification",
    "XLMRobertaTokenizer",
    None,
    {"max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1, "num_labels": 1},
    sentence=None,
    tokenizer_config={"model_max_length": LONGEST},
)
QWEN = Published(
    "Qwen3ForCausalLM",
    "Qwen2Tokenizer",
    (pooling("lasttoken"), NORMALIZE),
    {**DECODER, "tie_word_embeddings": True},
    tokenizer_config={"add_bos_token": False, "model_max_length": LONGEST},
    sentence=None,
    frame="$A <|endoftext|>",
)
HEADLESS = replace(RERANKER, class_name="XLMRobertaModel", settings={**RERANKER.settings, "num_labels": None})
LANGUAGE_MODEL = replace(
    QWEN, modules=None, tokenizer_config={"add_bos_token": False, "model_max_length": LONGEST}
)
NOMIC = replace(BERT, class_name="NomicBertModel")
BERT_LORA = Lora(
    ("query", "value", "dense"),
    ranks={"layer.1.attention.self.query": 5, "intermediate.dense": 2},
    alphas={"attention.output.dense": 4, "layer.0.attention.self.value": 9},
)
CASES = {
    "bert": Case(BERT, "BertModel", BERT_LORA),
    "rank_stabilized": Case(BERT, "BertModel", replace(BERT_LORA, is_rank_stabilized=True, seed=1)),
    # peft ignores the key for layers of the class Linear.
    "fan_in_fan_out": Case(BERT, "BertModel", Lora(("key",), config={"fan_in_fan_out": True})),
    "embeddings": Case(BERT, "BertModel", Lora(("word_embeddings", "query"), alpha=2, seed=2)),
    "decoder": Case(QWEN, "Qwen3Model", Lora(("q_proj", "v_proj", "down_proj"), alpha=3)),
    # transformers renames the modules of these two, and splits their matrices.
    "nomic_bert": Case(NOMIC, "NomicBertModel", Lora(("q_proj", "v_proj", "gate_proj", "down_proj"))),
    "gte": Case(
        replace(BERT, class_name="GteModel"), "GteModel", Lora(("k_proj", "o_proj", "up_proj"), alpha=9)
    ),
    "reranker": Case(
        RERANKER,
        "XLMRobertaForSequenceClassification",
        Lora(("query", "value"), saved=("classifier",), config={"task_type": "SEQ_CLS"}),
        labels=1,
    ),
    # The base has no head, so that the adapter alone says how many labels there are.
    "head": Case(
        HEADLESS,
        "XLMRobertaForSequenceClassification",
        Lora(("query",), saved=("classifier",), config={"task_type": "SEQ_CLS"}),
        labels=1,
    ),
    "labels": Case(
        HEADLESS,
        "XLMRobertaForSequenceClassification",
        Lora(("query",), saved=("classifier",), config={"task_type": "SEQ_CLS"}),
        labels=3,
    ),
    "noted_class": Case(
        RERANKER,
        "XLMRobertaForSequenceClassification",
        Lora(
            ("query",),
            saved=("classifier",),
            config={
                "task_type": None,
                "auto_mapping": {"base_model_class": "XLMRobertaForSequenceClassification"},
            },
        ),
        labels=3,
    ),
    "score": Case(
        LANGUAGE_MODEL,
        "Qwen3ForSequenceClassification",
        Lora(("q_proj", "v_proj"), saved=("score",), config={"task_type": "SEQ_CLS"}),
        labels=1,
    ),
}
EMBEDDERS = [name for name, case in CASES.items() if not case.labels]
# On the engine that is the default; the others read the same tensors.
ON_ALL_ENGINES = ("bert", "decoder", "reranker", "score")
SERVED = [(engine, name) for engine in ENGINES for name in (CASES if engine == "onnx" else ON_ALL_ENGINES)]
ON_ANOTHER = [("openvino", "bert"), ("torch", "score")]


@dataclass(frozen=True, slots=True)
class Saved:
    """An adapter and its base as they are on disk, and what the reference computes with both."""

    base: Path
    adapter: Path
    expected: FloatArray
    bare: FloatArray = field(repr=False)


def load_class(class_name: str, folder: Path, labels: int = 0) -> Any:
    import torch
    import transformers

    torch.manual_seed(SEED)  # of a head that the base does not have
    settings = {"num_labels": labels, "ignore_mismatched_sizes": True} if labels else {}
    return getattr(transformers, class_name).from_pretrained(folder, **settings).float().eval()


def compute(case: Case, model: Any, folder: Path) -> FloatArray:
    """The embeddings of `TEXTS`, or the scores of pairs of `DOCUMENTS`, each computed alone."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    for given in [(QUERY, text) for text in DOCUMENTS] if case.labels else TEXTS:
        inputs = tokenizer([given], truncation=True, max_length=LONGEST, return_tensors="pt")
        inputs = {
            name: inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in inputs
        }
        with torch.no_grad():
            output = model(**inputs)
        if case.labels:
            logits = output.logits[0]
            rows.append(torch.sigmoid(logits) if case.labels == 1 else torch.softmax(logits, dim=0))
            continue
        hidden = output.last_hidden_state[0]
        pooled = hidden[-1] if case.base is QWEN else hidden.mean(dim=0)
        rows.append(torch.nn.functional.normalize(pooled, dim=0))
    found: FloatArray = torch.stack(rows).numpy()
    return found


def save_case(folder: Path, case: Case) -> Saved:
    base = save_published(folder / "base", case.base, seed=SEED)

    def ask() -> dict[str, Any]:
        with quiet_library():
            model = load_class(case.class_name, base, case.labels)
            bare, shapes = compute(case, model, base), list_tensors(model, case.lora)
            apply_adapter(model, shapes, case.lora)
            return {"bare": bare, "shapes": shapes, "expected": compute(case, model, base)}

    question = [digest_directory(base), case.class_name, asdict(case.lora), case.labels, TEXTS, SEED]
    found = answer(["adapter", *question], ask)
    write_adapter(folder / "adapter", found["shapes"], case.lora, str(base))
    return Saved(base, folder / "adapter", found["expected"], found["bare"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Saved]:
    return {name: save_case(tmp_path_factory.mktemp(name), case) for name, case in CASES.items()}


def serve(directory: Path, cache_dir: Path, *, engine: str = "onnx") -> FloatArray:
    """What the model in `directory` answers."""
    with SyncMill(directory, MillConfig(engine=engine, cache_dir=cache_dir)) as mill:
        task = describe_model(locate_model(directory)).task
        if task is Task.CLASSIFY:
            pairs = tuple((QUERY, text) for text in DOCUMENTS)
            return np.asarray(mill.run(Classify(inputs=pairs)).scores, np.float32)
        if task is Task.RERANK:
            scores = mill.run(Rerank(queries=(QUERY,), documents=tuple(DOCUMENTS))).scores
            return np.asarray(scores, np.float32)[:, None]
        found: FloatArray = mill.run(Embed(inputs=tuple(TEXTS))).embeddings
        return found


def difference(found: FloatArray, expected: FloatArray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max())


@pytest.mark.parametrize(("engine", "name"), in_part(SERVED, *SERVED[: len(CASES)], *ON_ANOTHER))
def test_an_adapter_agrees_with_the_low_rank_path(
    name: str, engine: str, saved: Mapping[str, Saved], tmp_path: Path
) -> None:
    one = saved[name]
    assert difference(one.expected, one.bare) > 0.05  # the adapter matters
    assert difference(serve(one.adapter, tmp_path, engine=engine), one.expected) <= TOLERANCE


def forget_scaling(folder: Path) -> None:
    edit_json(folder / "adapter_config.json", lora_alpha=3, alpha_pattern={})


def forget_square_root(folder: Path) -> None:
    edit_json(folder / "adapter_config.json", use_rslora=True)


def forget_a_pattern(folder: Path) -> None:
    edit_json(folder / "adapter_config.json", alpha_pattern={"attention.output.dense": 4})


def leave_out_a_layer(folder: Path) -> None:
    change_tensors(folder, lambda all_: {name: one for name, one in all_.items() if ".layer.1." not in name})


def exchange_matrices(folder: Path) -> None:
    """A for B transposed, where the shapes allow it."""

    def exchange(tensors: dict[str, FloatArray]) -> dict[str, FloatArray]:
        square = [name for name in tensors if name.endswith("self.query.lora_A.weight")]
        assert square
        others = {name: name.replace("lora_A", "lora_B") for name in square}
        return {
            **tensors,
            **{name: tensors[other].T for name, other in others.items()},
            **{other: tensors[name].T for name, other in others.items()},
        }

    change_tensors(folder, exchange)


@pytest.mark.parametrize(
    "plant", [forget_scaling, forget_square_root, forget_a_pattern, leave_out_a_layer, exchange_matrices]
)
def test_the_comparison_finds_a_planted_defect(
    plant: Callable[[Path], None], saved: Mapping[str, Saved], tmp_path: Path
) -> None:
    """On our side only. It is found at a hundred times the tolerance."""
    changed = shutil.copytree(saved["bert"].adapter, tmp_path / "adapter")
    plant(changed)
    found = serve(changed, tmp_path / "cache")
    assert difference(found, saved["bert"].expected) > 100 * TOLERANCE


def make_sentence_directory(one: Saved, folder: Path) -> Path:
    """What sentence-transformers 6.2 saves: its own files and the tokenizer, but no config and no weights."""
    shutil.copytree(one.base, folder)
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        (folder / name).unlink(missing_ok=True)
    for path in one.adapter.iterdir():
        shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize("name", in_part(EMBEDDERS, "bert", "decoder"))
def test_an_adapter_within_a_sentence_transformers_directory_agrees(
    name: str, saved: Mapping[str, Saved], tmp_path: Path
) -> None:
    folder = make_sentence_directory(saved[name], tmp_path / "model")
    assert difference(serve(folder, tmp_path / "cache"), saved[name].expected) <= TOLERANCE


def test_the_modules_of_the_directory_hold_and_not_those_of_the_base(
    saved: Mapping[str, Saved], tmp_path: Path
) -> None:
    folder = make_sentence_directory(saved["bert"], tmp_path / "model")
    edit_json(folder / "config_sentence_transformers.json", prompts={"query": "find: "})
    edit_json(folder / "1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)
    description = describe_model(locate_model(folder))
    assert description.prompts["query"] == "find: "
    assert description.stages != describe_model(locate_model(saved["bert"].adapter)).stages


def test_an_adapter_beside_the_weights_of_its_base_agrees(saved: Mapping[str, Saved], tmp_path: Path) -> None:
    """transformers then reads the base from the same directory, whatever adapter_config.json names."""
    folder = shutil.copytree(saved["bert"].base, tmp_path / "model")
    for path in saved["bert"].adapter.iterdir():
        shutil.copy(path, folder)
    edit_json(folder / "adapter_config.json", base_model_name_or_path="owner/elsewhere")
    assert difference(serve(folder, tmp_path / "cache"), saved["bert"].expected) <= TOLERANCE


def test_an_adapter_may_have_the_published_names_of_modules(tmp_path: Path) -> None:
    """As one that was trained with the publisher's own code has."""
    one = save_case(tmp_path, Case(NOMIC, "NomicBertModel", Lora(("o_proj", "down_proj"), alpha=9)))
    published = {
        "layers.": "encoder.layers.",
        "self_attn.o_proj": "attn.out_proj",
        "mlp.down_proj": "mlp.fc2",
    }

    def rename(name: str) -> str:
        for theirs, ours in published.items():
            name = name.replace(theirs, ours)
        return name

    change_tensors(one.adapter, lambda tensors: {rename(name): tensor for name, tensor in tensors.items()})
    assert difference(one.expected, one.bare) > 0.05
    assert difference(serve(one.adapter, tmp_path / "cache"), one.expected) <= TOLERANCE


def test_the_prompts_of_the_base_hold(saved: Mapping[str, Saved], tmp_path: Path) -> None:
    with SyncMill(saved["bert"].adapter, MillConfig(cache_dir=tmp_path)) as mill:
        named = mill.run(Embed(inputs=(QUERY,), options=TextOptions(prompt_name="query"))).embeddings
        written = mill.run(Embed(inputs=(f"query: {QUERY}",))).embeddings
    np.testing.assert_allclose(named, written, atol=1e-6)


def test_adapters_of_one_base_have_fingerprints_of_their_own(
    saved: Mapping[str, Saved], tmp_path: Path
) -> None:
    """So that each has prepared graphs of its own: other tensors, another scaling, and no adapter."""
    one = saved["bert"]
    scaled = shutil.copytree(one.adapter, tmp_path / "scaled")
    edit_json(scaled / "adapter_config.json", lora_alpha=11)
    changed = shutil.copytree(one.adapter, tmp_path / "changed")
    change_tensors(changed, lambda tensors: {name: 2 * tensor for name, tensor in tensors.items()})
    renamed = shutil.copytree(one.adapter, tmp_path / "renamed")
    found = [
        fingerprint_model(describe_model(locate_model(folder)))
        for folder in (one.base, one.adapter, scaled, changed)
    ]
    assert len(set(found)) == len(found)
    assert fingerprint_model(describe_model(locate_model(renamed))) == found[1]


def test_an_adapter_over_the_embedded_model_is_served(tmp_path: Path) -> None:
    from vecmill.models import EMBEDDED_MODEL

    base, lora = locate_model().directory, Lora(("query", "value"), alpha=0.5)

    def ask() -> dict[str, Any]:
        with quiet_library():
            model = load_class("BertModel", base)
            shapes = list_tensors(model, lora)
            apply_adapter(model, shapes, lora)
            return {"shapes": shapes, "expected": compute(Case(BERT, "", lora), model, base)[0]}

    found = answer(["adapter of the embedded model", digest_directory(base), asdict(lora), TEXTS], ask)
    write_adapter(tmp_path / "adapter", found["shapes"], lora, f"sentence-transformers/{EMBEDDED_MODEL}")
    with SyncMill(tmp_path / "adapter", MillConfig(cache_dir=tmp_path / "cache")) as mill:
        row = mill.run(Embed(inputs=(QUERY,))).embeddings[0]
    np.testing.assert_allclose(row, found["expected"], atol=TOLERANCE)


def test_the_reference_of_an_adapter_is_not_the_bare_base(saved: Mapping[str, Saved], tmp_path: Path) -> None:
    """No library reads it without peft, and the weights alone are another model."""
    reference = load_reference(describe_model(locate_model(saved["bert"].adapter)), tmp_path)
    assert "own fp32 ONNX engine" in reference.name

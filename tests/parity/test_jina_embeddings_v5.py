"""jina-embeddings-v5 for texts in the layout of its repositories, with the adapters of its tasks.

The reference of a task is transformers' class with that adapter merged into its weights, the prompt of the
text, its last token and unit length, as the published `encode` computes them.
"""

import asyncio
import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import quiet_library
from support.published import Published, edit_json, respell, save_published
from support.references import answer, digest_directory
from support.scales import in_part
from support.texts import hard_texts, mixed_texts
from vecmill import Mill, MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models import Task, locate_model
from vecmill.models.fingerprint import fingerprint_model
from vecmill.models.model_weights import open_weights
from vecmill.models.task_adapters import name_matrix
from vecmill.requests import Embed, Purpose, Rerank, TextOptions
from vecmill.values.aliases import FloatArray

SEED = 4
LONGEST = 600  # more than the tokens of a text that is not long
TOLERANCE = 1e-4
STRENGTH = 0.3
RANK, ALPHA = 3, 2
TEXTS = [*mixed_texts(SEED, 6), *hard_texts()[::5], "the one and " * 300]
TASKS = ("retrieval", "text-matching", "clustering", "classification")
QUERY, DOCUMENT = "Query: ", "Document: "
# By the name of the prompt: the prompt, and the task.
CHOICES: Mapping[str, tuple[str, str]] = {
    "query": (QUERY, "retrieval"),
    "document": (DOCUMENT, "retrieval"),
    **{task: (DOCUMENT, task) for task in TASKS},
}
PURPOSES: Mapping[Purpose, str] = {
    Purpose.QUERY: "query",
    Purpose.DOCUMENT: "document",
    Purpose.CLUSTERING: "clustering",
    Purpose.CLASSIFICATION: "classification",
    Purpose.SIMILARITY: "text-matching",
}
SPELLING: dict[str, Any] = {
    "model_type": "jina_embeddings_v5",
    "architectures": ["JinaEmbeddingsV5Model"],
    "auto_map": {
        "AutoConfig": "configuration_jina_embeddings_v5.JinaEmbeddingsV5Config",
        "AutoModel": "modeling_jina_embeddings_v5.JinaEmbeddingsV5Model",
    },
    "task_names": list(TASKS),
}
SIZES: dict[str, Any] = {"num_key_value_heads": 2, "max_position_embeddings": LONGEST, "pad_token_id": 0}


def publish(class_name: str, tokenizer: str, spelling: dict[str, Any], **settings: Any) -> Published:
    return Published(
        class_name,
        tokenizer,
        (),
        {**SIZES, **settings},
        tokenizer_config={"model_max_length": 4 * LONGEST},
        sentence=None,
        prompts={"query": QUERY, "document": DOCUMENT},
        default_prompt="document",
        first_module="custom_st.Transformer",
        spelling={**SPELLING, **spelling},
    )


MODELS = {
    "small": publish("Qwen3Model", "Qwen2Tokenizer", {}, head_dim=16),
    "nano": publish("EuroBertModel", "byte_level", {"is_decoder": False}),
}


Change = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Saved:
    """The model as it was published, and the embeddings of `TEXTS` by the names in `CHOICES`."""

    folder: Path
    expected: Mapping[str, FloatArray]


def list_modules(tensors: Mapping[str, FloatArray]) -> list[str]:
    return sorted(name.removesuffix(".weight") for name in tensors if "_proj.weight" in name)


def save_adapters(
    folder: Path, tensors: Mapping[str, FloatArray], *, settings: Mapping[str, Any] | None = None
) -> dict[str, dict[str, FloatArray]]:
    """Write an adapter for each task as peft saves it; the matrices that each adds, by module."""
    random = np.random.default_rng(SEED)
    changes: dict[str, dict[str, FloatArray]] = {}
    for number, task in enumerate(TASKS):
        rank, place = RANK + number, folder / "adapters" / task
        place.mkdir(parents=True)
        saved: dict[str, FloatArray] = {}
        changes[task] = {}
        # The last task adapts fewer modules than the others.
        for module in list_modules(tensors)[: -1 if number < 3 else 5]:
            rows, columns = tensors[f"{module}.weight"].shape
            low, high = (
                (STRENGTH * random.standard_normal(shape)).astype(np.float32)
                for shape in ((rank, columns), (rows, rank))
            )
            saved[f"base_model.model.{module}.lora_A.weight"] = low
            saved[f"base_model.model.{module}.lora_B.weight"] = high
            changes[task][module] = high @ low * np.float32(ALPHA / rank)
        safetensors.numpy.save_file(saved, place / "adapter_model.safetensors", metadata={"format": "pt"})
        config = {"peft_type": "LORA", "task_type": "FEATURE_EXTRACTION", "r": rank, "lora_alpha": ALPHA}
        base = {"base_model_name_or_path": "jinaai/jina-embeddings-v5-text", "lora_dropout": 0.1}
        written = {**config, **base, **(settings or {})}
        (place / "adapter_config.json").write_text(json.dumps(written))
    return changes


def compute_embeddings(class_name: str, folder: Path, prompt: str) -> FloatArray:
    """The embeddings of a model whose adapter is merged, each text alone."""
    found: FloatArray = answer(
        ["last token", digest_directory(folder), prompt, TEXTS],
        lambda: compute_with_class(class_name, folder, prompt),
    )
    return found


def compute_with_class(class_name: str, folder: Path, prompt: str) -> FloatArray:
    with quiet_library():
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = getattr(transformers, class_name).from_pretrained(folder).float().eval()
        rows = []
        for text in TEXTS:
            inputs = tokenizer(prompt + text, truncation=True, max_length=LONGEST, return_tensors="pt")
            with torch.no_grad():
                hidden = model(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
                ).last_hidden_state
            rows.append(torch.nn.functional.normalize(hidden[:, -1].float(), dim=1)[0].numpy())
    return np.stack(rows)


def save_model(place: Path, name: str) -> Saved:
    model, folder = MODELS[name], place / "published"
    plain = save_published(place / "plain", model, seed=SEED)
    save_published(folder, model, seed=SEED)
    respell(folder, model)
    (folder / "custom_st.py").write_text("raise SystemExit('code of a model ran')\n", encoding="utf-8")
    tensors = safetensors.numpy.load_file(plain / "model.safetensors")
    changes = save_adapters(folder, tensors)
    expected = {}
    for choice, (prompt, task) in CHOICES.items():
        merged = {
            f"{module}.weight": tensors[f"{module}.weight"] + change
            for module, change in changes[task].items()
        }
        path = plain / "model.safetensors"
        safetensors.numpy.save_file({**tensors, **merged}, path, metadata={"format": "pt"})
        expected[choice] = compute_embeddings(model.class_name, plain, prompt)
    return Saved(folder, expected)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Saved]:
    return {name: save_model(tmp_path_factory.mktemp(name), name) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_the_tasks_and_the_sides_differ(name: str, saved: Mapping[str, Saved]) -> None:
    """But for the task of retrieval, whose prompt is that of documents."""
    expected = {key: rows for key, rows in saved[name].expected.items() if key != "retrieval"}
    for key, rows in expected.items():
        others = [other for other in expected if other != key]
        assert min(float(np.abs(rows - expected[other]).max()) for other in others) > 0.05


@pytest.mark.parametrize("name", MODELS)
def test_the_description_runs_no_code(name: str, saved: Mapping[str, Saved]) -> None:
    description = describe_model(locate_model(saved[name].folder))
    assert (description.task, description.max_tokens, description.runs_code) == (Task.EMBED, LONGEST, False)
    assert [*description.encoder.adapters] == [*CHOICES]
    assert {key: prompt for key, (prompt, _) in CHOICES.items()} == dict(description.prompts)
    assert description.default_prompt_name == "document"
    assert not description.shares_prefixes


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize(
    ("name", "engine"),
    in_part(
        itertools.product(MODELS, ("onnx", "openvino", "torch")), ("small", "torch"), ("nano", "openvino")
    ),
)
def test_each_request_chooses_its_task(
    name: str, engine: str, saved: Mapping[str, Saved], kept_models: Path
) -> None:
    """Requests for all tasks wait together, so that texts of several tasks share batches."""
    expected = saved[name].expected

    async def embed_all() -> list[FloatArray]:
        async with Mill(saved[name].folder, MillConfig(engine=engine, cache_dir=kept_models)) as mill:
            requests = [
                Embed(inputs=tuple(texts), options=TextOptions(prompt_name=choice))
                for choice in expected
                for texts in (TEXTS[::2], TEXTS[1::2])
            ]
            results = await asyncio.gather(*(mill.run(request) for request in requests))
            return [result.embeddings for result in results]

    found = asyncio.run(embed_all())
    for index, (choice, rows) in enumerate(expected.items()):
        np.testing.assert_allclose(found[2 * index], rows[::2], atol=TOLERANCE, err_msg=choice)
        np.testing.assert_allclose(found[2 * index + 1], rows[1::2], atol=TOLERANCE, err_msg=choice)


@pytest.mark.parametrize("name", MODELS)
def test_purposes_and_defaults_choose_the_task_too(
    name: str, saved: Mapping[str, Saved], kept_models: Path
) -> None:
    expected = saved[name].expected

    def embed(mill: SyncMill, texts: Sequence[str] = TEXTS, **options: Any) -> FloatArray:
        return mill.run(Embed(inputs=tuple(texts), options=TextOptions(**options))).embeddings

    with SyncMill(saved[name].folder, MillConfig(cache_dir=kept_models)) as mill:
        for purpose, choice in PURPOSES.items():
            np.testing.assert_allclose(embed(mill, purpose=purpose), expected[choice], atol=TOLERANCE)
            own = embed(mill, purpose=purpose, prompt=CHOICES[choice][0])
            np.testing.assert_allclose(own, expected[choice], atol=TOLERANCE)
        np.testing.assert_allclose(embed(mill), expected["document"], atol=TOLERANCE)
        # Without a purpose, a prompt in the caller's own words has the task of retrieval.
        np.testing.assert_allclose(embed(mill, prompt=QUERY), expected["query"], atol=TOLERANCE)
        scores = mill.run(Rerank(queries=(TEXTS[0],), documents=tuple(TEXTS[1:]))).scores
    cosines = expected["document"][1:] @ expected["query"][0]
    np.testing.assert_allclose(scores, cosines, atol=TOLERANCE)


def test_fewer_dimensions_are_the_first_ones(saved: Mapping[str, Saved], kept_models: Path) -> None:
    rows = saved["nano"].expected["clustering"][:, :16]
    with SyncMill(saved["nano"].folder, MillConfig(cache_dir=kept_models)) as mill:
        options = TextOptions(prompt_name="clustering")
        found = mill.run(Embed(inputs=tuple(TEXTS), dimensions=16, options=options)).embeddings
    np.testing.assert_allclose(found, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=TOLERANCE)


def test_the_adapters_are_part_of_the_fingerprint(saved: Mapping[str, Saved], tmp_path: Path) -> None:
    folder = shutil.copytree(saved["small"].folder, tmp_path / "model")
    before = fingerprint_model(describe_model(locate_model(folder)))
    edit_json(folder / "adapters/clustering/adapter_config.json", lora_alpha=ALPHA + 1)
    changed = describe_model(locate_model(folder))
    assert fingerprint_model(changed) != before
    module = "layers.0.mlp.up_proj"
    scaled = open_weights(changed).tensor(name_matrix(module, "B", "clustering"), (48, RANK + 2)).read()
    stored = safetensors.numpy.load_file(folder / "adapters/clustering/adapter_model.safetensors")
    high = stored[f"base_model.model.{module}.lora_B.weight"]
    np.testing.assert_allclose(scaled, high * (ALPHA + 1) / (RANK + 2), rtol=1e-6)


def name_tasks(*names: Any) -> Change:
    return lambda folder: edit_json(folder / "config.json", task_names=list(names))


def set_adapter(**settings: Any) -> Change:
    return lambda folder: edit_json(folder / "adapters/clustering/adapter_config.json", **settings)


def change_tensors(
    added: str | None = None, removed: str | None = None, *, shape: tuple[int, int] = (RANK + 2, 32)
) -> Change:
    def change(folder: Path) -> None:
        path, prefix = folder / "adapters/clustering/adapter_model.safetensors", "base_model.model."
        tensors = safetensors.numpy.load_file(path)
        tensors.pop(f"{prefix}{removed}", None)
        if added is not None:
            tensors[f"{prefix}{added}"] = np.zeros(shape, np.float32)
        safetensors.numpy.save_file(tensors, path)

    return change


MATRIX = "layers.0.mlp.up_proj.lora_"
WRONG: dict[str, tuple[Change, type[Exception], str]] = {
    "a_path": (name_tasks("retrieval", "../other"), CorruptModel, "different names of folders"),
    "twice": (name_tasks("retrieval", "retrieval"), CorruptModel, "different names of folders"),
    "a_side": (name_tasks("retrieval", "query"), CorruptModel, "none is query or document"),
    "too_many": (name_tasks("retrieval", *map(str, range(64))), CorruptModel, "at most 64 different"),
    "no_texts": (name_tasks(1), CorruptModel, "must be a string"),
    "no_retrieval": (name_tasks("clustering"), UnsupportedModel, "task_names without retrieval is not"),
    "no_folder": (
        name_tasks("retrieval", "code"),
        CorruptModel,
        "adapters/code/adapter_config.json is missing",
    ),
    "another_kind": (set_adapter(peft_type="IA3"), UnsupportedModel, "peft_type"),
    "saved_modules": (set_adapter(modules_to_save=["norm"]), UnsupportedModel, "modules_to_save"),
    "a_head": (set_adapter(task_type="SEQ_CLS"), UnsupportedModel, "with a head"),
    "another_rank": (set_adapter(r=9), CorruptModel, "by adapter_config.json its rank is 9"),
    "a_large_rank": (set_adapter(r=1025), UnsupportedModel, "has the rank 1025; at most 1024"),
    "a_huge_rank": (set_adapter(r=10**9), CorruptModel, "r must be a whole number of at most"),
    "an_embedding": (
        change_tensors("embed_tokens.lora_A.weight"),
        UnsupportedModel,
        "may change the linear layers",
    ),
    "a_layer_too_many": (
        change_tensors("layers.2.mlp.up_proj.lora_A.weight"),
        UnsupportedModel,
        "may change the linear",
    ),
    "a_whole_tensor": (change_tensors("norm.weight"), UnsupportedModel, "'norm.weight' is not supported"),
    "no_counterpart": (
        change_tensors(removed=f"{MATRIX}B.weight"),
        CorruptModel,
        "only one of the two matrices",
    ),
    "no_modules": (
        lambda folder: (folder / "modules.json").unlink(),
        CorruptModel,
        r"modules\.json is missing",
    ),
    "another_width": (change_tensors(f"{MATRIX}A.weight", shape=(RANK + 2, 31)), CorruptModel, "lora_A"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_adapters_are_refused(
    name: str, saved: Mapping[str, Saved], tmp_path: Path, kept_models: Path
) -> None:
    change, error, words = WRONG[name]
    folder = shutil.copytree(saved["small"].folder, tmp_path / "model")
    change(folder)
    with pytest.raises(error, match=words), SyncMill(folder, MillConfig(cache_dir=kept_models)):
        raise AssertionError("the model was loaded")

"""jinaai/jina-embeddings-v3 in the layout of its repository, with its adapters, on every engine.

The reference of an adapter is transformers' class with that adapter merged into its weights, the prompt of
its task, the mean of the hidden states and unit length, as `encode` of the published code computes them.
"""

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import quiet_library
from support.jina_adapters import ADAPTERS, INSTRUCTIONS, SETTINGS, add_adapters, merge_adapter
from support.published import NORMALIZE, Published, edit_json, pooling, respell, save_published
from support.references import answer, digest_directory
from support.texts import hard_texts, mixed_texts
from vecmill import Mill, MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnknownPrompt, UnsupportedModel
from vecmill.models import Task, locate_model
from vecmill.quantization.calibration import calibration_sequences, held_out_sequences
from vecmill.requests import Embed, Purpose, Rerank, TextOptions
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.sample_texts import sample_texts
from vecmill.verification.model_outputs import ModelProcessor, make_check_inputs

SEED = 9
LONGEST = 48
TOLERANCE = 1e-4
TEXTS = [*mixed_texts(SEED, 6), *hard_texts()[::5]]
ENGINES = ("onnx", "openvino", "torch")
NO_ADAPTER = ""
PURPOSES: Mapping[Purpose, str] = {
    Purpose.QUERY: "retrieval.query",
    Purpose.DOCUMENT: "retrieval.passage",
    Purpose.CLUSTERING: "separation",
    Purpose.CLASSIFICATION: "classification",
    Purpose.SIMILARITY: "text-matching",
}
CODE = "jinaai/xlm-roberta-flash-implementation--"
SPELLING: dict[str, Any] = {
    **SETTINGS,
    "auto_map": {
        "AutoConfig": f"{CODE}configuration_xlm_roberta.XLMRobertaFlashConfig",
        "AutoModel": f"{CODE}modeling_lora.XLMRobertaLoRA",
    },
    "emb_pooler": "mean",
    "model_type": "xlm-roberta",
    "position_embedding_type": "rotary",
    "rotary_emb_base": 20_000.0,
    "use_flash_attn": True,
}
MODEL = Published(
    "JinaEmbeddingsV3Model",
    "XLMRobertaTokenizer",
    (pooling("mean"), NORMALIZE),
    {"max_position_embeddings": LONGEST, "type_vocab_size": 1, "pad_token_id": 1},
    tokenizer_config={"model_max_length": LONGEST},
    sentence=None,
    prompts=INSTRUCTIONS,
    first_module="custom_st.Transformer",
    spelling=SPELLING,
    instead=("rope_parameters", "model_type"),
    rename=lambda tensors: add_adapters(tensors, SEED),
)


def compute_embeddings(folder: Path, prompt: str, texts: Sequence[str]) -> FloatArray:
    """The embeddings of a model without adapters, each text alone."""
    found: FloatArray = answer(
        ["mean", digest_directory(folder), prompt, list(texts)],
        lambda: compute_with_class(folder, prompt, texts),
    )
    return found


def compute_with_class(folder: Path, prompt: str, texts: Sequence[str]) -> FloatArray:
    with quiet_library():
        import torch
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.JinaEmbeddingsV3Model.from_pretrained(folder).float().eval()
        rows = []
        for text in texts:
            inputs = tokenizer(prompt + text, truncation=True, max_length=LONGEST, return_tensors="pt")
            with torch.no_grad():
                mean = model(**inputs).last_hidden_state.float().mean(dim=1)
            rows.append(torch.nn.functional.normalize(mean, dim=1)[0].numpy())
    return np.stack(rows)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model without adapters, as transformers saves it."""
    return save_published(tmp_path_factory.mktemp("plain") / "model", MODEL, seed=SEED)


@pytest.fixture(scope="module")
def folder(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as it was published, beside code that must not run."""
    folder = tmp_path_factory.mktemp("published") / "model"
    save_published(folder, MODEL, seed=SEED)
    respell(folder, MODEL)
    (folder / "custom_st.py").write_text("raise SystemExit('code of a model ran')\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def expected(plain: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, FloatArray]:
    """The embeddings of `TEXTS` by the name of the adapter, and without one."""
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    found = {}
    for number, name in enumerate((NO_ADAPTER, *ADAPTERS)):
        merged = tmp_path_factory.mktemp("merged")
        for path in plain.glob("*.json"):
            (merged / path.name).write_bytes(path.read_bytes())
        weights = merged / "model.safetensors"
        safetensors.numpy.save_file(merge_adapter(tensors, number), weights, metadata={"format": "pt"})
        found[name] = compute_embeddings(merged, INSTRUCTIONS.get(name, ""), TEXTS)
    return found


def options_of(name: str) -> TextOptions:
    """The options that choose an adapter by its name, or none."""
    return TextOptions(prompt_name=name or None)


def test_the_adapters_differ(expected: dict[str, FloatArray]) -> None:
    """Also those whose prompts are equal, so that an adapter in the place of another is found."""
    for name, rows in expected.items():
        others = [other for other in expected if other != name]
        assert min(float(np.abs(rows - expected[other]).max()) for other in others) > 0.05


def test_the_description_has_the_prompts_and_runs_no_code(folder: Path) -> None:
    description = describe_model(locate_model(folder))
    assert (description.task, description.max_tokens, description.runs_code) == (Task.EMBED, LONGEST, False)
    assert description.encoder.adapters == ADAPTERS
    assert {name: description.prompts[name] for name in ADAPTERS} == dict(INSTRUCTIONS)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_request_chooses_its_adapter(
    engine: str, folder: Path, expected: dict[str, FloatArray], kept_models: Path
) -> None:
    """Requests for all adapters wait together, so that texts of several adapters share batches."""

    async def embed_all() -> list[FloatArray]:
        async with Mill(folder, MillConfig(engine=engine, cache_dir=kept_models)) as mill:
            requests = [
                Embed(inputs=tuple(texts), options=options_of(name))
                for name in expected
                for texts in (TEXTS[::2], TEXTS[1::2])
            ]
            results = await asyncio.gather(*(mill.run(request) for request in requests))
            return [result.embeddings for result in results]

    found = asyncio.run(embed_all())
    for index, (name, rows) in enumerate(expected.items()):
        np.testing.assert_allclose(found[2 * index], rows[::2], atol=TOLERANCE, err_msg=name)
        np.testing.assert_allclose(found[2 * index + 1], rows[1::2], atol=TOLERANCE, err_msg=name)


def test_a_purpose_chooses_the_adapter_too(
    folder: Path, expected: dict[str, FloatArray], kept_models: Path
) -> None:
    """The server reads the field `task` of Jina's API as a purpose."""
    with SyncMill(folder, MillConfig(cache_dir=kept_models)) as mill:
        for purpose, name in PURPOSES.items():
            request = Embed(inputs=tuple(TEXTS), options=TextOptions(purpose=purpose))
            np.testing.assert_allclose(mill.run(request).embeddings, expected[name], atol=TOLERANCE)
            # In the caller's own words, which are here those of the prompt.
            own = TextOptions(purpose=purpose, prompt=INSTRUCTIONS[name])
            request = Embed(inputs=tuple(TEXTS), options=own)
            np.testing.assert_allclose(mill.run(request).embeddings, expected[name], atol=TOLERANCE)


def test_token_ids_have_the_adapter_of_the_request(
    folder: Path, expected: dict[str, FloatArray], kept_models: Path
) -> None:
    name = "text-matching"
    tokenizer = Tokenizer.load(describe_model(locate_model(folder)))
    ids = tuple(tuple(one.token_ids.tolist()) for one in tokenizer.encode(TEXTS))
    with SyncMill(folder, MillConfig(cache_dir=kept_models)) as mill:
        found = mill.run(Embed(inputs=ids, options=options_of(name))).embeddings
    np.testing.assert_allclose(found, expected[name], atol=TOLERANCE)


def test_checks_and_calibration_use_all_adapters(folder: Path) -> None:
    """What a lower precision loses is measured with each of them."""
    description = describe_model(locate_model(folder))
    processor = ModelProcessor.load(description)
    inputs = make_check_inputs(description, sample_texts(64, seed=SEED))
    checked = [processor.tokenize(item) for item in inputs]
    for sequences in (checked, calibration_sequences(description), held_out_sequences(description)):
        found = {int(number) for one in sequences for number in one.token_type_ids}
        assert found == {*range(len(ADAPTERS) + 1)}


def test_a_query_and_its_documents_are_ranked_by_different_adapters(
    folder: Path, expected: dict[str, FloatArray], kept_models: Path
) -> None:
    with SyncMill(folder, MillConfig(cache_dir=kept_models)) as mill:
        found = mill.run(Rerank(queries=(TEXTS[0],), documents=tuple(TEXTS[1:]))).scores
    cosines = expected["retrieval.passage"][1:] @ expected["retrieval.query"][0]
    np.testing.assert_allclose(found, cosines, atol=TOLERANCE)


def test_fewer_dimensions_are_the_first_ones(
    folder: Path, expected: dict[str, FloatArray], kept_models: Path
) -> None:
    rows = expected["retrieval.passage"][:, :16]
    with SyncMill(folder, MillConfig(cache_dir=kept_models)) as mill:
        request = Embed(inputs=tuple(TEXTS), dimensions=16, options=options_of("retrieval.passage"))
        found = mill.run(request).embeddings
    np.testing.assert_allclose(found, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=TOLERANCE)


def copy_model(folder: Path, target: Path, **changes: Any) -> Path:
    """The same model with other keys in its config.json."""
    shutil.copytree(folder, target)
    edit_json(target / "config.json", **changes)
    return target


def test_a_purpose_without_an_adapter_is_refused(folder: Path, tmp_path: Path) -> None:
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    two = {name: tensor[:2] if ".lora_" in name else tensor for name, tensor in tensors.items()}
    instructions = {name: INSTRUCTIONS[name] for name in ADAPTERS[:2]}
    changes = {"lora_adaptations": list(instructions), "task_instructions": instructions}
    smaller = copy_model(folder, tmp_path / "model", **changes)
    safetensors.numpy.save_file(two, smaller / "model.safetensors", metadata={"format": "pt"})
    edit_json(smaller / "config_sentence_transformers.json", prompts=instructions)
    with (
        SyncMill(smaller, MillConfig(cache_dir=tmp_path / "prepared")) as mill,
        pytest.raises(UnknownPrompt, match=r"no adapter for the purpose classification\. It has: retr"),
    ):
        mill.run(Embed(inputs=("text",), options=TextOptions(purpose=Purpose.CLASSIFICATION)))


def test_prompts_come_from_config_json_where_no_other_file_has_them(folder: Path, tmp_path: Path) -> None:
    plain = copy_model(folder, tmp_path / "model")
    (plain / "config_sentence_transformers.json").unlink()
    (plain / "modules.json").unlink()
    for name in ("1_Pooling", "2_Normalize"):
        for path in (plain / name).glob("*"):
            path.unlink()
    assert dict(describe_model(locate_model(plain)).prompts) == dict(INSTRUCTIONS)


def test_the_module_of_other_code_is_refused(folder: Path, tmp_path: Path) -> None:
    auto_map = {"AutoConfig": "configuration_own.OwnConfig"}
    other = copy_model(folder, tmp_path / "model", auto_map=auto_map)
    with pytest.raises(
        UnsupportedModel, match=r"names .custom_st\.Transformer.: the model's own code is never"
    ):
        describe_model(locate_model(other))
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Other"
    other = copy_model(folder, tmp_path / "other")
    (other / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(
        UnsupportedModel, match=r"names .custom_st\.Other.: the model's own code is never run"
    ):
        describe_model(locate_model(other))

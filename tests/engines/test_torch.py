"""The torch engines: architectures that only transformers knows, devices, and what a failure means."""

import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.library_models import save_library_model, save_model_with_code
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import MillConfig, SyncMill
from vecmill.batching.containment import is_out_of_memory
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, load_engine, prepared
from vecmill.engines.torch import compiled, devices, operators
from vecmill.engines.torch.engine import TorchEngine
from vecmill.engines.torch.replica import Outputs, Replica, probe_device
from vecmill.errors import (
    CorruptModel,
    DeviceLost,
    InferenceFailed,
    InvalidConfig,
    LoadFailed,
    UnsupportedModel,
)
from vecmill.models import Task, locate_model
from vecmill.requests import ClassifyTokens, EmbedTokens
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EngineInfo, EnginePlan, Precision

TOLERANCE = 1e-4
TEXTS = ["x", "", "in the [SEP] end", *mixed_texts(5, 12), "the one " * 60]

Open = Callable[[Path], SyncMill]


# ------------------------------------------------------------------ architectures without a graph


@pytest.mark.parametrize("model_type", ["roformer", "xlnet", "squeezebert"])
def test_other_architectures_give_their_references_rows(
    model_type: str, tmp_path: Path, open_mill: Open
) -> None:
    import sentence_transformers

    directory = save_library_model(tmp_path / "model", model_type)
    oracle = sentence_transformers.SentenceTransformer(str(directory), device="cpu").float()
    # Each alone: what some of these classes make of padding is not what they make of the text.
    expected = np.concatenate([oracle.encode([text]) for text in TEXTS])
    mill = open_mill(directory)
    assert mill.info.name == "torch"
    np.testing.assert_allclose(mill.embed(TEXTS), expected, atol=TOLERANCE)
    np.testing.assert_allclose(mill.embed(TEXTS[3]), expected[3:4], atol=TOLERANCE)
    states = mill.run(EmbedTokens(tuple(TEXTS), hidden_states=True)).embeddings
    for text, found in zip(TEXTS, states, strict=True):
        (wanted,) = oracle.encode([text], output_value="token_embeddings")
        np.testing.assert_allclose(found, wanted.numpy(), atol=TOLERANCE)
    assert np.ptp(expected, axis=0).min() > 10 * TOLERANCE


# BART's classifier reads the last eos token of a text, and Funnel no text of two tokens. FlauBERT has XLM's.
@pytest.mark.parametrize(
    "model_type",
    ["roformer", "bart", "funnel", pytest.param("flaubert", marks=pytest.mark.full), "xlm", "gpt2"],
)
def test_classifiers_of_other_architectures(model_type: str, tmp_path: Path, open_mill: Open) -> None:
    import transformers

    directory = save_library_model(
        tmp_path / "model",
        model_type,
        "AutoModelForSequenceClassification",
        inputs=("input_ids", "attention_mask"),
        num_labels=3,
    )
    pipeline = transformers.pipeline("text-classification", str(directory), device="cpu", top_k=None)
    found = open_mill(directory).classify(TEXTS[3:8]).scores
    for row, text in zip(found, TEXTS[3:8], strict=True):
        (answer,) = pipeline([text], truncation=True)
        scores = {entry["label"]: entry["score"] for entry in answer}
        np.testing.assert_allclose(row, [scores[f"LABEL_{n}"] for n in range(3)], atol=TOLERANCE)


def test_labels_of_tokens_of_other_architectures(tmp_path: Path, open_mill: Open) -> None:
    import transformers

    directory = save_library_model(
        tmp_path / "model", "roformer", "AutoModelForTokenClassification", num_labels=7
    )
    pipeline = transformers.pipeline(
        "token-classification", str(directory), device="cpu", aggregation_strategy="simple"
    )
    text = mixed_texts(8, 1)[0]
    expected = [(entry["start"], entry["end"], entry["entity_group"]) for entry in pipeline(text)]
    found = open_mill(directory).run(ClassifyTokens((text,)))
    assert [(entity.start, entity.end, entity.label) for entity in found.entities[0]] == expected


def test_another_engine_refuses_them_by_name(tmp_path: Path) -> None:
    directory = save_library_model(tmp_path / "model", "roformer")
    description = describe_model(locate_model(directory))
    for name in ("onnx", "torch-compile"):
        with pytest.raises(UnsupportedModel, match=f"'roformer', and the {name} engine needs one"):
            load_engine(description, EnginePlan(name), cores=1, cache_dir=tmp_path)


def test_without_torch_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = save_library_model(tmp_path / "model", "roformer")
    monkeypatch.setattr(type(ENGINES["torch"]), "is_installed", False)
    with pytest.raises(
        UnsupportedModel, match=r"no graph for model_type 'roformer'.*pip install 'vecmill\[torch\]'"
    ):
        SyncMill(directory)


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    import safetensors.numpy

    directory = save_library_model(tmp_path / "model", "roformer")
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.weight"]
    safetensors.numpy.save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CorruptModel, match=r"weights lack .* encoder.layer.1.output.dense.weight"):
        SyncMill(directory)


def test_a_model_type_that_transformers_does_not_know_is_refused(tmp_path: Path) -> None:
    directory = save_library_model(tmp_path / "model", "roformer")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "model_type": "brand_new"}))
    with pytest.raises(UnsupportedModel, match="cannot load model_type 'brand_new'"):
        SyncMill(directory)


# ------------------------------------------------------------------ code that comes with a model


@pytest.mark.promise("no-foreign-code")
def test_code_of_a_model_is_run_only_when_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sentence_transformers

    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    directory = save_model_with_code(tmp_path / "model")
    with pytest.raises(UnsupportedModel, match=r"needs its own code.*--trust-remote-code"):
        describe_model(locate_model(directory))
    assert not (directory / "was_run").exists()

    description = describe_model(locate_model(directory, trusts_code=True))
    with SyncMill(description, MillConfig(cache_dir=tmp_path / "cache")) as mill:
        found = mill.embed(TEXTS)
    assert (directory / "was_run").exists()
    oracle = sentence_transformers.SentenceTransformer(
        str(directory), device="cpu", trust_remote_code=True
    ).float()
    expected = np.concatenate([oracle.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


# ------------------------------------------------------------------ devices


class FakeCuda:
    """As much of `torch.cuda` as devices are chosen by."""

    def __init__(self, count: int) -> None:
        self._count = count

    def is_available(self) -> bool:
        return self._count > 0

    def device_count(self) -> int:
        return self._count

    def is_bf16_supported(self, *, including_emulation: bool) -> bool:
        return not including_emulation


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", FakeCuda(2))


@pytest.mark.usefixtures("two_gpus")
def test_an_accelerator_goes_before_the_processor() -> None:
    assert devices.find_devices() == ("cuda", "cpu")
    assert [device.index for device in devices.choose_devices(None)] == [0, 1]
    assert devices.name_devices(devices.choose_devices("cuda:1")) == "cuda:1"
    assert devices.precisions_of("cuda") == (Precision.FP32, Precision.BF16, Precision.FP16)


@pytest.mark.usefixtures("two_gpus")
def test_wheels_for_amd_are_found_by_their_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert devices.find_devices() == ("rocm", "cpu")
    assert devices.name_devices(devices.choose_devices("rocm:0")) == "rocm:0"
    assert devices.name_devices(devices.choose_devices("cuda")) == "rocm"


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("asked", ["cuda:2", "cuda:x", "mps", "cpu:1", "tpu"])
def test_devices_that_are_not_there_are_refused(asked: str) -> None:
    with pytest.raises(InvalidConfig, match=f"device {asked} is not available"):
        devices.choose_devices(asked)


# ------------------------------------------------------------------ failures of a device


def batch_of(*lengths: int) -> Batch:
    return Batch.of([TokenSequence.of([number + 1] * length) for number, length in enumerate(lengths)])


class SmallMemory:
    """A device that holds `tokens` tokens."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def __call__(self, batch: Batch) -> Outputs:
        if len(batch.token_ids) > self._tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [batch.token_ids[batch.offsets[:-1]][:, None].astype(np.float32)]


def alive() -> None:
    """A device that answers."""


def lost() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.promise("memory-halved")
def test_a_batch_that_does_not_fit_into_memory_is_no_lost_device_and_may_be_halved() -> None:
    replica = Replica("cuda:0", SmallMemory(20), lost)
    with pytest.raises(InferenceFailed, match="ran out of memory on 2 texts with 21 tokens") as raised:
        replica.run(batch_of(10, 11))
    assert is_out_of_memory(raised.value)
    assert len(replica.run(batch_of(5, 5))[0]) == 2


def broken(_batch: Batch) -> Outputs:
    raise RuntimeError("device-side assert triggered")


def test_an_error_on_a_device_that_answers_is_about_the_batch() -> None:
    with pytest.raises(InferenceFailed, match="failed on 2 texts with 10 tokens in total"):
        Replica("cuda:0", broken, alive).run(batch_of(5, 5))


def test_a_lost_device_does_not_come_back() -> None:
    good = Replica("cuda:1", SmallMemory(100), alive)
    bad = Replica("cuda:0", broken, lost)
    info = EngineInfo(
        "torch", Precision.FP32, "cuda", dim=1, max_tokens=100, lane_widths=(1,), parallel_calls=2
    )
    engine = TorchEngine(info, [bad, good], shared=False)
    with pytest.raises(DeviceLost, match=r"cuda:0 no longer responds\. Restart the process\."):
        engine.run(batch_of(3), width=1)
    for _ in range(3):
        assert engine.run(batch_of(3), width=1).values.shape == (1, 1)


def test_when_every_device_is_lost_nobody_waits_for_one() -> None:
    info = EngineInfo(
        "torch", Precision.FP32, "cuda", dim=1, max_tokens=100, lane_widths=(1,), parallel_calls=1
    )
    engine = TorchEngine(info, [Replica("cuda:0", broken, lost)], shared=False)
    for message in ("cuda:0 no longer responds", "No device of this process responds"):
        with pytest.raises(DeviceLost, match=message):
            engine.run(batch_of(3), width=1)


def test_the_processor_is_never_lost() -> None:
    probe_device(torch.device("cpu"))


# ------------------------------------------------------------------ on the processor


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return describe_model(locate_model(save_tiny_bert(tmp_path_factory.mktemp("models") / "m", TinyBert())))


def test_calls_of_different_widths_go_on_side_by_side(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call computes on as many threads as it is wide, whatever others do at that moment."""
    engine = load_engine(tiny, EnginePlan("torch"), cores=2, cache_dir=tmp_path)
    assert isinstance(engine, TorchEngine)
    both = threading.Barrier(2)
    seen: dict[int, int] = {}

    def observe(width: int) -> None:
        def run(batch: Batch) -> Outputs:
            both.wait(10)
            seen[threading.get_ident()] = torch.get_num_threads()
            both.wait(10)
            return [np.zeros((len(batch), engine.info.dim), np.float32)]

        shared = TorchEngine(engine.info, [Replica("cpu", run, alive)], shared=True)
        shared.run(batch_of(3), width=width)
        seen[width] = seen.pop(threading.get_ident())

    threads = [threading.Thread(target=observe, args=(width,)) for width in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {1: 1, 2: 2}


def test_rows_that_no_token_has_are_not_read(tiny: Any, tmp_path: Path) -> None:
    engine = load_engine(tiny, EnginePlan("torch"), cores=1, cache_dir=tmp_path)
    with pytest.raises(InferenceFailed, match="torch failed on 1 texts with 1 tokens in total: ValueError"):
        engine.run(Batch.of([TokenSequence.of([tiny.vocab_size])]), width=1)


def test_without_a_compiler_the_sentence_says_so(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Exception, match=r"found no C\+\+ compiler\. Install a compiler such as g\+\+"):
        load_engine(tiny, EnginePlan("torch-compile"), cores=1, cache_dir=tmp_path)


def test_what_was_compiled_needs_no_compiler_the_next_time(
    tiny: Any, kept_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_engine(tiny, EnginePlan("torch-compile"), cores=1, cache_dir=kept_programs)
    expected = first.run(batch_of(3, 9), width=1).values
    first.close()
    monkeypatch.setattr(compiled, "compile_program", None)
    second = load_engine(tiny, EnginePlan("torch-compile"), cores=1, cache_dir=kept_programs)
    np.testing.assert_array_equal(second.run(batch_of(3, 9), width=1).values, expected)
    second.close()


def test_a_program_that_cannot_be_opened_leaves_no_temporary_folder(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*arguments: Any) -> None:
        (arguments[-1] / compiled.LIBRARY_FILE).touch()

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("no memory is left")

    temporary, not_a_folder = tmp_path / "temporary", tmp_path / "file"
    temporary.mkdir()
    not_a_folder.touch()
    monkeypatch.setattr(prepared, "_MEMORY_FOLDER", tmp_path / "none")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(compiled, "_fill", fill)
    monkeypatch.setattr(compiled, "_open", fail)
    with pytest.raises(LoadFailed, match="no memory is left"):
        load_engine(tiny, EnginePlan("torch-compile"), cores=1, cache_dir=not_a_folder / "cache")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["torch", "torch-compile"])
def test_other_threads_go_on_while_it_computes(tiny: Any, kept_programs: Path, name: str) -> None:
    """A call that held Python's lock would stop the event loop beside it for as long."""
    engine = load_engine(tiny, EnginePlan(name), cores=2, cache_dir=kept_programs)
    batch = batch_of(*[40] * 400)
    engine.run(batch, width=1)
    done = threading.Event()
    took_s = []

    def call() -> None:
        began = time.perf_counter()
        engine.run(batch, width=1)
        took_s.append(time.perf_counter() - began)
        done.set()

    thread = threading.Thread(target=call)
    thread.start()
    longest_s, last = 0.0, time.perf_counter()
    while not done.is_set():
        now = time.perf_counter()
        longest_s, last = max(longest_s, now - last), now
    thread.join()
    engine.close()
    assert longest_s < took_s[0] / 2


def test_the_task_is_read_for_other_architectures_too(tmp_path: Path) -> None:
    directory = save_library_model(
        tmp_path / "model", "roformer", "AutoModelForSequenceClassification", num_labels=1
    )
    assert describe_model(locate_model(directory)).task is Task.RERANK


@pytest.mark.parametrize("group", [1, 4])
def test_a_convolution_by_a_matrix_product_is_the_convolution(group: int) -> None:
    """GPUs compute it so, since their convolutions have fewer bits."""
    torch.manual_seed(3)
    x, bias = torch.randn(3, 8, 11), torch.randn(12)
    weight = torch.randn(12, 8 // group, 3)
    expected = torch.nn.functional.conv1d(x, weight, bias, padding=1, groups=group)
    found = operators.convolve_by_product(x, weight, bias, group=group, padding=1)
    torch.testing.assert_close(found, expected)


def test_normalisation_takes_rows_of_a_table_in_fewer_bits() -> None:
    """GPUs do not take the two precisions together, processors do."""
    rows, scale = torch.randn(3, 8).bfloat16(), torch.randn(8)
    found = operators.layer_norm(rows, scale)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, torch.nn.functional.layer_norm(rows.float(), (8,), scale))

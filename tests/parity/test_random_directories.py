"""Directories that other tools could have written: right, or refused with a sentence.

Each is a random model whose files are changed at random (`support.random_directories`). What vecmill answers,
for texts in batches of any size, is what the model's own library answers for each text alone. A directory is
refused only if the library refuses it too.
"""

import json
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from support.library_outputs import LibraryFailure, compute_with_library, inputs_of
from support.published import edit_json
from support.random_directories import VARIANTS, RandomDirectory, tied_tensors
from support.scales import in_part
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.errors import VecmillError
from vecmill.models import Task, locate_model
from vecmill.values.embeddings import Embedding
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.comparison import compare_outputs
from vecmill.verification.model_outputs import (
    CheckInput,
    ModelOutputs,
    ModelProcessor,
    compute_in_batches,
)

TOLERANCE = 1e-4
FEW, MANY = 30, 2_000
# All variants and tasks are among the first.
DRAWN = 200
GROUP = 10
# Directories that are drawn for one that shows a planted defect.
MOST_TRIED = 12
MOST_REFUSED = 0.05
# What the library refuses and vecmill computes: a part of its message, and the variants that lead to it.
COMPUTED: Mapping[str, frozenset[str]] = {
    # A text alone needs no padding.
    "Asking to pad but the tokenizer does not have a padding token": frozenset(VARIANTS),
    # It writes no template with a token of two words between the texts.
    "Unrecognized processing class": frozenset({"role", "map"}),
    # EmbeddingGemma 2 with "vision_config": null.
    "'NoneType' object is not subscriptable": frozenset({"nulls"}),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one directory came out.

    `kind` is "right", "refused" by both, or "computed" where the library fails; else "wrong", "refused alone"
    or "unrefused".
    """

    directory: RandomDirectory
    kind: str
    about: str = ""

    @property
    def holds(self) -> bool:
        return self.kind in ("right", "refused", "computed")

    def __str__(self) -> str:
        return f"{self.kind}: {self.directory}\n    {self.about}"


@dataclass(slots=True)
class Outcomes:
    """Those of all directories so far."""

    found: list[Outcome] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield how many directories came out in which way, and the sentences of refusals."""
        kinds = Counter(outcome.kind for outcome in self.found)
        yield f"{len(self.found)} directories: " + ", ".join(
            f"{count} {kind}" for kind, count in kinds.items()
        )
        refusals = Counter(outcome.about for outcome in self.found if outcome.kind == "refused")
        yield from (f"{count:5} {about}" for about, count in refusals.most_common(12))


def judge(directory: RandomDirectory, folder: Path, plant: Callable[[Path], object] | None = None) -> Outcome:
    """Save a directory, and compare what vecmill and the library answer.

    `plant` changes the files that vecmill reads, as if it ignored what was there.
    """
    fitting = directory.save(folder)
    directory = RandomDirectory(directory.seed, directory.model, fitting)
    inputs = inputs_of(directory.task, directory.texts())
    expected = _ask_library(directory, folder, inputs)
    directory.model.respell(folder)
    if plant is not None:
        plant(folder)
    try:
        found = compute_with_vecmill(folder, directory.task, inputs, seed=directory.seed)
    except VecmillError as error:
        return _judge_refusal(directory, error, expected)
    except Exception:
        return Outcome(directory, "wrong", traceback.format_exc())
    if isinstance(expected, Exception):
        kind = "computed" if _is_known_failure(directory, expected) else "unrefused"
        return Outcome(directory, kind, f"the library: {expected}")
    difference = relative_difference(directory.task, inputs, found, expected)
    kind = "right" if difference <= TOLERANCE else "wrong"
    return Outcome(directory, kind, f"largest difference {difference:.2e}" if kind == "wrong" else "")


def _judge_refusal(
    directory: RandomDirectory, error: VecmillError, expected: ModelOutputs | Exception
) -> Outcome:
    if isinstance(expected, Exception):
        return Outcome(directory, "refused", f"both, the library with {str(expected).partition(':')[0]}")
    return Outcome(directory, "refused alone", error.message)


def _is_known_failure(directory: RandomDirectory, error: Exception) -> bool:
    return any(
        part in str(error) and not causes.isdisjoint(directory.variants) for part, causes in COMPUTED.items()
    )


def _ask_library(
    directory: RandomDirectory, folder: Path, inputs: tuple[CheckInput, ...]
) -> ModelOutputs | Exception:
    """Return the library's answers, or why it has none. What it fills by chance is no answer."""
    answers = []
    for seed in range(2 if directory.may_miss else 1):
        try:
            answers.append(compute_with_library(folder, directory.task, inputs, seed=seed))
        except LibraryFailure as error:
            return error
    if relative_difference(directory.task, inputs, answers[0], answers[-1]) > 0:
        return LookupError("chance: the file lacks tensors, which the library fills by chance")
    return answers[0]


def compute_with_vecmill(
    folder: Path, task: Task, inputs: tuple[CheckInput, ...], *, seed: int
) -> ModelOutputs:
    """Return vecmill's answers on the onnx engine in fp32, from batches of random sizes."""
    asked = task if task is Task.SPARSE else None  # as a masked language model it embeds
    description = describe_model(locate_model(folder), asked)
    processor = ModelProcessor.load(description)
    engine = load_engine(
        description, EnginePlan(precision=Precision.FP32), cores=1, cache_dir=folder.with_name("prepared")
    )
    try:
        return compute_in_batches(engine, processor, inputs, seed=seed)
    finally:
        engine.close()


def relative_difference(
    task: Task, inputs: tuple[CheckInput, ...], found: ModelOutputs, expected: ModelOutputs
) -> float:
    """Return the largest difference, relative to the size of the expected answers if they are above 1."""
    if [_shape(one) for one in found] != [_shape(one) for one in expected]:
        return float("inf")
    compared = compare_outputs(task, inputs, found, expected)
    return float(compared.largest_difference / max(1.0, compared.scale))


def _shape(output: Embedding) -> tuple[int, ...] | None:
    return output.shape if isinstance(output, np.ndarray) else None


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return Outcomes()


def seeds_with_news() -> Iterator[int]:
    """Yield those of the first `FEW` seeds that draw a task or a variant that none before has."""
    seen: set[str] = set()
    for seed in range(FEW):
        drawn = RandomDirectory.draw(seed)
        if news := {drawn.task, *drawn.variants} - seen:
            seen |= news
            yield seed


def judge_group(seeds: Iterable[int], folder: Path) -> list[Outcome]:
    """Judge the directories of these seeds."""
    found = []
    for seed in seeds:
        found.append(judge(RandomDirectory.draw(seed), folder / "model"))
        for path in folder.iterdir():
            shutil.rmtree(path)
    wrong = [outcome for outcome in found if not outcome.holds]
    assert not wrong, "\n".join(map(str, wrong))
    return found


@pytest.mark.parametrize("seed", in_part(range(FEW), *seeds_with_news()))
def test_a_directory_is_right_or_refused(seed: int, tmp_path: Path) -> None:
    judge_group(range(seed, seed + 1), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("first", range(FEW, MANY, GROUP))
def test_another_directory_is_right_or_refused(first: int, tmp_path: Path, outcomes: Outcomes) -> None:
    outcomes.found += judge_group(range(first, first + GROUP), tmp_path)


@pytest.mark.full
def test_few_directories_are_refused(outcomes: Outcomes, capsys: pytest.CaptureFixture[str]) -> None:
    if len(outcomes.found) < MANY - FEW:
        pytest.skip("asks for the outcomes of all directories, each of which has to hold")
    with capsys.disabled():
        print("", *outcomes.lines(), sep="\n")
    refused = [outcome for outcome in outcomes.found if outcome.kind == "refused"]
    assert len(refused) <= MOST_REFUSED * len(outcomes.found)


def test_the_draw_has_every_variant_and_task() -> None:
    drawn = [RandomDirectory.draw(seed) for seed in range(DRAWN)]
    assert {variant for one in drawn for variant in one.variants} == set(VARIANTS)
    assert {one.task for one in drawn} == set(Task)
    assert RandomDirectory.draw(7) == drawn[7]


def forget(name: str, *keys: str) -> Callable[[Path], object]:
    """Ignore keys of a file, or the whole file."""

    def change(folder: Path) -> None:
        path = folder / name
        if not keys:
            path.unlink(missing_ok=True)
        elif path.exists():
            document = json.loads(path.read_text())
            path.write_text(json.dumps({key: document[key] for key in document.keys() - set(keys)}))

    return change


def name_no_class(folder: Path) -> None:
    """Use tokenizer.json without the rules of a class."""
    edit_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def tie_head(folder: Path) -> None:
    """Use the table of the embeddings as the head, whatever the file has."""
    path = folder / "model.safetensors"
    if path.exists():
        tensors = safetensors.numpy.load_file(path)
        ties = {one: other for one, other in _all_ties().items() if {one, other} <= tensors.keys()}
        tensors |= {one: tensors[other].copy() for one, other in ties.items()}
        safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})


def _all_ties() -> dict[str, str]:
    """Return the ties of every family and task."""
    drawn = map(RandomDirectory.draw, range(DRAWN))
    return {one: other for directory in drawn for one, other in tied_tensors(directory.model).items()}


# For each defect: the variant by which it is found, and what is ignored.
PLANTED: Mapping[str, tuple[str, Callable[[Path], object]]] = {
    "additional special tokens": (
        "special",
        forget("tokenizer_config.json", "additional_special_tokens", "extra_special_tokens"),
    ),
    "the list of added tokens": ("listed", forget("tokenizer_config.json", "added_tokens_decoder")),
    "flags of added tokens": ("flags", forget("tokenizer_config.json", "added_tokens_decoder")),
    "added_tokens.json": ("added_tokens", forget("added_tokens.json")),
    "special_tokens_map.json": ("map", forget("special_tokens_map.json")),
    "max_len": ("max_len", forget("tokenizer_config.json", "max_len")),
    "a head of its own": ("head", tie_head),
    "the class of the tokenizer": ("options", name_no_class),
    "lower case": ("lowercase", forget("sentence_bert_config.json", "do_lower_case")),
    "the default prompt": ("prompt", forget("config_sentence_transformers.json", "default_prompt_name")),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found(defect: str, tmp_path: Path) -> None:
    variant, plant = PLANTED[defect]
    tried = [one for one in map(RandomDirectory.draw, range(DRAWN)) if variant in one.variants][:MOST_TRIED]
    for place, directory in enumerate(tried):
        alone = RandomDirectory(directory.seed, directory.model, (variant,))
        if judge(alone, tmp_path / str(place) / "model", plant).kind == "wrong":
            return
    pytest.fail(f"none of {len(tried)} directories shows it")

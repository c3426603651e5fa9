"""A cache folder that an earlier version filled: what was wrong is not read, and everything else is.

The version before had no corrections, so its names are those without them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from support.published import edit_json
from support.random_directories import RandomDirectory
from support.random_models import DRAWS, RandomModel
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model, transformer_folder
from vecmill.models import ModelDescription, Task, corrections, locate_model
from vecmill.models.digests import FOLDER
from vecmill.models.fingerprint import prepared_name
from vecmill.serving_plan.identity import identify_space

AFFECTED = ("own head", "two tables", "tokens", "windows")


def save_affected(kind: str, folder: Path) -> Task | None:
    """A directory whose outputs were wrong; the task to ask for, if any."""
    match kind:
        case "own head":
            save_variant("modernbert", Task.SPARSE, folder)
            return Task.SPARSE
        case "two tables":
            save_variant("t5", Task.EMBED, folder)
        case "tokens":
            save_tiny_bert(folder, TinyBert())
            edit_json(folder / "tokenizer_config.json", additional_special_tokens=["zeugma"])
        case "windows":
            next(filter(expands_beyond_window, map(RandomModel.draw, modernbert_seeds()))).write(folder)
    return None


def save_variant(family: str, task: Task, folder: Path) -> None:
    """Both tensors of a tie are in the file, and differ, although the settings tie them."""
    model = RandomModel.draw(RandomModel.find_seed(family, task))
    assert RandomDirectory(model.seed, model, ("head",)).save(folder) == ("head",)
    edit_json(folder / "config.json", tie_word_embeddings=True)


def modernbert_seeds() -> Iterator[int]:
    return count(sorted(DRAWS).index("modernbert"), len(DRAWS))


def expands_beyond_window(model: RandomModel) -> bool:
    expansion = model.expansion
    if model.task is not Task.MULTI_VECTOR or expansion is None or expansion["attend"]:
        return False
    return bool(expansion["length"] > model.settings["local_attention"])


@contextmanager
def version_before() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corrections, "CORRECTIONS", ())
        patch.setattr(transformer_folder, "find_changes", lambda _: None)
        yield


def start(folder: Path, task: Task | None, cache: Path) -> ModelDescription:
    """Start a mill, which fills the cache; return its description."""
    description = describe_model(locate_model(folder), task)
    with SyncMill(description, MillConfig(cache_dir=cache)):
        return description


def kept_names(cache: Path) -> set[str]:
    """The prepared graphs of a cache folder."""
    return {path.name for path in cache.iterdir() if path.name != FOLDER}


@pytest.mark.parametrize("kind", AFFECTED)
def test_what_was_kept_of_an_affected_model_is_not_read(kind: str, tmp_path: Path) -> None:
    task = save_affected(kind, tmp_path / "model")
    with version_before():
        before = start(tmp_path / "model", task, tmp_path / "cache")
        old_space = identify_space(before).digest
        old_name = prepared_name(before)
    kept = kept_names(tmp_path / "cache")
    assert kept
    now = start(tmp_path / "model", task, tmp_path / "cache")
    made = kept_names(tmp_path / "cache") - kept
    assert made, "nothing was made anew"
    assert not any(old_name in name for name in made)
    assert prepared_name(now) != old_name
    assert identify_space(now).digest != old_space or kind == "tokens"


def describe_twice(family: str, folder: Path) -> Iterator[ModelDescription]:
    """Describe a model of a family, and then describe it as the version before did, which lasts from then."""
    model = RandomModel.draw(sorted(DRAWS).index(family))
    model.write(folder)
    model.respell(folder)
    yield describe_model(locate_model(folder))
    with version_before():
        yield describe_model(locate_model(folder))


FAMILIES = sorted(DRAWS.keys() - {"static"})
# Encoders with and without token types, relative positions, windows and a tied table; decoders of both kinds.
SOME = ("albert", "bert", "deberta-v2", "llama_bidirec", "modernbert", "qwen3", "t5")
SPACES = [family if family in SOME else pytest.param(family, marks=pytest.mark.full) for family in FAMILIES]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_names_of_other_models_stay(family: str, tmp_path: Path) -> None:
    now, before = map(prepared_name, describe_twice(family, tmp_path / "model"))
    assert now == before


@pytest.mark.parametrize("family", SPACES)
def test_the_spaces_of_other_models_stay(family: str, tmp_path: Path) -> None:
    now, before = map(identify_space, describe_twice(family, tmp_path / "model"))
    assert now.digest == before.digest

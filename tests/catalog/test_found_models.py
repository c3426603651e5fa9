"""The models that a server is started with: what each is served with, and the name by which it is known."""

from pathlib import Path

import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidConfig
from vecmill.models import ModelDescription
from vecmill.models.location import ModelLocation
from vecmill.values.task import Task
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog import found_models
from vecmill_server.catalog.model_choice import ModelChoice
from vecmill_server.service.service import create_service


def test_models_are_served_with_their_own_aliases_tasks_and_engines(tmp_path: Path) -> None:
    folders = [save_tiny_bert(tmp_path / name, TinyBert()) for name in ("first", "second")]
    choices = [
        ModelChoice(str(folders[0]), aliases=("one",)),
        ModelChoice(str(folders[1]), MillConfig(engine="torch"), aliases=("two", "three"), task=Task.EMBED),
    ]
    found = create_service(choices, ServerSettings(alias=("four",)), MillConfig())
    resolve = found.catalog.resolve
    assert [resolve(name).mill.config.engine for name in ("one", "two", "three", "four")] == [
        None,
        "torch",
        "torch",
        None,
    ]


def test_a_model_may_have_another_name_than_its_own(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path / "a=b", TinyBert())
    save_tiny_bert(tmp_path / "one", TinyBert())
    written = ["all-MiniLM-L6-v2", f"own/second={folder}", str(tmp_path / "one"), str(folder)]
    choices = [ModelChoice.read(each) for each in written]
    assert [choice.name for choice in choices] == [None, "own/second", None, None]
    found = create_service(choices[:3], ServerSettings(task=("own/second=embed",)), MillConfig())
    assert [model.name for model in found.catalog] == ["all-MiniLM-L6-v2", "own/second", "one"]
    twice = [ModelChoice.read(f"second={path}") for path in (folder, tmp_path / "one")]
    with pytest.raises(InvalidConfig, match=r"Two models have the name 'second'\. .* NAME=MODEL"):
        create_service(twice, ServerSettings(), MillConfig())


@pytest.mark.parametrize("written", ["=m", "m=", "./a=b", "../a=b", "/a=b", "~/a=b", "x" * 5_000])
def test_only_a_name_before_an_equals_sign_is_one(written: str) -> None:
    assert ModelChoice.read(written) == ModelChoice(written)


@pytest.mark.parametrize("name", ["*", " ", "a "])
def test_a_name_that_no_request_could_mean_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot have the name"):
        create_service([ModelChoice.read(f"{name}=owner/model")], ServerSettings(), MillConfig())


def test_trust_in_a_name_is_not_trust_in_a_directory_with_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = {}

    def describe(location: ModelLocation, task: Task | None) -> ModelDescription:
        trusted[location.directory.name] = location.trusts_code
        return describe_model(location, task)

    monkeypatch.setattr(found_models, "describe_model", describe)
    for folder in ("one", "two"):
        save_tiny_bert(tmp_path / folder, TinyBert())
    choices = [ModelChoice.read(f"a={tmp_path / 'one'}"), ModelChoice.read(f"one={tmp_path / 'two'}")]
    create_service(choices, ServerSettings(trust_remote_code=("one",)), MillConfig())
    assert trusted == {"one": False, "two": True}

"""Names of models: exact first, then alias, other capitals, and with or without the owner."""

import asyncio

import pytest

from catalog.residency_stage import Stage, settle
from vecmill.errors import InvalidConfig
from vecmill.mill import Mill
from vecmill_server.base.errors import UnknownModel
from vecmill_server.catalog.admin_changes import remove_model
from vecmill_server.catalog.catalog import Catalog, ServedModel


def catalog(*names: str, aliases: tuple[str, ...] = ()) -> Catalog:
    return Catalog([ServedModel(name, Mill()) for name in names], aliases)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, "owner/Model-A"),
        ("default/not-specified", "owner/Model-A"),
        ("owner/Model-A", "owner/Model-A"),
        ("OWNER/model-a", "owner/Model-A"),
        ("model-a", "owner/Model-A"),
        ("b", "b"),
        ("somebody/B", "b"),
        ("text-embedding-3-small", "owner/Model-A"),
        ("Other", "b"),
    ],
)
def test_names_that_mean_a_model(asked: str | None, found: str) -> None:
    models = catalog("owner/Model-A", "b", aliases=("text-embedding-3-small", "other=b"))
    assert models.resolve(asked).name == found


@pytest.mark.parametrize("asked", ["", "c", "another/Model-A", "owner/", "/", "../b/..", "b\x00"])
def test_names_that_mean_none_are_told_what_there_is(asked: str) -> None:
    with pytest.raises(UnknownModel, match="owner/Model-A, b") as refusal:
        catalog("owner/Model-A", "b").resolve(asked)
    assert refusal.value.field == "model"


def test_an_exact_name_comes_before_any_other() -> None:
    models = catalog("A", "a", "x/a")
    assert [models.resolve(name).name for name in ("A", "a", "x/a", "X/A")] == ["A", "a", "x/a", "x/a"]


def test_a_long_name_is_not_repeated_whole() -> None:
    with pytest.raises(UnknownModel) as refusal:
        catalog("a").resolve("x" * 10_000)
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize("name", ["model:latest", "model___ours"])
def test_a_name_that_looks_labelled_is_a_name_all_the_same(name: str) -> None:
    models = catalog("model", name)
    assert [models.resolve(asked).name for asked in (name, "model")] == [name, "model"]


def test_an_alias_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="names a model that is not served"):
        catalog("a", aliases=("x=b",))


def test_every_name_means_a_model_if_an_alias_says_so() -> None:
    models = catalog("owner/Model-A", "b", aliases=("*",))
    assert [models.resolve(name).name for name in ("gpt-none", "", "x" * 10_000)] == ["owner/Model-A"] * 3
    assert models.resolve("B").name == "b"
    assert catalog("a", "b", aliases=("*=b",)).resolve("gpt-none").name == "b"


def test_requests_for_unknown_names_are_reported_once_each() -> None:
    reported: list[tuple[str, str]] = []
    models = Catalog(
        [ServedModel("a", Mill())], ("known", "*"), lambda name, model: reported.append((name, model))
    )
    for name in (None, "default/not-specified", "a", "A:latest", "known", "*", "gpt-none", "gpt-none"):
        models.resolve_serving(name)
    assert reported == [("*", "a"), ("gpt-none", "a"), ("gpt-none", "a")]


def test_aliases_are_listed_after_the_models_and_the_one_for_every_name_is_not() -> None:
    models = catalog("a", "b", aliases=("x", "*", "y=b", "a=b"))
    assert [(model.name, model.mill is models.resolve("b").mill) for model in models.listed()] == [
        ("a", False),
        ("b", True),
        ("x", False),
        ("y", True),
    ]
    assert [models.describe(name).name for name in ("y", "Y", "b", "B")] == ["y", "b", "b", "b"]
    assert [model.name for model in models] == ["a", "b"]


async def test_a_model_that_is_taken_out_while_a_request_waits_for_its_load_is_dropped_after_the_answer() -> (
    None
):
    stage = Stage(waits=True, keep_s=float("inf"))
    models = [ServedModel(name, Mill(), resident=stage.add(name)) for name in "ab"]
    served = Catalog(models, residency=stage.residency)

    async def ask() -> bool:
        async with served.hold(models[0], 30.0):
            return stage.contents[0].is_in_memory

    asked = asyncio.create_task(ask())
    await settle()
    remove_model(served, "a")
    gate = stage.contents[0].gate
    assert gate is not None
    gate.set_result(None)
    assert await asked
    await settle()
    assert not stage.contents[0].is_in_memory
    await stage.residency.close()

"""Every target serves a configuration file as `vecmill serve` does: names, engines, precisions, tasks."""

import functools
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from deployment.configurations import COMMIT, read_yaml, render_text
from vecmill.commands.embed import embed
from vecmill.commands.embed.run import parse_options
from vecmill.config import MillConfig, OnLongInput
from vecmill.models.location import EMBEDDED_MODEL
from vecmill.values.engine_plan import Precision
from vecmill.values.task import Task
from vecmill_ray import command as ray_command
from vecmill_ray.bulk import bulk_options
from vecmill_ray.serving.model_plan import read_plan
from vecmill_server.base.options import Setting, list_settings
from vecmill_server.cli import serve as cli
from vecmill_server.deploy.command import Target
from vecmill_server.deploy.rendering import Rendering
from vecmill_server.service import service

Table = Mapping[str, Any]
Environment = Mapping[str, str]

# What an image for one engine has in its environment, as docker/Dockerfile writes it.
IMAGES: tuple[Environment, ...] = (
    {},
    {"VECMILL_ENGINE": "openvino"},
    {"VECMILL_DEVICE": "cuda"},
    {"VECMILL_PRECISION": "bf16", "VECMILL_ENGINE": "torch"},
)
# Another machine has other cores and folders, and computes the same.
OF_THE_MACHINE = ("cores", "cache_dir")

WORDS = {
    "engine": ("onnx", "openvino", "torch"),
    "device": ("cpu", "cuda:1"),
    "on_long_input": tuple(map(str, OnLongInput)),
}


def value_of(each: Setting) -> st.SearchStrategy[Any]:
    if each.field.name in WORDS:
        return st.sampled_from(WORDS[each.field.name])
    if each.type is Path:
        return st.just("/srv/prepared")
    if each.type is int:
        return st.integers(1, 9999)
    if each.type is float:
        return st.floats(0.5, 100)
    return st.sampled_from(list(map(str, Precision)))


OF_MODELS = {each.field.name: value_of(each) for each in list_settings(MillConfig)}
NAMES = ("docs", "Söderköping", "text-embedding-3-small")


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, Any], list[Table]]:
    """Return the tables [defaults] and [[models]] of a file, over all of their keys."""
    defaults = draw(st.fixed_dictionaries({}, optional=OF_MODELS))
    own = {name: value for name, value in OF_MODELS.items() if name != "cores"}
    own |= {"task": st.sampled_from(list(map(str, Task))), "trust_remote_code": st.booleans()}
    models: list[Table] = []
    for index in range(draw(st.integers(0, 3))):
        table = draw(st.fixed_dictionaries({}, optional=own))
        model = draw(
            st.sampled_from([f"owner/model-{index}@{COMMIT}", f"owner/model-{index}", EMBEDDED_MODEL])
        )
        named = {"name": f"{draw(st.sampled_from(NAMES))}-{index}"}
        if model != EMBEDDED_MODEL and draw(st.booleans()):
            named = {}
        alias = [f"alias-{index}-{each}" for each in range(draw(st.integers(0, 2)))]
        models.append({"model": model, **named, **({"alias": alias} if alias else {}), **table})
    return defaults, models


def write_toml(defaults: Table, models: list[Table]) -> str:
    def lines(table: Table) -> Iterator[str]:
        return (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in table.items())

    tables = [["[defaults]", *lines(defaults)], *(["[[models]]", *lines(table)] for table in models)]
    return "\n".join("\n".join(table) for table in tables)


@dataclass(frozen=True)
class Served:
    """What a model answers with: everything that decides about its vectors and its names."""

    model: str | None
    names: tuple[str | None, ...]
    task: Task | None
    trusts_code: bool
    config: Table  # by the names of options

    @classmethod
    def of(
        cls,
        model: str | None,
        config: MillConfig,
        task: Task | None,
        trusts_code: bool,
        names: tuple[str | None, ...] = (),
    ) -> "Served":
        values = asdict(config)
        for group in ("batch", "queue", "inputs"):
            values |= values.pop(group)
        return cls(
            model, names, task, trusts_code, {k: v for k, v in values.items() if k not in OF_THE_MACHINE}
        )

    def as_bulk(self) -> "Served":
        """Return the part that bulk embedding needs. Its limits on requests and waiting are its own."""
        return replace(self, names=())


def stated(defaults: dict[str, Any], models: list[Table], image: Environment) -> list[Served]:
    """Return what the file says by its rules, from its tables: the model's own value, else the default."""

    built_in = {each.field.name: each.default for each in list_settings(MillConfig)}
    chosen = {*defaults, *(key for table in models for key in table)}
    by_image = {name.removeprefix("VECMILL_").lower(): value for name, value in image.items()}
    of_all = built_in | {name: by_image[name] for name in by_image.keys() - chosen} | defaults
    return [
        Served(
            table.get("model"),
            (table.get("name"), *table.get("alias", ())),
            table.get("task"),
            table.get("trust_remote_code", False),
            {name: table.get(name, of_all[name]) for name in built_in if name not in OF_THE_MACHINE},
        )
        for table in (models or [{}])
    ]


class Loaded(Exception):
    """The server got as far as loading its models."""


def serve(path: Path, environment: Environment) -> list[Served]:
    """Return what the server loads for a configuration file in this environment."""
    found: list[Served] = []

    def load(models: list[Any], _settings: Any, config: MillConfig) -> None:
        for each in models:
            names = (each.name, *each.aliases)
            found.append(Served.of(each.model, each.config or config, each.task, each.trusts_code, names))
        raise Loaded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "create_service", load)
        result = CliRunner().invoke(cli.serve, ["--config", str(path)], env=dict(environment))
    assert isinstance(result.exception, Loaded), result.output
    return found


def documents(rendering: Rendering) -> Iterator[dict[str, Any]]:
    for name, text in rendering.files.items():
        if name.endswith(".yaml"):
            yield from read_documents(text)


@functools.lru_cache(maxsize=16)
def read_documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a file, which is read once for all that is asked of it."""
    return list(yaml.load_all(text, yaml.CSafeLoader))


def of_kind(rendering: Rendering, kind: str) -> dict[str, Any]:
    return next(each for each in documents(rendering) if each and each.get("kind") == kind)


def pods(manifest: Any) -> Iterator[Environment]:
    """Return the environment of each container in a manifest."""
    if isinstance(manifest, dict):
        for container in manifest.get("containers", ()):
            if "env" in container:  # the one that only submits a job has none, and serves nothing
                yield {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        manifest = list(manifest.values())
    if isinstance(manifest, list):
        for each in manifest:
            yield from pods(each)


def serve_with_compose(rendering: Rendering, path: Path, image: Environment) -> list[Served]:
    container = read_yaml(rendering.files["compose.yaml"])["services"]["vecmill"]
    assert container["command"] == ["--config", "/etc/vecmill/vecmill.toml"]
    path.write_text(rendering.files["vecmill.toml"], encoding="utf-8")
    own = {name: value for name, value in container["environment"].items() if value is not None}
    return serve(path, {**image, **own})


def serve_with_systemd(rendering: Rendering, path: Path, _image: Environment) -> list[Served]:
    lines = rendering.files["vecmill.service"].splitlines()
    entries = [line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")]
    path.write_text(rendering.files["vecmill.toml"], encoding="utf-8")
    return serve(path, dict(entry.split("=", 1) for entry in entries))


def serve_on_ray(rendering: Rendering, path: Path, image: Environment) -> list[Served]:
    path.write_text(of_kind(rendering, "ConfigMap")["data"]["vecmill.toml"], encoding="utf-8")
    manifest = of_kind(rendering, "RayService")
    found = []
    for environment in pods(manifest):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**image, **environment}.items():
                patch.setenv(name, value)
            plan = read_plan(path, cores=1)
        aliases = [alias.partition("=") for alias in plan.settings.alias]
        found.append(
            [
                Served.of(
                    each.choice.model,
                    each.choice.config or MillConfig(),
                    each.choice.task,
                    each.choice.trusts_code,
                    (each.choice.name, *(alias for alias, _, name in aliases if name == each.name)),
                )
                for each in plan.models
            ]
        )
    assert found
    assert all(each == found[0] for each in found)
    return found[0]


def embed_on_ray(rendering: Rendering, path: Path, image: Environment, *more: str) -> Served:
    """Return what the job of bulk embedding computes with, with these options added."""
    path.write_text(of_kind(rendering, "ConfigMap")["data"]["vecmill.toml"], encoding="utf-8")
    manifest = of_kind(rendering, "RayJob")
    entry = manifest["spec"]["entrypoint"].replace("$INPUT", "texts").replace("$OUTPUT", "vectors")
    words = [str(path) if word == "/etc/vecmill-ray/vecmill.toml" else word for word in shlex.split(entry)]
    assert words[:3] == ["vecmill", "ray", "embed"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**image, **next(pods(manifest))}.items():
            patch.setenv(name, value)
        values = dict(ray_command.embed.make_context("embed", [*words[3:], *more]).params)
        choice = bulk_options.parse_options(values.pop("source"), values.pop("output"), values).choice
    model = choice.embed_model
    return Served.of(model.model, model.config, model.task, model.trusts_code)


def embed_here(path: Path, environment: Environment, *more: str) -> Served:
    """Return what `vecmill embed` computes with."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        words = ["texts.csv", "--output", "vectors.npy", "--config", str(path), *more]
        values = dict(embed.make_context("embed", words).params)
        found = parse_options(values.pop("corpus"), values.pop("output"), values).choice
    return Served.of(found.model, found.config, found.task, found.trusts_code)


def check(folder: Path, defaults: dict[str, Any], models: list[Table], image: Environment) -> None:
    """Check that each target serves the models of a file as the file says, and embeds with them."""
    text, path = write_toml(defaults, models), folder / "there.toml"
    expected = stated(defaults, models, image)
    rendering = {
        target: render_text(folder, target, text) for target in (Target.COMPOSE, Target.RAY, Target.SYSTEMD)
    }
    assert serve_with_compose(rendering[Target.COMPOSE], path, image) == expected
    assert serve_with_systemd(rendering[Target.SYSTEMD], path, image) == stated(defaults, models, {})
    ray = rendering[Target.RAY]
    assert serve_on_ray(ray, path, image) == expected

    here = serve(path, {})
    for index, each in enumerate(expected):
        for name in each.names:
            if name is not None:
                assert embed_on_ray(ray, path, image, "--model", name) == each.as_bulk()
                assert embed_here(path, {}, "--model", name) == here[index].as_bulk()
    of_texts = [each for each in expected if each.task in (None, Task.EMBED)]
    if of_texts:
        assert embed_on_ray(ray, path, image) == of_texts[0].as_bulk()


@pytest.mark.parametrize(
    "examples",
    [pytest.param(8, id="8 files"), pytest.param(400, id="400 files", marks=pytest.mark.full)],
)
def test_each_target_serves_and_embeds_as_the_file_says(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    folder = tmp_path_factory.mktemp("deployed")

    @settings(max_examples=examples)
    @given(files(), st.sampled_from(IMAGES))
    def check_all(tables: tuple[dict[str, Any], list[Table]], image: Environment) -> None:
        check(folder, *tables, image)

    check_all()


def test_a_precision_of_all_models_holds_for_bulk_embedding(tmp_path: Path) -> None:
    check(tmp_path, {"precision": "int8"}, [{"model": EMBEDDED_MODEL}], {})
    check(tmp_path, {"precision": "int8"}, [{"model": EMBEDDED_MODEL, "name": "docs"}], IMAGES[1])


def test_options_of_the_command_go_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text(write_toml({"precision": "int8"}, [{"model": EMBEDDED_MODEL, "engine": "onnx"}]), "utf-8")
    found = embed_here(path, {}, "--engine", "torch", "--cores", "3")
    assert (found.config["engine"], found.config["precision"]) == ("torch", "int8")
    by_variable = embed_here(path, {"VECMILL_PRECISION": "fp32", "VECMILL_PORT": "tcp://10.0.0.1:80"})
    assert (by_variable.config["engine"], by_variable.config["precision"]) == ("onnx", "fp32")
    assert replace(found, config={}) == replace(by_variable, config={})

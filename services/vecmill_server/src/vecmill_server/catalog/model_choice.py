"""What a model is served with: its settings, task, names, and whether its code is trusted.

How it works. `choose_models` alone decides this, for `vecmill serve`, the replicas on Ray, and the commands
`vecmill embed` and `vecmill ray embed` with `--config`. The value of an option is the first of:

1. the command line or the environment (`VECMILL_PRECISION`)
2. the table of the model in the configuration file
3. the table `[defaults]`
4. the default of the option

A model whose engine or precision is still open then gets those of its optimised plan, when it is loaded.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.models import locate_model
from vecmill.models.location import PairName, find_hub_name, is_on_hub
from vecmill.values.task import Task
from vecmill_server.base.options import build_settings

if TYPE_CHECKING:  # few starts need a parser of TOML
    from vecmill_server.base.config_file import ConfiguredModel


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model to serve: a directory, a name on a hub, or `None` for the embedded model.

    `config` are its own settings, by default those of all models. `name` is the name in requests and
    responses, by default the model's own.
    """

    model: str | None = None
    config: MillConfig | None = None
    aliases: tuple[str, ...] = ()
    task: Task | None = None
    trusts_code: bool = False
    name: str | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the model that is written as MODEL, or as NAME=MODEL. MODEL may be a pair (`PairName`)."""
        if PairName.parse(text) is not None:
            return cls(text)
        name, separator, model = text.partition("=")
        is_path = name.startswith(("/", "./", "../", "~")) or _exists(text)
        return cls(text) if is_path or not (separator and name and model) else cls(model, name=name)


def choose_models(
    named: Sequence[str],
    configured: "Sequence[ConfiguredModel]",
    values: Mapping[str, Any],
    given: Collection[str],
) -> list[ModelChoice]:
    """Return the models to serve, each with its settings.

    `named` are those of the command line, which take the place of the `configured` ones of the file. `values`
    are the values of all options by field name, those of the file's `[defaults]` included. `given` are the
    names of the options that the command line or the environment sets. Raises `InvalidConfig`.
    """
    config = build_settings(MillConfig, values)
    if named:
        return [replace(ModelChoice.read(each), config=config) for each in named]
    choices = []
    for index, each in enumerate(configured):
        own = {name: value for name, value in each.values.items() if name not in given}
        choices.append(_choose(f"models[{index}]", each, {**values, **own}))
    return choices or [ModelChoice(config=config)]


def _choose(place: str, found: "ConfiguredModel", values: Mapping[str, Any]) -> ModelChoice:
    try:
        config = build_settings(MillConfig, values)
    except InvalidConfig as error:
        raise InvalidConfig(f"{place} ({found.model}): {error.message}") from error
    return ModelChoice(found.model, config, found.aliases, found.task, found.trusts_code, found.name)


def own_name(model: str | None) -> str:
    """Return the name of a model without another name: of a pair that of texts. Raises `ModelNotFound`."""
    pair = PairName.parse(model)
    if pair is not None:
        return own_name(pair.text)
    on_hub = find_hub_name(model)
    return locate_model(model).name if on_hub is None else on_hub.repository


def apply_named_options(
    choice: ModelChoice, own: str, tasks: Mapping[str | None, Task], trusted: Set[str]
) -> ModelChoice:
    """Return `choice` with what the options `--task` and `--trust-remote-code` say about it.

    `own` is the model's own name. `tasks` are by the names of models; `None` stands for all other models.
    """
    names = (choice.name, choice.model, own) if choice.name else (choice.model, own)
    found = (tasks.get(name) for name in (*names, None))
    task = choice.task or next((task for task in found if task is not None), None)
    # Of a directory under another name, what is said of its own name is said of another model.
    is_renamed = choice.name is not None and not is_on_hub(choice.model)
    trusted_as = {choice.name, choice.model} if is_renamed else {choice.name, choice.model, own}
    return replace(choice, task=task, trusts_code=choice.trusts_code or bool(trusted_as & trusted))


def read_tasks(written: Sequence[str]) -> dict[str | None, Task]:
    """Return tasks by the name of the model; `None` stands for all other models. Raises `InvalidConfig`."""
    tasks: dict[str | None, Task] = {}
    for entry in written:
        name, _, value = entry.rpartition("=")
        if value not in tuple(Task):
            raise InvalidConfig(f"--task {entry!r}: the task must be one of {', '.join(Task)}.")
        tasks[name or None] = Task(value)
    return tasks


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # it is too long for a path
        return False

"""What `vecmill serve --config FILE` would serve here, for commands that compute without a server.

The command line of `vecmill serve` itself reads the file and the environment, so an answer here cannot differ
from that of the server.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vecmill.bulk.embed_model import EmbedModel
from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig, ModelNotFound, SetupError
from vecmill.values.task import Task
from vecmill_server.base.options import list_settings
from vecmill_server.catalog.model_choice import (
    ModelChoice,
    apply_named_options,
    choose_models,
    own_name,
    read_tasks,
)
from vecmill_server.cli.serve import CONFIG, given_parameters, serve

_MODEL_PARAMETERS = frozenset(
    {CONFIG, "models", "task", "trust_remote_code", *(each.field.name for each in list_settings(MillConfig))}
)


def read_served_models(path: Path, given: Mapping[str, Any] | None = None) -> list[ModelChoice]:
    """Return the models that `vecmill serve --config PATH` serves here, and what each is served with.

    `given` are values of options by field name, which count as those of the command line. Raises
    `InvalidConfig`, and `ModelNotFound` if a directory does not exist.
    """
    # Without the options of the server, such as an address in VECMILL_PORT that is not for this command.
    parameters = [each for each in serve.params if each.name in _MODEL_PARAMETERS]
    command = click.Command(serve.name, params=parameters, context_settings=serve.context_settings)
    try:
        context = command.make_context("vecmill serve", ["--config", str(path)])
    except click.UsageError as error:
        if isinstance(error.__cause__, SetupError):  # the message without a usage
            raise error.__cause__ from None
        raise InvalidConfig(error.format_message()) from error
    with context:
        values = {**context.params, **(given or {})}
        configured = context.meta[CONFIG].models
        found = choose_models(
            values["models"], configured, values, given_parameters(context) | set(given or ())
        )
    tasks, trusted = read_tasks(values["task"]), frozenset(values["trust_remote_code"])
    return [apply_named_options(each, own_name(each.model), tasks, trusted) for each in found]


def choose_for_embedding(path: Path, name: str | None, given: Mapping[str, Any]) -> EmbedModel:
    """Return the model of a configuration file that a request for embeddings names.

    Without a name, the first model that may have embeddings. `given` as in `read_served_models`. Found by the
    library's commands through an entry point. Raises `SetupError`.
    """
    choices = read_served_models(path, given)
    found = next((each for each in choices if _has_name(each, name)), None)
    if found is None:
        names = ", ".join(each.name or own_name(each.model) for each in choices)
        raise ModelNotFound(
            f"{path} serves no embedding model{'' if name is None else f' {name!r}'}. It serves {names}."
        )
    return EmbedModel(found.model, found.config or MillConfig(), found.task, found.trusts_code)


def _has_name(choice: ModelChoice, name: str | None) -> bool:
    if name is None:
        return choice.task in (None, Task.EMBED)
    return name in (choice.name or own_name(choice.model), *choice.aliases, choice.model)

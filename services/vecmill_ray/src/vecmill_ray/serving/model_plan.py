"""The plan of the deployments: the models of a configuration file, each with its settings and its name."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vecmill.errors import InvalidConfig
from vecmill_ray.absolute_paths import absolute_config, absolute_model, absolute_values
from vecmill_ray.serving.ray_settings import ALL_INTERFACES
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.options import build_settings, default_values
from vecmill_server.base.ray_refusals import refuse_on_ray
from vecmill_server.base.settings import ServerSettings
from vecmill_server.base.web_origins import ANY as ANY_HOST
from vecmill_server.catalog.model_choice import ModelChoice, own_name
from vecmill_server.catalog.model_names import ANY_NAME
from vecmill_server.cli.served_models import read_served_models

logger = logging.getLogger(__name__)

# The settings about connections and processes, which belong to HAProxy, uvicorn and Ray there.
NO_EFFECT = frozenset(
    (
        "max_header_bytes",
        "header_timeout_s",
        "write_timeout_s",
        "max_connections",
        "max_connection_age_s",
        "uds",
        "fd",
        "processes",
    )
)

# The names that Serve accepts everywhere, in paths and metrics too.
_NOT_IN_NAMES = re.compile("[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """The deployment of one model. `settings` are those of the server, with the aliases of this model."""

    deployment: str
    name: str
    choice: ModelChoice
    settings: ServerSettings


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """The models of a file, and the settings of the router, with the aliases of all models."""

    models: tuple[PlannedModel, ...]
    settings: ServerSettings


def read_plan(path: Path, *, cores: int) -> ServingPlan:
    """Read a configuration file, and plan its deployments, whose replicas have `cores` cores each.

    As for `vecmill serve`, variables such as VECMILL_ENGINE go before the file. Models of a hub are not
    downloaded. Raises `SetupError` if the file is invalid or a directory is missing.
    """
    config = read_config_file(path)
    values = {**default_values(ServerSettings), **absolute_values(config.options)}
    settings = build_settings(ServerSettings, values)
    try:
        refuse_on_ray(settings)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error.message}") from error
    for name in sorted(NO_EFFECT & set(config.options)):
        logger.warning("%s: server.%s has no effect on Ray (docs/ray.md)", path, name)
    choices = [_with_absolute_paths(each) for each in read_served_models(path, {"cores": cores})]
    return plan_models(choices, settings)


def plan_models(choices: Sequence[ModelChoice], settings: ServerSettings) -> ServingPlan:
    """Return the plan of the models `choices`. Raises `SetupError`."""
    names = [choice.name or own_name(choice.model) for choice in choices]
    aliases = (*settings.alias, *_own_aliases(choices, names))
    models = tuple(
        PlannedModel(
            _deployment_name(name),
            name,
            replace(choice, aliases=()),
            replace(settings, alias=aliases_of(name, names[0], aliases)),
        )
        for name, choice in zip(names, choices, strict=True)
    )
    deployments = [model.deployment for model in models]
    for model in models:
        if deployments.count(model.deployment) > 1:
            raise InvalidConfig(f"Two models have the name {model.deployment!r}. Rename one of them.")
    return ServingPlan(models, replace(settings, alias=aliases))


def behind_router(model: PlannedModel) -> PlannedModel:
    """Return the model with the settings of a replica, whose requests the router has checked."""
    settings = replace(model.settings, url_prefix="", cors_origin=(), allowed_host=(ANY_HOST,))
    return replace(model, settings=settings)


def on_all_interfaces(plan: ServingPlan) -> ServingPlan:
    """Return the plan for a Serve that others have started, which listens on an address of its own.

    The address in the file has no effect then. The rules for host names are those of a public address.
    """
    models = tuple(
        replace(model, settings=replace(model.settings, host=ALL_INTERFACES)) for model in plan.models
    )
    return ServingPlan(models, replace(plan.settings, host=ALL_INTERFACES))


def aliases_of(name: str, first: str, aliases: Sequence[str]) -> tuple[str, ...]:
    """Return the aliases that the replicas of the model `name` need, without `=MODEL`.

    The router has resolved the name already. With the alias `*`, any name may arrive at any model.
    """
    found = []
    for alias in aliases:
        written, _, target = alias.partition("=")
        if written == ANY_NAME or (target or first) == name:
            found.append(written)
    return tuple(found)


def _deployment_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("--", name)


def _own_aliases(choices: Sequence[ModelChoice], names: Sequence[str]) -> list[str]:
    return [
        f"{alias}={name}" for choice, name in zip(choices, names, strict=True) for alias in choice.aliases
    ]


def _with_absolute_paths(choice: ModelChoice) -> ModelChoice:
    config = None if choice.config is None else absolute_config(choice.config)
    return replace(choice, model=absolute_model(choice.model), config=config)

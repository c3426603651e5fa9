"""The models that were named at the start, each located and described, without its weights."""

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidConfig, SetupError
from vecmill.models import ModelDescription, locate_model
from vecmill.models.location import is_on_hub
from vecmill.values.task import Task
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.model_choice import ModelChoice, apply_named_options, own_name, read_tasks
from vecmill_server.catalog.model_names import ANY_NAME

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that was named. `source` is its description, or a function that locates and describes it.

    `source` is `None` if the model cannot be described, and `failure` then says why. `describe` describes a
    local model again.
    """

    name: str
    choice: ModelChoice
    source: ModelDescription | Callable[[], ModelDescription] | None
    failure: SetupError | None = None
    describe: Callable[[], ModelDescription] | None = None


def find_models(
    choices: Sequence[ModelChoice], settings: ServerSettings, on_download: Callable[[], None]
) -> list[FoundModel]:
    """Describe the local models of `choices`, and log those that cannot be.

    Models of a hub are located when they are loaded, since that may take a download; `on_download` is called
    before. Raises `SetupError` if no model can be described, or with `strict` if one cannot, and in any case
    if a directory does not exist.
    """
    tasks = read_tasks(settings.task)
    trusted = frozenset(settings.trust_remote_code)
    all_found = [_find(choice, tasks, trusted, on_download) for choice in choices]
    failures = [found.failure for found in all_found if found.failure is not None]
    if failures and (settings.strict or len(failures) == len(all_found)):
        raise failures[0]
    for found in all_found:
        if found.failure is not None:
            logger.error("the model %s cannot be read: %s", found.name, found.failure.message)
    served_names = {None, *(choice.model for choice in choices), *(found.name for found in all_found)}
    _refuse_unserved("--task", tasks.keys() - served_names)
    _refuse_unserved("--trust-remote-code", trusted - served_names)
    return all_found


def _refuse_unserved(option: str, names: Set[str | None]) -> None:
    if names:
        raise InvalidConfig(f"{option} names {min(map(str, names))!r}, a model that is not served.")


def _find(
    choice: ModelChoice,
    tasks: Mapping[str | None, Task],
    trusted: Set[str],
    on_download: Callable[[], None],
) -> FoundModel:
    if choice.name is not None and (choice.name != choice.name.strip() or choice.name == ANY_NAME):
        raise InvalidConfig(f"A model cannot have the name {choice.name!r}.")
    own = own_name(choice.model)
    name = choice.name or own
    choice = apply_named_options(choice, own, tasks, trusted)
    if is_on_hub(choice.model):
        return FoundModel(name, choice, partial(_fetch, choice, on_download))
    try:
        return FoundModel(name, choice, _describe(choice), describe=partial(_describe, choice))
    except InvalidConfig:
        raise  # an option, not the model, is wrong
    except SetupError as error:
        return FoundModel(name, choice, None, error)


def _fetch(choice: ModelChoice, on_download: Callable[[], None]) -> ModelDescription:
    """Download a model of a hub if necessary, and describe it. Raises `SetupError`."""
    on_download()
    return _describe(choice)


def _describe(choice: ModelChoice) -> ModelDescription:
    # The code of a hub's model is downloaded only if the operator trusts the model.
    return describe_model(locate_model(choice.model, trusts_code=choice.trusts_code), choice.task)

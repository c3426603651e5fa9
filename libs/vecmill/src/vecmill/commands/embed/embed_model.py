"""The model of a command that embeds files, from its options or from a configuration file of the server.

The server package reads that file: the library finds its function through the entry-point group
`vecmill.served_models`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from vecmill.config import MillConfig
from vecmill.errors import MissingExtra
from vecmill.values.engine_plan import Precision
from vecmill.values.pip_command import pip_command
from vecmill.values.task import Task

ENTRY_POINT_GROUP = "vecmill.served_models"

_ENGINE_SETTINGS = ("engine", "precision", "device", "cores", "cache_dir")


@dataclass(frozen=True, slots=True)
class EmbedModel:
    """A model and what it runs with; `None` is the embedded model."""

    model: str | None = None
    config: MillConfig = field(default_factory=MillConfig)
    task: Task | None = None
    trusts_code: bool = False


# Takes a file, the name of a model in it, and values of settings that go before those of the file.
ServedModelReader = Callable[[Path, str | None, Mapping[str, Any]], EmbedModel]


def choose_model(options: Mapping[str, Any], **fixed: Any) -> EmbedModel:
    """Return the model that the options of the command line name.

    With the option `config`, the model that a server with this file serves under the name `model`. `fixed`
    are settings that the file cannot change. Raises `SetupError`.
    """
    given = {name: options[name] for name in _ENGINE_SETTINGS if options[name] is not None} | fixed
    if "precision" in given:
        given["precision"] = Precision(given["precision"])
    if options["config"] is None:
        return EmbedModel(options["model"], MillConfig(**given), trusts_code=options["trusts_code"])
    found = _find_reader()(options["config"], options["model"], given)
    return replace(found, trusts_code=found.trusts_code or options["trusts_code"])


def _find_reader() -> ServedModelReader:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        reader: ServedModelReader = entry.load()
        return reader
    command = pip_command("install", "vecmill-server")
    raise MissingExtra(f"--config names a file of the server, which is not installed: {command}")

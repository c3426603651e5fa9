"""The configuration file of `vecmill serve --config FILE`, in TOML.

    [server]                # options of the server
    port = 7997
    api_key_file = "/run/secrets/vecmill-keys"

    [defaults]              # options of every model
    precision = "int8"

    [[models]]              # a model, and its own values of these options
    model = "owner/name"
    name = "docs"           # in requests and responses; by default the model's own name
    alias = ["text-embedding-3-small"]
    engine = "openvino"

    [deploy]                # for `vecmill deploy render`, not for the server
    image = "vecmill:cpu"

A key is the name of an option without its leading dashes, with _ in place of -. An option that is given on
the command line or in the environment takes the place of the file's values, those of single models included.
A key file is found from the folder of this file, all other relative paths from the working directory.
"""

import difflib
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.values.task import Task
from vecmill_server.base.deploy_settings import DEPLOY_TABLES, DeploySettings, OwnDeploySettings
from vecmill_server.base.options import Setting, list_settings
from vecmill_server.base.settings import ServerSettings

SERVER, DEFAULTS, MODELS, MODEL, DEPLOY = "server", "defaults", "models", "model", "deploy"

# The models share the cores.
_SHARED = frozenset({"cores"})
# These options name a model on the command line. In the file they are keys of the model.
OF_A_MODEL = frozenset({"task", "trust_remote_code"})
# Files that are the same whoever reads the configuration, from whichever folder.
_KEY_FILES = ("api_key_file", "admin_key_file")

_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Path: "a string",
}


@dataclass(frozen=True, slots=True)
class ConfiguredModel:
    """A table `[[models]]`. `values` are its own values of options, by field name."""

    model: str
    values: Mapping[str, Any]
    aliases: tuple[str, ...] = ()
    task: Task | None = None
    trusts_code: bool = False
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a file. `options` are those of the server and of every model, by field name."""

    options: Mapping[str, Any]
    models: tuple[ConfiguredModel, ...]
    deploy: DeploySettings


def read_config_file(path: Path) -> ConfigFile:
    """Read and check a configuration file.

    Raises `InvalidConfig`, which names the key in the file, for anything that is not expected there.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} is not TOML: {error}.") from error
    try:
        return _read_document(document, path.parent)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error.message}") from error


def _read_document(document: Mapping[str, Any], folder: Path) -> ConfigFile:
    _refuse_unknown(document, (SERVER, DEFAULTS, MODELS, DEPLOY), "")
    of_server = {name: each for name, each in _settings_of(ServerSettings).items() if name not in OF_A_MODEL}
    of_models = _settings_of(MillConfig)
    options = _read_table(document.get(SERVER, {}), of_server, SERVER)
    options |= {name: _find_file(folder, options[name]) for name in _KEY_FILES if name in options}
    options |= _read_table(document.get(DEFAULTS, {}), of_models, DEFAULTS)
    models = document.get(MODELS, [])
    if not isinstance(models, list):
        raise InvalidConfig(f"{MODELS} must be a list of tables. Write [[{MODELS}]] above each model.")
    own = {name: each for name, each in of_models.items() if name not in _SHARED}
    return ConfigFile(options, tuple(_read_models(models, own)), _read_deploy(document.get(DEPLOY, {})))


def _find_file(folder: Path, path: Path) -> Path:
    """Return the absolute path of a file that may be named from `folder`."""
    if path.is_absolute() or (path.parts[:1] and path.parts[0].startswith("~")):
        return path
    return Path(os.path.normpath(folder.resolve() / path))


def _read_deploy(table: Any) -> DeploySettings:
    """Return the table `[deploy]` with the tables in it. Raises `InvalidConfig`."""
    if not isinstance(table, dict):
        raise InvalidConfig(f"{DEPLOY} must be a table.")
    known = _settings_of(OwnDeploySettings)
    _refuse_unknown(table, (*known, *DEPLOY_TABLES), f"{DEPLOY}.")
    own = {name: value for name, value in table.items() if name in known}
    values = _read_table(own, known, DEPLOY)
    for name, kind in DEPLOY_TABLES.items():
        if name in table:
            values[name] = kind(**_read_table(table[name], _settings_of(kind), f"{DEPLOY}.{name}"))
    return DeploySettings(**values)


def _read_models(tables: list[Any], settings: Mapping[str, Setting]) -> Iterator[ConfiguredModel]:
    of_server = _settings_of(ServerSettings)
    extra = {
        MODEL: of_server["host"],  # a string
        "name": of_server["host"],
        "alias": of_server["alias"],
        "task": Setting(of_server["task"].field, Task, repeats=False),
        "trust_remote_code": Setting(of_server["trust_remote_code"].field, bool, repeats=False),
    }
    for index, table in enumerate(tables):
        place = f"{MODELS}[{index}]"
        values = _read_table(table, {**settings, **extra}, place)
        if not values.get(MODEL):
            raise InvalidConfig(f"{place}.{MODEL} is missing. It is a directory, or owner/name on a hub.")
        yield ConfiguredModel(
            values.pop(MODEL),
            values,
            aliases=values.pop("alias", ()),
            task=values.pop("task", None),
            trusts_code=values.pop("trust_remote_code", False),
            name=values.pop("name", None) or None,
        )


def _settings_of(kind: type) -> dict[str, Setting]:
    return {setting.field.name: setting for setting in list_settings(kind)}


def _read_table(table: Any, settings: Mapping[str, Setting], place: str) -> dict[str, Any]:
    """Return the values of a table by field name. Raises `InvalidConfig`."""
    if not isinstance(table, dict):
        raise InvalidConfig(f"{place} must be a table.")
    _refuse_unknown(table, settings, f"{place}.")
    return {name: _convert(settings[name], value, f"{place}.{name}") for name, value in table.items()}


def _refuse_unknown(table: Mapping[str, Any], known: Collection[str], place: str) -> None:
    for name in table:
        if name not in known:
            raise InvalidConfig(f"{place}{name} is not known. {_hint_at_place(name, known, place)}")


def _hint_at_place(name: str, known: Collection[str], place: str) -> str:
    """Return the tables that have the key `name`, else the nearest of the keys that are known here."""
    word = name.replace("-", "_")
    tables = _list_tables_of(word)
    if word in known:
        return f"Did you mean {place}{word}?"
    if place and tables:
        return f"The key belongs in {' or '.join(tables)}."
    near = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {place}{near[0]}?" if near else f"The keys are {', '.join(sorted(known))}."


def _list_tables_of(name: str) -> list[str]:
    """Return the tables that have the key `name`."""
    if name in OF_A_MODEL:
        return [f"[[{MODELS}]]"]
    is_of_models = name in _settings_of(MillConfig)
    tables = {
        f"[{SERVER}]": name in _settings_of(ServerSettings),
        f"[{DEFAULTS}]": is_of_models,
        f"[[{MODELS}]]": is_of_models and name not in _SHARED,
        f"[{DEPLOY}]": name in _settings_of(OwnDeploySettings),
    }
    return [table for table, has_key in tables.items() if has_key]


def _convert(setting: Setting, value: Any, place: str) -> Any:
    if not setting.repeats:
        return _convert_one(setting.type, value, place)
    if not isinstance(value, list):
        hint = f' Write {setting.field.name} = ["..."].' if isinstance(value, str) else ""
        raise InvalidConfig(f"{place} must be a list.{hint}")
    return tuple(_convert_one(setting.type, item, f"{place}[{index}]") for index, item in enumerate(value))


def _convert_one(kind: type, value: Any, place: str) -> Any:
    if issubclass(kind, StrEnum):
        if value not in tuple(kind):
            raise InvalidConfig(f"{place} must be one of {', '.join(kind)}.")
        return kind(value)
    expected = str if kind is Path else kind
    # true and false are integers in Python, and integers are numbers in TOML.
    is_right = isinstance(value, int | float if kind is float else expected)
    if not is_right or (isinstance(value, bool) and kind is not bool):
        raise InvalidConfig(f"{place} must be {_KINDS[kind]}.")
    return kind(value)  # type: ignore[call-arg]

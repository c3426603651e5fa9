"""What users write and programs read, which version 1 keeps: lists of names, made from the code.

`make stability` writes the lists into the folder `promised`. docs/stability.md says what is promised of them.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import click

import vecmill
from pages.metric_topics import all_definitions
from support.http_server import QUIET, build_service
from vecmill.commands.main import main
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines.prepared import PREPARED_FILE
from vecmill.models import locate_model
from vecmill.models.fingerprint import GRAPH_VERSION, INPUTS_VERSION
from vecmill.models.location import MANIFEST_FILE
from vecmill.serving_plan.manifest import SCHEMA
from vecmill_server.app import list_routes
from vecmill_server.base.config_file import DEFAULTS, DEPLOY, MODELS, SERVER
from vecmill_server.base.deploy_settings import DEPLOY_TABLES, OwnDeploySettings
from vecmill_server.base.options import list_settings
from vecmill_server.base.settings import ServerSettings
from vecmill_server.batches.database import VERSION as BATCHES
from vecmill_server.service.embedding_cache.embedding_folder import VERSION as RESULTS

FOLDER = Path(__file__).parent / "promised"

# Routes of the page and its assets alone, which change with the page.
OF_PAGES = ("/console", "/docs/")


def list_commands() -> Iterator[str]:
    """Return every command with each of its options and arguments."""
    yield from _list_parameters("vecmill", main)


def _list_parameters(name: str, command: click.Command) -> Iterator[str]:
    yield name
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            yield f"{name} {parameter.human_readable_name}"
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("-"):
                yield f"{name} {option}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _list_parameters(f"{name} {each}", found)


def list_variables() -> Iterator[str]:
    """Return the environment variables of the commands."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        prefix = (command.context_settings or {}).get("auto_envvar_prefix")
        for parameter in command.params:
            found = parameter.envvar or (prefix and f"{prefix}_{str(parameter.name).upper()}")
            yield from (found,) if isinstance(found, str) else found or ()


def list_all_routes() -> Iterator[str]:
    """Return the methods and paths of the HTTP API."""
    service = build_service(QUIET, [(describe_model(locate_model()), None)])
    for route in list_routes(service):
        if not route.path.startswith(OF_PAGES):
            yield from (f"{method} {route.path}" for method in sorted((route.methods or set()) - {"HEAD"}))


def list_keys() -> Iterator[str]:
    """Return the keys of the configuration file."""
    tables = {SERVER: ServerSettings, DEFAULTS: MillConfig, MODELS: MillConfig, DEPLOY: OwnDeploySettings}
    tables |= {f"{DEPLOY}.{name}": kind for name, kind in DEPLOY_TABLES.items()}
    for table, kind in tables.items():
        yield from (f"{table}.{setting.field.name}" for setting in list_settings(kind))
    yield from (f"{MODELS}.{name}" for name in ("model", "name", "alias", "task", "trust_remote_code"))


def list_metrics() -> Iterator[str]:
    """Return the metrics with their labels."""
    for one in all_definitions():
        labels = ", ".join(getattr(one, "labels", ()))
        yield f"{one.name}{{{labels}}}"


def list_library() -> Iterator[str]:
    """Return the public names of the library: parameters of methods, and fields of values."""
    for name in vecmill.__all__:
        found = getattr(vecmill, name)
        yield f"vecmill.{name}"
        if is_dataclass(found):
            yield from (f"vecmill.{name}.{field.name}" for field in fields(found))
        elif isinstance(found, type):
            for member, value in inspect.getmembers(found, callable):
                if not member.startswith("_") and member in vars(found):
                    parameters = ", ".join(inspect.signature(value).parameters)
                    yield f"vecmill.{name}.{member}({parameters})"


def list_formats() -> Iterator[str]:
    """Return the versions of what is written to disk. Another version is read, made anew or refused."""
    yield f"{MANIFEST_FILE}: {SCHEMA}"
    yield f"prepared models ({PREPARED_FILE}): graph {GRAPH_VERSION}, inputs {INPUTS_VERSION}"
    yield f"batches: {BATCHES}"
    yield f"result cache: {RESULTS}"


LISTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "commands": list_commands,
    "variables": list_variables,
    "routes": list_all_routes,
    "keys": list_keys,
    "metrics": list_metrics,
    "library": list_library,
    "formats": list_formats,
}


def find_names(name: str) -> list[str]:
    """Return a list of names as it is in the code, sorted."""
    return sorted(set(LISTS[name]()))


def read_names(name: str) -> list[str]:
    """Return a list of names as it is promised."""
    found: list[str] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def write_names() -> None:
    """Write all lists."""
    FOLDER.mkdir(exist_ok=True)
    for name in LISTS:
        text: Any = json.dumps(find_names(name), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    write_names()

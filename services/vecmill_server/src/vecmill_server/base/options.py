"""The command-line options made from settings classes: one for each field, with its default and help."""

import re
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from vecmill.errors import InvalidConfig
from vecmill_server.base.time_limit import SERVER_DEFAULTS

Settings = TypeVar("Settings")
Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a settings class. `type` is the type of one value, without `None` and `tuple`."""

    field: "Field[Any]"
    type: type
    repeats: bool

    @property
    def name(self) -> str:
        """The name of the option, without leading dashes."""
        return self.field.name.replace("_", "-")

    @property
    def default(self) -> Any:
        """The default of the option."""
        return SERVER_DEFAULTS.get(self.field.name, self.field.default)


class ValueChoice(click.Choice[StrEnum]):
    """A parameter type that accepts the values of an enumeration, where click's accepts member names."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


def settings_options(*kinds: type) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for each field of `kinds` and of nested settings classes."""

    def decorate(command: Command) -> Command:
        settings = [setting for kind in kinds for setting in list_settings(kind)]
        for setting in reversed(settings):  # decorators apply from the bottom up
            command = _option(setting)(command)
        return command

    return decorate


def build_settings(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Return a `kind` with its fields, and those of nested classes, set from `values`.

    Raises `InvalidConfig` if a value is invalid.
    """
    hints = get_type_hints(kind)
    arguments = {
        field.name: build_settings(hints[field.name], values)
        if is_dataclass(hints[field.name])
        else values[field.name]
        for field in fields(kind)  # type: ignore[arg-type]
    }
    return kind(**arguments)


@contextmanager
def naming_options(context: click.Context) -> Iterator[None]:
    """Name the options of `context` in an `InvalidConfig` that the block raises, as the operator gave them.

    The library's messages name its own settings, such as `max_batch_tokens`, which is right in Python and in
    a configuration file.
    """
    try:
        yield
    except InvalidConfig as error:
        raise InvalidConfig(name_options(error.message, context)) from error


def name_options(message: str, context: click.Context) -> str:
    """Return the message with the names by which the operator gave the options.

    A name of several words is replaced anywhere; one word, such as `cores`, only at the beginning.
    """
    for parameter in context.command.params:
        given = _given_name(parameter, context)
        if given is not None and parameter.name is not None:
            name = re.escape(parameter.name)
            pattern = rf"\b{name}\b" if "_" in name else rf"^{name}\b"
            message = re.sub(pattern, given, message)
    return message


def _given_name(parameter: click.Parameter, context: click.Context) -> str | None:
    """Return how the operator gave a parameter; `None` if a file or nobody did."""
    if not isinstance(parameter, click.Option) or parameter.name is None:
        return None
    source = context.get_parameter_source(parameter.name)
    if source is ParameterSource.COMMANDLINE:
        return parameter.opts[0]
    if source is ParameterSource.ENVIRONMENT and context.auto_envvar_prefix is not None:
        return f"{context.auto_envvar_prefix}_{parameter.name.upper()}"
    return None


def list_settings(kind: type) -> Iterator[Setting]:
    """Return the fields of a settings class and of its nested settings classes."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from list_settings(hint)  # type: ignore[arg-type]
            continue
        if get_origin(hint) in (Union, types.UnionType):
            hint = next(part for part in get_args(hint) if part is not types.NoneType)
        repeats = get_origin(hint) is tuple
        yield Setting(field, get_args(hint)[0] if repeats else hint, repeats)


def default_values(kind: type) -> dict[str, Any]:
    """Return the defaults of a settings class and of its nested settings classes, by field name."""
    return {each.field.name: each.default for each in list_settings(kind)}


def _option(setting: Setting) -> Callable[[Command], Command]:
    field = setting.field
    assert field.default is not MISSING, f"{field.name} needs a default"
    flag = f"--{setting.name}"
    if setting.type is bool:
        flag = f"{flag}/--no-{setting.name}"
    return click.option(
        flag,
        field.name,
        type=_parameter_type(setting.type),
        # For an enumeration member click would show its name, which the option does not accept.
        default=setting.default.value if isinstance(setting.default, StrEnum) else setting.default,
        multiple=setting.repeats,
        help=field.metadata["help"],
        show_envvar=True,
    )


def _parameter_type(kind: type) -> Any:
    if issubclass(kind, StrEnum):
        return ValueChoice(kind)
    if kind is Path:
        return click.Path(path_type=Path)
    return kind

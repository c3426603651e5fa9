"""The pages of the site that are made from the code: the library's public names, and all options."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import click

import vecmill
from vecmill.commands.main import main


def write_library() -> str:
    """Return the page of the library: every public class with its docstring, fields and methods."""
    lines = ["# Library", "", "What `import vecmill` offers, from its docstrings.", ""]
    for name in vecmill.__all__:
        lines += _describe_class(name, getattr(vecmill, name))
    return "\n".join(lines) + "\n"


def _describe_class(name: str, found: Any) -> Iterator[str]:
    yield from (f"## {name}", "", _text(found), "")
    if isinstance(found, type) and issubclass(found, Enum):
        yield from ("| member | value |", "|---|---|")
        yield from (f"| `{member.name}` | `{member.value}` |" for member in found)
        yield ""
    elif is_dataclass(found):
        yield from ("| field | type | default |", "|---|---|---|")
        for field in fields(found):
            default = "" if field.default is MISSING else f"`{_cell(repr(field.default))}`"
            yield f"| `{field.name}` | {_name_type(field.type)} | {default} |"
        yield ""
    for member, value in vars(found).items() if isinstance(found, type) else ():
        if not member.startswith("_") and inspect.isfunction(value):
            yield from (f"### {name}.{member}", "", "```python", f"{member}{_signature(value)}", "```", "")
            yield from (_text(value), "")


def _text(documented: Any) -> str:
    text = inspect.getdoc(documented) or ""
    return re.sub(r"^(#+ )", r"\\\1", text, flags=re.MULTILINE)


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")


def _name_type(found: Any) -> str:
    name = found.__name__ if isinstance(found, type) and not get_args(found) else str(found)
    return f"`{re.sub(r'[a-z_]+[.]', '', name)}`".replace(" | ", "` or `")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write_options() -> str:
    """Return the page of the commands: every command with its arguments, options and variables."""
    lines = ["# Commands and options", "", "As `--help` prints them.", ""]
    context = click.Context(main, info_name="vecmill")
    lines += [line for name in main.list_commands(context) for line in _describe_command(name, main, context)]
    return "\n".join(lines) + "\n"


def _describe_command(name: str, group: click.Group, parent: click.Context) -> Iterator[str]:
    command = group.get_command(parent, name)
    assert command is not None
    context = click.Context(command, parent=parent, info_name=name, **(command.context_settings or {}))
    yield from (f"## {context.command_path}", "", _paragraphs(command.help or ""), "")
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        yield from ("| option | meaning | variable |", "|---|---|---|")
        yield from (_describe_option(option, context) for option in options)
        yield ""
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            yield from _describe_command(each, command, context)


def _describe_option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    prefix = context.auto_envvar_prefix
    variable = option.envvar or (prefix and f"{prefix}_{str(option.name).upper()}")
    shown = f"`{variable}`" if isinstance(variable, str) else ""
    default = option.default
    is_shown = isinstance(default, str | int | float | Path) and default not in (False, "")
    meaning = f"{option.help or ''}{f' Default: `{default}`.' if is_shown else ''}"
    return f"| {names} | {_cell(meaning)} | {shown} |"


def _paragraphs(text: str) -> str:
    return inspect.cleandoc(text).replace("\b\n", "")

"""Names options in error messages as the operator gave them: `--max-batch-tokens`, or the variable.

The library's messages name its own settings, such as `max_batch_tokens`, which is right in Python and in a
configuration file.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource

from vecmill.errors import InvalidConfig


@contextmanager
def naming_options(context: click.Context) -> Iterator[None]:
    """Name the options of `context` in an `InvalidConfig` that the block raises."""
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
    if source is ParameterSource.ENVIRONMENT:
        return f"{context.auto_envvar_prefix}_{parameter.name.upper()}"
    return None

"""The environment variables of TEI and Infinity, which `vecmill serve` does not read, and what replaces them.

A container that moves to vecmill often keeps these variables. One warning at the start names them.
docs/moving-in.md has the values.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vecmill_server.cli.options_of_others import REPLACEMENTS

logger = logging.getLogger(__name__)

INFINITY = "INFINITY_"
# Names that only TEI uses, and MODEL_ID, without which TEI does not start.
TEI_SIGNS = frozenset(
    {
        "AUTO_TRUNCATE",
        "DEFAULT_PROMPT_NAME",
        "DENSE_PATH",
        "MAX_BATCH_REQUESTS",
        "MAX_BATCH_TOKENS",
        "MAX_CLIENT_BATCH_SIZE",
        "MODEL_ID",
        "TOKENIZATION_WORKERS",
    }
)
# TEI's variables whose names other programs use too. HOSTNAME is left out, because every container has it.
TEI_GENERIC = frozenset(
    {
        "API_KEY",
        "CORS_ALLOW_ORIGIN",
        "DEFAULT_PROMPT",
        "DTYPE",
        "HF_API_TOKEN",
        "HUGGINGFACE_HUB_CACHE",
        "JSON_OUTPUT",
        "LOG_LEVEL",
        "MAX_CONCURRENT_REQUESTS",
        "PAYLOAD_LIMIT",
        "POOLING",
        "PORT",
        "REVISION",
        "SERVED_MODEL_NAME",
    }
)

# The replacements that are not in REPLACEMENTS: of options that vecmill has too, and of variables only.
_MORE_REPLACEMENTS: Mapping[str, str] = MappingProxyType(
    {
        **{
            option: f"{option} {{}}"
            for option in (
                "--api-key",
                "--device",
                "--engine",
                "--host",
                "--log-level",
                "--max-batch-tokens",
                "--port",
                "--trust-remote-code",
                "--url-prefix",
            )
        },
        "--home": "the environment variable HF_HOME",
        "--queue-size": "--max-queue-texts {}",
    }
)
# Kubernetes sets NAME_PORT to such a value for each service called NAME.
_SERVICE_LINK = "tcp://"
# An option with its value, if that is a word or *.
_OPTION = re.compile(r"--([a-z-]+)(?: '?([a-z-]+|\*)'?$)?")
_VARIABLE = re.compile(r"the environment variable ([A-Z_]+)")


@dataclass(frozen=True, slots=True)
class UnreadVariable:
    """An environment variable of another server, and the advice what to use instead.

    `replaced_by` is the parameter of `vecmill serve` or the environment variable that has the same meaning.
    """

    name: str
    advice: str
    replaced_by: str | None = None


def warn_of_variables(environment: Mapping[str, str], given: Collection[str]) -> None:
    """Log one warning if `environment` has variables of TEI or Infinity. Their values are not logged.

    `given` are the parameters of `vecmill serve` that are set: they replace variables.
    """
    unread = find_variables(environment, given)
    if unread:
        listed = ", ".join(f"{variable.name} ({variable.advice})" for variable in unread)
        logger.warning("environment variables of another server are not read: %s", listed)


def find_variables(environment: Mapping[str, str], given: Collection[str]) -> list[UnreadVariable]:
    """Return the variables of TEI and Infinity that nothing in `environment` and `given` replaces.

    Generic names, such as PORT, count only beside a name in `TEI_SIGNS`.
    """
    unread = [
        variable
        for variable in _variables(environment)
        if variable.replaced_by not in given and variable.replaced_by not in environment
    ]
    has_signs = any(variable.name in TEI_SIGNS for variable in unread)
    return [variable for variable in unread if has_signs or variable.name.startswith(INFINITY)]


def _variables(environment: Mapping[str, str]) -> Iterator[UnreadVariable]:
    for name, value in sorted(environment.items()):
        is_infinity = name.startswith(INFINITY)
        if not is_infinity and name not in TEI_SIGNS | TEI_GENERIC:
            continue
        option = f"--{name.removeprefix(INFINITY).lower().replace('_', '-')}"
        replacement = REPLACEMENTS.get(option) or _MORE_REPLACEMENTS.get(option)
        if replacement is not None and not value.startswith(_SERVICE_LINK):
            yield _describe(name, option, replacement)


def _describe(name: str, option: str, replacement: str) -> UnreadVariable:
    """Return the variable with the replacement of its option, as a variable where there is one."""
    if option == "--model-id":
        return UnreadVariable(name, "use VECMILL_MODEL", "models")
    if match := _OPTION.match(replacement):
        ours, value = match[1].replace("-", "_"), f"={match[2]}" if match[2] else ""
        return UnreadVariable(name, f"use VECMILL_{ours.upper()}{value}", ours)
    if match := _VARIABLE.match(replacement):
        return UnreadVariable(name, f"use {match[1]}", match[1])
    return UnreadVariable(name, replacement.partition(". ")[0].replace("{}", "VALUE"))

"""Advice for people who come from TEI and Infinity: what replaces an option or an environment variable.

A command line with an option of another server is refused, and the error message names the replacement. A
container that moves to vecmill often keeps its environment variables, which are not read: one warning at the
start names them. docs/compared.md has the same replacements.
"""

import logging
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import click

from vecmill_server.cli.help_groups import GroupedCommand

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to use instead of an option of another server, and of the variable with the same name.

    `text` is for the command line; {} in it stands for the value of the option. If `names` are given, the
    value gets its name here, and other values get the text `otherwise`. `short` is for the variable.
    `replaced_by` is the parameter of `vecmill serve` or the environment variable with the same meaning.
    """

    text: str
    short: str
    replaced_by: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = ""

    def explain(self, value: str) -> str:
        """Return the advice about an option with this value, which is empty for an option without one."""
        if self.names and value not in self.names:
            return self.otherwise
        return self.text.replace("{}", self.names.get(value, value) or "VALUE")


def _words(text: str, reason: str = "") -> Advice:
    return Advice(f"{text}. {reason}" if reason else text, text.replace("{}", "VALUE"))


def _not_needed(reason: str = "") -> Advice:
    return _words("not needed", reason)


def _variable(name: str, value: str = "") -> Advice:
    return Advice(f"the environment variable {name}{value}", f"use {name}", name)


def _option(option: str, value: str = "", *, shown: str = "{}", note: str = "") -> Advice:
    """Return the advice to use `option`, with a fixed `value`, or with one that the text shows as `shown`."""
    name = option.removeprefix("--").replace("-", "_")
    text = f"{option} {shlex.quote(value) if value else shown}".rstrip()
    return Advice(f"{text}{note}", f"use VECMILL_{name.upper()}{value and f'={value}'}", name)


_NO_BATCH_SIZE = _option(
    "--max-batch-tokens", shown="N", note=". Batches are bounded in tokens, not in texts"
)
_OPTIMISED = _not_needed("Graphs are always optimised")
_POOLING = _not_needed("The pooling is read from the model")
_PRECISION = Advice(
    "--precision {}",
    "use VECMILL_PRECISION",
    "precision",
    {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8"},
    "not needed for the default, else --precision with fp32, fp16, bf16 or int8",
)
_WARM = _not_needed("Models are always warmed up")

# The options that `vecmill serve` does not have.
OPTIONS: Mapping[str, Advice] = {
    "--auto-truncate": _not_needed("Long texts are cut by default; --on-long-input error refuses them"),
    "--batch-size": _NO_BATCH_SIZE,
    "--bettertransformer": _OPTIMISED,
    "--compile": _option("--engine", "torch-compile"),
    "--cors-allow-origin": _option("--cors-origin"),
    "--default-prompt": _words("`prompt` in a request, or the model's own default prompt"),
    "--default-prompt-name": _words("`prompt_name` in a request, or the model's own default prompt"),
    "--dense-path": _not_needed("Dense modules are read from the model"),
    "--device-id": _option("--device", shown="cuda:{}"),
    "--disable-spans": _not_needed("The server sends traces only with --tracing"),
    "--dtype": _PRECISION,
    "--embedding-dtype": _words("`output_dtype` in a request"),
    "--hf-api-token": _variable("HF_TOKEN"),
    "--hf-token": _variable("HF_TOKEN"),
    "--hostname": _option("--host"),
    "--huggingface-hub-cache": _variable("HF_HUB_CACHE", "={}"),
    "--json-output": _option("--log-format", "json"),
    "--lengths-via-tokenize": _not_needed("Lengths are always in tokens"),
    "--max-batch-requests": _NO_BATCH_SIZE,
    "--max-client-batch-size": _option("--max-inputs"),
    "--max-concurrent-requests": _option("--max-queue-texts"),
    "--model-id": Advice("a plain argument, vecmill serve {}", "use VECMILL_MODEL", "models"),
    "--model-warmup": _WARM,
    "--no-bettertransformer": _OPTIMISED,
    "--no-compile": _not_needed("Models are compiled only with --engine torch-compile"),
    "--no-lengths-via-tokenize": _words("not possible", "Lengths are always in tokens"),
    "--no-model-warmup": _WARM,
    "--no-trust-remote-code": _not_needed("Code of models runs only with --trust-remote-code MODEL"),
    "--no-vector-disk-cache": _not_needed("There is no disk cache without --result-cache-dir"),
    "--onnx-disable-optimize": _OPTIMISED,
    "--onnx-do-not-prefer-quantized": _not_needed("int8 is used only with --precision int8"),
    "--otlp-endpoint": _option(
        "--tracing", shown="", note=", and the environment variable OTEL_EXPORTER_OTLP_ENDPOINT"
    ),
    "--otlp-service-name": _variable("OTEL_SERVICE_NAME", "={}"),
    "--payload-limit": _option("--max-body-bytes"),
    "--permissive-cors": _option("--cors-origin", "*"),
    "--pooling": _POOLING,
    "--pooling-method": _POOLING,
    "--preload-only": _words("the command `vecmill pull MODEL`"),
    "--prometheus-port": _not_needed("/metrics is on the same port"),
    "--proxy-root-path": _words("not needed if the proxy removes the prefix, else --url-prefix {}"),
    "--redirect-slash": _not_needed("/ is a probe, and shows a page in a browser"),
    "--revision": _words("a part of the model's name: owner/name@{}"),
    "--served-model-name": _option("--alias"),
    "--tokenization-workers": _not_needed(),
    "--uds-path": _not_needed("There is no separate backend. --uds is a socket for clients"),
    "--vector-disk-cache": _words("--result-cache-dir with a folder"),
    "-p": _option("--port"),
}
# Of variables alone: the options have the same names here, or there are none.
_VARIABLES: Mapping[str, Advice] = {
    "--api-key": _option("--api-key"),
    "--device": _option("--device"),
    "--engine": _option("--engine"),
    "--home": _variable("HF_HOME"),
    "--host": _option("--host"),
    "--log-level": _option("--log-level"),
    "--max-batch-tokens": _option("--max-batch-tokens"),
    "--port": _option("--port"),
    "--queue-size": _option("--max-queue-texts"),
    "--trust-remote-code": _option("--trust-remote-code"),
    "--url-prefix": _option("--url-prefix"),
}

OWN = "VECMILL_"
# Of commands other than `serve`, and of the build.
_OTHER_COMMANDS = frozenset(("VECMILL_CONFIG", "VECMILL_MODEL", "VECMILL_CACHE_DIR", "VECMILL_MINILM_WHEEL"))
_BENCH = "VECMILL_BENCH_"
# Kubernetes sets these for each service whose name begins with `vecmill`.
_SERVICE_VARIABLE = re.compile(
    r"VECMILL_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP)(?:_\w+)?)|VECMILL_\w+_PORT"
)
INFINITY = "INFINITY_"
# Names that only TEI uses, and MODEL_ID, without which TEI does not start.
TEI_SIGNS = frozenset(
    (
        *("AUTO_TRUNCATE", "DEFAULT_PROMPT_NAME", "DENSE_PATH", "MAX_BATCH_REQUESTS", "MAX_BATCH_TOKENS"),
        *("MAX_CLIENT_BATCH_SIZE", "MODEL_ID", "TOKENIZATION_WORKERS"),
    )
)
# TEI's variables whose names other programs use too. HOSTNAME is left out, because every container has it.
TEI_GENERIC = frozenset(
    (
        *("API_KEY", "CORS_ALLOW_ORIGIN", "DEFAULT_PROMPT", "DTYPE", "HF_API_TOKEN", "HUGGINGFACE_HUB_CACHE"),
        *("JSON_OUTPUT", "LOG_LEVEL", "MAX_CONCURRENT_REQUESTS", "PAYLOAD_LIMIT", "POOLING", "PORT"),
        *("REVISION", "SERVED_MODEL_NAME"),
    )
)
# Kubernetes sets NAME_PORT to such a value for each service called NAME.
_SERVICE_LINK = "tcp://"


class ServeCommand(GroupedCommand):
    """The command `serve`, which explains the options of other servers that it does not have."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments. Raises `UsageError`, with a line for each option of another server."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            lines = list(explain_options(given, known=_options_of(self)))
            if not lines:
                raise
            text = "\n".join((f"{error.message} Options of another server, and what replaces them:", *lines))
            raise click.UsageError(text, ctx) from error


def _options_of(command: click.Command) -> frozenset[str]:
    return frozenset(
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    )


def explain_options(arguments: Sequence[str], *, known: Collection[str] = ()) -> Iterator[str]:
    """Return a line for each option of another server in `arguments`, with its replacement.

    `known` are the options that the command has itself.
    """
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, has_value, value = argument.partition("=")
        if option in known or option not in OPTIONS:
            continue
        if not has_value and not following.startswith("-"):
            value = following
        yield f"  {option}: {OPTIONS[option].explain(value)}"


def warn_of_variables(environment: Mapping[str, str], given: Collection[str]) -> None:
    """Log one warning if `environment` has variables of TEI or Infinity. Their values are not logged.

    `given` are the parameters of `vecmill serve` that are set: they replace variables.
    """
    unread = find_variables(environment, given)
    if unread:
        listed = ", ".join(f"{name} ({advice.short})" for name, advice in unread.items())
        logger.warning("environment variables of another server are not read: %s", listed)


def warn_of_misspelt(environment: Mapping[str, str], parameters: Collection[str]) -> None:
    """Log one warning if `environment` has variables of vecmill that nothing reads. Values are not logged.

    `parameters` are those of `vecmill serve`, which reads a variable for each.
    """
    known = {*(f"{OWN}{name.upper()}" for name in parameters), *_OTHER_COMMANDS}
    unread = [name for name in sorted(environment) if is_misspelt(name, known)]
    if unread:
        listed = ", ".join(f"{name}{_suggest(name, known)}" for name in unread)
        logger.warning("environment variables with the prefix VECMILL_ are not read: %s", listed)


def is_misspelt(name: str, known: Collection[str]) -> bool:
    """Return whether a variable looks like one of vecmill, and is neither known nor made by Kubernetes."""
    is_read = name in known or name.startswith(_BENCH)
    return name.startswith(OWN) and not is_read and _SERVICE_VARIABLE.fullmatch(name) is None


def _suggest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1, 0.8)
    return f" (did you mean {near[0]}?)" if near else ""


def find_variables(environment: Mapping[str, str], given: Collection[str]) -> dict[str, Advice]:
    """Return the variables of TEI and Infinity that nothing in `environment` and `given` replaces.

    Each has the advice about it. Generic names, such as PORT, count only beside a name in `TEI_SIGNS`.
    """
    unread = {
        name: advice
        for name, advice in _variables(environment)
        if advice.replaced_by not in given and advice.replaced_by not in environment
    }
    has_signs = not TEI_SIGNS.isdisjoint(unread)
    return {name: each for name, each in unread.items() if has_signs or name.startswith(INFINITY)}


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, Advice]]:
    for name, value in sorted(environment.items()):
        if not name.startswith(INFINITY) and name not in TEI_SIGNS | TEI_GENERIC:
            continue
        option = f"--{name.removeprefix(INFINITY).lower().replace('_', '-')}"
        advice = OPTIONS.get(option) or _VARIABLES.get(option)
        if advice is not None and not value.startswith(_SERVICE_LINK):
            yield name, advice

"""The options of TEI and Infinity that `vecmill serve` does not have, and what replaces them.

A command line with such an option is refused, and the error message names the replacement. docs/moving-in.md
has the same replacements.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import click

_NO_BATCH_SIZE = "--max-batch-tokens N. Batches are bounded in tokens, not in texts"
_OPTIMISED = "not needed. Graphs are always optimised"
_POOLING = "not needed. The pooling is read from the model"
_WARM = "not needed. Models are always warmed up"

# The replacement of each option. {} stands for the value of the option.
REPLACEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "--auto-truncate": 'not needed. Long texts are cut, unless a request has "truncate": false',
        "--batch-size": _NO_BATCH_SIZE,
        "--bettertransformer": _OPTIMISED,
        "--compile": "--engine torch-compile",
        "--cors-allow-origin": "--cors-origin {}",
        "--default-prompt": "`prompt` in a request, or the model's own default prompt",
        "--default-prompt-name": "`prompt_name` in a request, or the model's own default prompt",
        "--dense-path": "not needed. Dense modules are read from the model",
        "--device-id": "--device cuda:{}",
        "--disable-spans": "not needed. The server sends traces only with --tracing",
        "--dtype": "--precision {}",
        "--embedding-dtype": "`output_dtype` in a request",
        "--hf-api-token": "the environment variable HF_TOKEN",
        "--hf-token": "the environment variable HF_TOKEN",
        "--hostname": "--host {}",
        "--huggingface-hub-cache": "the environment variable HF_HUB_CACHE={}",
        "--json-output": "--log-format json",
        "--lengths-via-tokenize": "not needed. Lengths are always in tokens",
        "--max-batch-requests": _NO_BATCH_SIZE,
        "--max-client-batch-size": "--max-inputs {}",
        "--max-concurrent-requests": "--max-queue-texts {}",
        "--model-id": "a plain argument, vecmill serve {}",
        "--model-warmup": _WARM,
        "--no-bettertransformer": _OPTIMISED,
        "--no-compile": "not needed. Models are compiled only with --engine torch-compile",
        "--no-lengths-via-tokenize": "not possible. Lengths are always in tokens",
        "--no-model-warmup": _WARM,
        "--no-trust-remote-code": "not needed. Code of models runs only with --trust-remote-code MODEL",
        "--no-vector-disk-cache": "not needed. There is no disk cache",
        "--onnx-disable-optimize": _OPTIMISED,
        "--onnx-do-not-prefer-quantized": "not needed. int8 is used only with --precision int8",
        "--otlp-endpoint": "--tracing, and the environment variable OTEL_EXPORTER_OTLP_ENDPOINT",
        "--otlp-service-name": "the environment variable OTEL_SERVICE_NAME={}",
        "--payload-limit": "--max-body-bytes {}",
        "--permissive-cors": "--cors-origin '*'",
        "--pooling": _POOLING,
        "--pooling-method": _POOLING,
        "--preload-only": "the command `vecmill pull MODEL`",
        "--prometheus-port": "not needed. /metrics is on the same port",
        "--proxy-root-path": "not needed if the proxy removes the prefix, else --url-prefix {}",
        "--redirect-slash": "not needed. / is a probe, and shows a page in a browser",
        "--revision": "a part of the model's name: owner/name@{}",
        "--served-model-name": "--alias {}",
        "--tokenization-workers": "not needed",
        "--uds-path": "not needed. There is no separate backend. --uds is a socket for clients",
        "--vector-disk-cache": "not needed. There is no disk cache",
        "-p": "--port {}",
    }
)

# The values of an option that have other names here.
VALUES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"--dtype": MappingProxyType({"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8"})}
)
_UNKNOWN_VALUES: Mapping[str, str] = MappingProxyType(
    {"--dtype": "not needed for the default, else --precision with fp32, fp16, bf16 or int8"}
)


class ServeCommand(click.Command):
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


def explain_options(arguments: Sequence[str], *, known: Collection[str] = ()) -> Iterator[str]:
    """Return a line for each option of another server in `arguments`, with its replacement.

    `known` are the options that the command has itself.
    """
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, has_value, value = argument.partition("=")
        if option in known or option not in REPLACEMENTS:
            continue
        if not has_value and not following.startswith("-"):
            value = following
        yield f"  {option}: {_replacement(option, value)}"


def _replacement(option: str, value: str) -> str:
    names = VALUES.get(option, {value: value})
    if value not in names:
        return _UNKNOWN_VALUES[option]
    return REPLACEMENTS[option].replace("{}", names[value] or "VALUE")


def _options_of(command: click.Command) -> frozenset[str]:
    return frozenset(
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    )

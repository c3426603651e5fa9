"""The server that a configuration file describes, as the targets need it, and the checks of targets."""

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.models.hub import HubName
from vecmill.models.location import EMBEDDED_MODEL
from vecmill_server.base.config_file import ConfigFile, read_config_file
from vecmill_server.base.deploy_settings import DeploySettings
from vecmill_server.base.options import build_settings, default_values
from vecmill_server.base.settings import ServerSettings
from vecmill_server.catalog.model_choice import ModelChoice, choose_models
from vecmill_server.deploy.extras import image_extra_notes

# The name of the configuration file in every target.
CONFIG_FILE = "vecmill.toml"
# From the end of `drain_s` until the process is killed.
LAST_SECONDS = 10
# Files of the process beside its connections: models, batches, threads.
OTHER_OPEN_FILES = 1024

_NOT_IN_NAMES = re.compile("[^a-z0-9]+")
_LONGEST_NAME = 40
# The options, beside the models, that an image for one engine chooses.
_IMAGE_OPTIONS = ("engine", "precision", "device")


@dataclass(frozen=True, slots=True)
class DeployedServer:
    """A server that is to run elsewhere.

    `name` is made from the name of the configuration file, whose text is `text`. `directories` are the
    model directories, as absolute paths, and `hub_models` the names of models of a hub, both by their places
    in the file. `choices` are what the models are served with, as `vecmill serve` reads the file; if it names
    none, the embedded model.
    """

    name: str
    text: str
    settings: ServerSettings
    choices: tuple[ModelChoice, ...]
    deploy: DeploySettings
    directories: Mapping[str, Path]
    hub_models: Mapping[str, str]

    @property
    def chosen_options(self) -> tuple[str, ...]:
        """The options of the file that an image or a shell may set too, in an environment variable."""
        configs = [each.config for each in self.choices]
        chosen = [
            name for name in _IMAGE_OPTIONS if any(getattr(each, name, None) is not None for each in configs)
        ]
        return tuple(chosen) if self.choices[0].model is None else ("model", *chosen)

    @property
    def stop_s(self) -> int:
        """The seconds from the signal to stop until the process may be killed."""
        return math.ceil(self.settings.longest_lame_duck_s + self.settings.drain_s) + LAST_SECONDS

    @property
    def ip_address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """The address of the machine to listen on. Raises `InvalidConfig` if it is a name."""
        host = self.settings.host
        try:
            return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        except ValueError:
            raise InvalidConfig(
                f"server.host must be an IP address there, such as 127.0.0.1 or 0.0.0.0, not {host!r}."
            ) from None

    @property
    def address(self) -> str:
        """`ip_address` and the port. Raises `InvalidConfig`."""
        host, port = self.ip_address, self.settings.port
        if port == 0:
            raise InvalidConfig("server.port must not be 0 there, since clients have to know the port.")
        return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"

    def replica_notes(self, target: str) -> tuple[str, ...]:
        """Return a sentence for a target that runs one server, if the file wants more."""
        wanted = self.deploy.replicas
        return (f"{target} runs one server, not the {wanted} of deploy.replicas.",) if wanted > 1 else ()

    @property
    def open_notes(self) -> tuple[str, ...]:
        """A sentence for a server that other machines reach and that asks for no key."""
        is_closed = self.settings.has_api_keys or self.settings.uds is not None or self.ip_address.is_loopback
        if is_closed:
            return ()
        return (f"Everyone who reaches {self.address} can use the server: set server.api_key_file.",)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the file names and this machine does not have."""
        key_file = self.settings.api_key_file
        is_missing = key_file is not None and not key_file.exists()
        return (
            *(
                f"{place}: {model!r} is no directory here, so it is taken for a model of a hub."
                for place, model in self.hub_models.items()
            ),
            *((f"server.api_key_file: {key_file} is not on this machine yet.",) if is_missing else ()),
        )

    @property
    def open_files(self) -> int:
        """The limit on open files that all connections need."""
        return self.settings.max_connections + OTHER_OPEN_FILES


def read_server(path: Path) -> DeployedServer:
    """Read a configuration file and check it for all targets. Raises `InvalidConfig`."""
    config = read_config_file(path)
    try:
        return _check(path, config)
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error.message}") from error


def _check(path: Path, config: ConfigFile) -> DeployedServer:
    settings = build_settings(ServerSettings, {**default_values(ServerSettings), **config.options})
    of_models = {**default_values(MillConfig), **config.options}
    choices = choose_models((), config.models, of_models, ())
    _refuse_secrets(settings)
    places = {f"models[{index}].model": each.model for index, each in enumerate(config.models)}
    if settings.api_key_file is not None:
        _require_absolute("server.api_key_file", settings.api_key_file)
    return DeployedServer(
        name=_NOT_IN_NAMES.sub("-", path.stem.lower()).strip("-")[:_LONGEST_NAME].strip("-") or "vecmill",
        text=path.read_text(encoding="utf-8"),
        settings=settings,
        choices=tuple(choices),
        deploy=config.deploy,
        directories=dict(_find_directories(places)),
        hub_models={place: model for place, model in places.items() if HubName.parse(model) is not None},
    )


def _refuse_secrets(settings: ServerSettings) -> None:
    if settings.api_key:
        raise InvalidConfig(
            "server.api_key would be copied into the files that are written. Put the keys into a file, and "
            "name it with server.api_key_file."
        )
    if settings.admin_key_file is not None:
        raise InvalidConfig(
            "server.admin_key_file is not copied or mounted by any target. Bring the file to the server "
            "yourself, and set VECMILL_ADMIN_KEY_FILE in the environment of the server."
        )
    if settings.metrics_key:
        raise InvalidConfig(
            "server.metrics_key would be copied into the files that are written. Set VECMILL_METRICS_KEY in "
            "the environment of the server instead."
        )


def _find_directories(models: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for place, model in models.items():
        path = Path(model)
        if path.is_absolute():
            yield place, path
        elif model != EMBEDDED_MODEL and (HubName.parse(model) is None or path.exists()):
            _require_absolute(place, path)


def _require_absolute(place: str, path: Path) -> None:
    if not path.is_absolute():
        raise InvalidConfig(
            f"{place} is the relative path {str(path)!r}, but the server will have another working "
            "directory. Write an absolute path."
        )


def refuse_sockets(server: DeployedServer) -> None:
    """Raise `InvalidConfig` if the server listens on something else than a port."""
    for name in ("uds", "fd"):
        if getattr(server.settings, name) is not None:
            raise InvalidConfig(f"server.{name} does not work in a container. Remove it.")


def image_notes(server: DeployedServer) -> tuple[str, ...]:
    """Return sentences about what the image has to contain: directories that are not here, and extras."""
    missing = [(place, path) for place, path in server.directories.items() if not path.exists()]
    return (
        *(image_note(place, path) for place, path in missing),
        *image_extra_notes(server.choices, server.settings, server.deploy.image),
    )


def image_note(place: str, path: Path) -> str:
    """Return the sentence about a model directory that is not on this machine."""
    return f"The image has to contain {path} ({place}), which is not on this machine."

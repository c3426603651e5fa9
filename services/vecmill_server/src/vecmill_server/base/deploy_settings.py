"""The table `[deploy]` of the configuration file and the tables in it, for `vecmill deploy render`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vecmill.config import setting
from vecmill_server.base.settings import require

# What the images have, and what the targets mount: a volume of models there would hide it.
_TAKEN = tuple(
    Path(folder)
    for folder in (
        *("/bin", "/dev", "/etc/vecmill", "/etc/vecmill-ray", "/home/ray", "/lib", "/opt/vecmill", "/proc"),
        *("/run/certificates", "/run/secrets/vecmill", "/sys", "/tmp", "/usr/bin", "/usr/lib"),
        *("/var/cache/vecmill", "/var/lib/vecmill"),
    )
)


@dataclass(frozen=True, slots=True)
class HelmDeploySettings:
    """The table `[deploy.helm]` (helm, terraform)."""

    shared_cache: bool = setting(False, "Make a volume of prepared models that all pods share.")


@dataclass(frozen=True, slots=True)
class RayDeploySettings:
    """The table `[deploy.ray]`. Raises `InvalidConfig` for a wrong value."""

    image: str | None = setting(None, "The image with Ray and vecmill-ray; by default that of [deploy].")

    def __post_init__(self) -> None:
        require(self.image is None or bool(self.image.strip()), "deploy.ray.image must not be empty")


@dataclass(frozen=True, slots=True)
class ModelVolume:
    """The table `[deploy.model_volume]`: what pods mount at `path`. Raises `InvalidConfig` for a wrong value.

    `image` is an OCI image or artifact whose files are model directories, `claim` a PersistentVolumeClaim.
    """

    path: Path = setting(Path("/models"), "Where the pods have the model directories.")
    image: str | None = setting(None, "An OCI image or artifact with model directories.")
    claim: str | None = setting(None, "The name of a PersistentVolumeClaim with model directories.")

    def __post_init__(self) -> None:
        sources = [each for each in (self.image, self.claim) if each is not None]
        require(
            len(sources) == 1 and bool(sources[0].strip()), "deploy.model_volume needs either image or claim"
        )
        require(
            self.path.is_absolute() and len(self.path.parts) > 1 and ".." not in self.path.parts,
            "deploy.model_volume.path must be an absolute path below /",
        )
        for folder in _TAKEN:
            require(
                not folder.is_relative_to(self.path),
                f"deploy.model_volume.path must not be {self.path}: it would hide {folder} of the pods",
            )


@dataclass(frozen=True, slots=True)
class OwnDeploySettings:
    """The keys of `[deploy]` itself. Raises `InvalidConfig` for a wrong value."""

    image: str = setting("vecmill:cpu", "The image of the containers (compose, helm, terraform, ray).")
    replicas: int = setting(1, "The number of servers that run at the same time (helm, terraform, ray).")
    cores: int | None = setting(None, "The cores of each server; by default all of the machine.")
    memory_mib: int | None = setting(None, "The memory of each server, in MiB; by default without a limit.")
    gpus: int = setting(0, "The GPUs of each server.")
    cache_gib: int = setting(20, "The size of the volume of models, in GiB (helm, terraform, ray).")
    cache_claim: str | None = setting(
        None, "A PersistentVolumeClaim with prepared models, which all pods share (helm, terraform, ray)."
    )
    program: Path = setting(Path("/opt/vecmill/bin/vecmill"), "The program `vecmill` (systemd).")

    def __post_init__(self) -> None:
        for name in ("replicas", "cores", "memory_mib", "cache_gib"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"deploy.{name} must be at least 1")
        require(self.gpus >= 0, "deploy.gpus must not be negative")
        require(bool(self.image.strip()), "deploy.image must not be empty")
        require(
            self.cache_claim is None or bool(self.cache_claim.strip()), "deploy.cache_claim must not be empty"
        )
        require(self.program.is_absolute(), "deploy.program must be an absolute path")


@dataclass(frozen=True, slots=True)
class DeploySettings(OwnDeploySettings):
    """The table `[deploy]`, which `vecmill serve` only checks, with the tables in it."""

    helm: HelmDeploySettings = field(default_factory=HelmDeploySettings)
    ray: RayDeploySettings = field(default_factory=RayDeploySettings)
    model_volume: ModelVolume | None = None

    def __post_init__(self) -> None:
        OwnDeploySettings.__post_init__(self)
        require(
            self.cache_claim is None or not self.helm.shared_cache,
            "deploy.cache_claim and deploy.helm.shared_cache exclude each other",
        )


# The tables in [deploy], by their keys.
DEPLOY_TABLES: Mapping[str, type[HelmDeploySettings | RayDeploySettings | ModelVolume]] = {
    "helm": HelmDeploySettings,
    "ray": RayDeploySettings,
    "model_volume": ModelVolume,
}

"""The pool of actors for a cluster: how many, and the cores and GPUs of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vecmill.errors import InvalidConfig

_GPU_DEVICES = ("cuda", "tensorrt", "rocm", "migraphx")


@dataclass(frozen=True, slots=True)
class ActorPool:
    """The number of actors, and the cores and GPUs of each actor."""

    actors: int
    cores: int
    gpus: int


def describe_wait(cores: int, gpus: int) -> str:
    """Return the message while no node has this room."""
    amount = "1 free core" if cores == 1 else f"{cores} free cores"
    lower = " --cores lowers the number of cores." if cores > 1 else ""
    return (
        f"Waiting for a node with {amount}{' and a free GPU' if gpus else ''}. `ray status` shows how many "
        f"cores are in use.{lower}"
    )


def choose_pool(
    nodes: Sequence[Mapping[str, float]], cores: int | None, actors: int | None, device: str | None
) -> ActorPool:
    """Choose the pool for nodes with these resources.

    By default a pool has one actor for each node or GPU, and as many actors as there is room for. Raises
    `InvalidConfig` if no node has enough cores.
    """
    working = [node for node in nodes if node.get("CPU", 0) >= 1]
    if not working:
        raise InvalidConfig("No node of the Ray cluster has a CPU for this command.")
    has_gpus = all(node.get("GPU", 0) >= 1 for node in working)
    needs_gpu = has_gpus if device is None else device.startswith(_GPU_DEVICES)
    gpus = 1 if needs_gpu else 0
    if cores is None:
        per_node = [node["CPU"] // (node.get("GPU", 0) or 1 if needs_gpu else 1) for node in working]
        cores = max(1, int(min(per_node)))
    room = sum(
        int(min(node["CPU"] // cores, node.get("GPU", 0) if needs_gpu else node["CPU"])) for node in working
    )
    if not room and actors is None:
        most = int(max(node["CPU"] for node in working))
        raise InvalidConfig(
            f"No node of the Ray cluster has room for an actor with {cores} cores"
            f"{' and a GPU' if gpus else ''}: the largest node has {most} cores."
        )
    return ActorPool(actors or room, cores, gpus)

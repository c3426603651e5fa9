"""The options of a run, the checks of its paths, and the pool of actors that a cluster has room for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vecmill.bulk.input_scan import ColumnOptions
from vecmill.commands.embed.options import choose_model
from vecmill.commands.embed.run import parse_columns, parse_parameters
from vecmill.errors import InvalidConfig
from vecmill_ray.absolute_paths import absolute_config, absolute_model, absolute_values
from vecmill_ray.bulk.block_embedding import BulkModel
from vecmill_ray.bulk.inputs import BulkInput, FileInput, InputAddress
from vecmill_ray.bulk.storage import SharedStorage, absolute_address


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """The options of the command. `actors` is the number of actors; `None` is as many as there is room."""

    address: InputAddress
    output: str
    columns: ColumnOptions
    choice: BulkModel
    block_rows: int
    actors: int | None = None
    has_shared_files: bool = False


def parse_options(address: str, output: str, options: Mapping[str, Any]) -> BulkOptions:
    """Convert the options of the command line, which are given by name. Paths become absolute.

    Raises `SetupError` if the model or the configuration file is invalid.
    """
    options = absolute_values(options)
    # The actors decide about cores, not the machine of the server that the file describes.
    found = choose_model(options, cores=options["cores"])
    model = replace(found, model=absolute_model(found.model), config=absolute_config(found.config))
    columns, parameters = parse_columns(options), parse_parameters(options)
    if columns.picture_column is not None:
        parameters = parameters.for_pictures()
    return BulkOptions(
        InputAddress(absolute_address(address), options["query"], options["key_column"]),
        absolute_address(output),
        columns,
        BulkModel(model, parameters),
        options["block_rows"],
        options["actors"],
        options["shared_files"],
    )


def refuse_overlap(address: InputAddress, inputs: Sequence[BulkInput], output: SharedStorage) -> None:
    """Raise `InvalidConfig` if the output contains an input, or the input folder would contain the output."""
    folder = f"{output.path.rstrip('/')}/"
    files = [found.file for found in inputs if isinstance(found, FileInput)]
    for file in files:
        is_same_kind = file.filesystem.type_name == output.filesystem.type_name
        if is_same_kind and file.path.startswith(folder):
            raise InvalidConfig(f"{output.name} contains the input {file}. Choose another output.")
    if files and SharedStorage(address.address).would_list(output):
        raise InvalidConfig(
            f"{output.name} is in the folder of the input, so the next run would read the output too. Choose "
            "another output."
        )


def refuse_local_files(inputs: Sequence[BulkInput], output: SharedStorage, nodes: int) -> None:
    """Raise `InvalidConfig` if files are local and the cluster has several nodes."""
    if nodes == 1:
        return
    local = [str(found.source.path) for found in inputs if found.is_local]
    if output.is_local:
        local.append(output.name)
    if local:
        raise InvalidConfig(
            f"{local[0]} is a local path, which the other nodes of the Ray cluster do not reach. Use storage "
            "that all nodes reach, such as s3://bucket/folder. If the path is a file system that all nodes "
            "mount, add --shared-files."
        )


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

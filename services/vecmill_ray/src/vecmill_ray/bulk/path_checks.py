"""The checks of the paths of a run: the output and the inputs are apart, and all nodes reach them."""

from collections.abc import Sequence

from vecmill.errors import InvalidConfig
from vecmill_ray.bulk.inputs import BulkInput, FileInput, InputAddress
from vecmill_ray.bulk.storage import SharedStorage


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
    local = [str(found.source.path) for found in inputs if _is_local(found)]
    if output.is_local:
        local.append(output.name)
    if local:
        raise InvalidConfig(
            f"{local[0]} is a local path, which the other nodes of the Ray cluster do not reach. Use storage "
            "that all nodes reach, such as s3://bucket/folder. If the path is a file system that all nodes "
            "mount, add --shared-files."
        )


def _is_local(found: BulkInput) -> bool:
    if isinstance(found, FileInput):
        return bool(found.file.filesystem.type_name == "local")
    return bool(getattr(found, "is_local", False))

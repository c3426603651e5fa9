"""An open safetensors file, whose header is checked first."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.values.json_text import decode_long_json

LENGTH_BYTES = 8  # of the length of a safetensors header
MAX_HEADER_BYTES = 16 * 2**20  # of safetensors: about 100 bytes for each tensor
# The library holds the interpreter lock while it reads a header. A mixture of experts in one file has 18,000.
MAX_TENSORS = 65_536
_MAX_METADATA = 65_536  # entries
_KEYS_PER_TENSOR = 4  # its name, dtype, shape and data_offsets


class SafetensorsFile:
    """An open safetensors file, with the methods of the library's files and the places of tensors."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises `CorruptModel`, `OSError` and `safetensors.SafetensorError`."""
        from safetensors import safe_open

        self._header_bytes = _check_header(path)
        self._path = path
        self._file: Any = safe_open(path, framework="np")
        self._starts: Mapping[str, int] | None = None

    def keys(self) -> Iterable[str]:
        """Return the names of the tensors."""
        return list(self._file.keys())

    def get_slice(self, name: str) -> Any:
        """Return the tensor `name`, without reading it."""
        return self._file.get_slice(name)

    def get_tensor(self, name: str) -> Any:
        """Return a copy of the tensor `name` as an array of its own dtype."""
        return self._file.get_tensor(name)

    def find_offset(self, name: str) -> int | None:
        """Return the byte of the file at which the tensor `name` begins."""
        if self._starts is None:
            self._starts = self._read_starts()
        return self._starts[name]

    def _read_starts(self) -> Mapping[str, int]:
        """Read the header again, which the library has checked: its files do not tell offsets."""
        with self._path.open("rb") as file:
            header = decode_long_json(file.read(LENGTH_BYTES + self._header_bytes)[LENGTH_BYTES:].decode())
        data = LENGTH_BYTES + self._header_bytes
        return {
            name: data + tensor["data_offsets"][0]
            for name, tensor in header.items()
            if name != "__metadata__"
        }


def _check_header(path: Path) -> int:
    """Return the size of the header in bytes. The library would read any header whole, several times.

    Raises `CorruptModel` if it is too large, or has too many tensors or entries.
    """
    if not path.is_file():
        raise CorruptModel(f"{path} is not a regular file.")
    with path.open("rb") as file:
        size = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size > MAX_HEADER_BYTES:
            raise CorruptModel(
                f"{path} is not a complete safetensors file: its header has {size} bytes; at most "
                f"{MAX_HEADER_BYTES} are read. Download the model again."
            )
        header = file.read(size)
    tensors, keys = header.count(b'"data_offsets"'), header.count(b":")
    if tensors > MAX_TENSORS:
        raise CorruptModel(f"{path} has {tensors} tensors; at most {MAX_TENSORS} are read. Divide the file.")
    if keys > _KEYS_PER_TENSOR * tensors + _MAX_METADATA:
        raise CorruptModel(f"{path} has more than {_MAX_METADATA} entries of metadata, the limit for a file.")
    return size

"""The address of a listening socket."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a listening socket: a host and a port, or the path of a Unix socket.

    The path of an abstract Unix socket, which is not in the file system, begins with a zero character.
    """

    host: str = ""
    port: int = 0
    path: Path | None = None

    @property
    def is_abstract(self) -> bool:
        """True for an abstract Unix socket."""
        return self.path is not None and str(self.path).startswith("\0")

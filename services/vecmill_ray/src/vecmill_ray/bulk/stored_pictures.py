"""The pictures that the rows of an input on a cluster name: files beside the input, in the same storage."""

import posixpath
from dataclasses import dataclass, replace

from vecmill.bulk.picture_inputs import PictureFile, PictureFolder, find_problem_of
from vecmill.pictures.picture_formats import HEAD_BYTES
from vecmill_ray.bulk.storage import StoredFile


@dataclass(frozen=True, slots=True)
class StoredPictures(PictureFolder):
    """The folder of a file in a storage without links, which no path leaves."""

    beside: StoredFile

    def find(self, name: str) -> PictureFile | str:
        """Return the file of a path in a row, or why it is none; see `PictureFolder.find`."""
        folder = posixpath.dirname(self.beside.path)
        path = posixpath.normpath(posixpath.join(folder, name))
        if not path.startswith(f"{folder}/"):
            return f"leads out of the folder of {self.beside}"
        try:
            found = self.beside.filesystem.get_file_info(path)
            if not found.is_file:
                return "is no file"
            file = replace(self.beside, name=name, path=path, size=found.size, changed=found.mtime_ns or 0)
            with file.open() as opened:
                problem = find_problem_of(file.size, opened.read(HEAD_BYTES))
        except (OSError, ValueError) as error:
            return f"cannot be read: {str(error).partition(chr(10))[0].rstrip('.')}"
        return problem or PictureFile(name, file.size, file.changed, file.open)

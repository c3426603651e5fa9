"""The files of an input: opening, decompression, lines, and the recognition of other encodings."""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from io import BufferedReader
from shlex import quote
from typing import Any, Protocol, TypeVar

from vecmill.errors import InvalidCorpus, MissingExtra
from vecmill.values.messages import pip_command

BUFFER_BYTES = 2**20  # read from a file, or a Parquet column, at a time

T = TypeVar("T")


class InputFile(Protocol):
    """A file to read, by default a `Path`. `str` returns the name that error messages show."""

    @property
    def suffix(self) -> str: ...

    def open(self, mode: Any = ...) -> Any:
        """Open the file; with the mode `rb` for reading bytes. Raises `OSError`."""
        ...


def _read_zst(file: Any) -> AbstractContextManager[Any]:
    # pyarrow's stream has no `readline`.
    return BufferedReader(import_arrow().input_stream(file, compression="zstd"), BUFFER_BYTES)


COMPRESSIONS: Mapping[str, Callable[[Any], AbstractContextManager[Any]]] = {
    ".gz": gzip.open,
    ".zst": _read_zst,
}


def is_compressed(path: InputFile) -> bool:
    """Return whether the file name extension names a compressed format."""
    return path.suffix.lower() in COMPRESSIONS


def import_arrow() -> Any:
    """Import and return pyarrow. Raises `MissingExtra`."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra(
            "Parquet and .zst files need pyarrow: install it with "
            f"{pip_command('install', 'vecmill[corpus]')}."
        ) from error
    return pyarrow


@contextmanager
def open_bytes(path: InputFile) -> Iterator[Any]:
    """Open a file for reading bytes, decompressed if its extension names a compressed format."""
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InvalidCorpus(f"{path} cannot be read: {error.strerror}.") from error
    decompress = COMPRESSIONS.get(path.suffix.lower())
    with opened:
        if decompress is None:
            yield opened
        else:
            with decompress(opened) as file:
                yield file


def read_lines(path: InputFile, file: Iterator[T]) -> Iterator[T]:
    """Return the lines of an open file. Raises `InvalidCorpus` if it cannot be read to its end."""
    try:
        yield from file
    except (OSError, zlib.error) as error:
        raise InvalidCorpus(f"{path} cannot be read to its end: {first_line(error)}.") from error
    except EOFError as error:
        raise InvalidCorpus(f"{path} cannot be read to its end: Truncated gzip file.") from error


def find_other_encoding(path: InputFile) -> str | None:
    """Return the error message for a file in an encoding other than UTF-8, with the command that converts it.

    Returns `None` for a file with at least one character of UTF-8 beyond ASCII, in which only some bytes are
    damaged. Reads the file to its end.
    """
    has_utf8, high_bytes = False, set[int]()
    with open_bytes(path) as file:
        for number, line in enumerate(read_lines(path, file)):
            marked = next((name for mark, name in _MARKS.items() if line.startswith(mark)), None)
            if number == 0 and marked is not None:
                return _advise_conversion(path, marked)
            # `surrogateescape` turns each byte that is not UTF-8 into U+DC80 to U+DCFF.
            characters = {ord(each) for each in line.decode("utf-8", "surrogateescape")}
            high_bytes |= {each - 0xDC00 for each in characters if 0xDC80 <= each <= 0xDCFF}
            has_utf8 = has_utf8 or any(0x7F < each < 0xDC80 or each > 0xDCFF for each in characters)
    if has_utf8 or not high_bytes:
        return None
    return _advise_conversion(path, "ISO-8859-1" if min(high_bytes) >= _FIRST_OF_LATIN_1 else "WINDOWS-1252")


# That of UTF-32 begins as that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Windows-1252 has characters below it, which are control codes in ISO 8859-1.
_FIRST_OF_LATIN_1 = 0xA0


def _advise_conversion(path: InputFile, encoding: str) -> str:
    called = {"ISO-8859-1": "Latin-1 (ISO-8859-1) or a similar encoding"}.get(encoding, encoding)
    fault = f"{path} is not in UTF-8, but in {called}."
    if is_compressed(path):
        command = f"iconv -f {encoding} -t UTF-8"
        return f"{fault} Decompress it, convert it with `{command}`, and compress it again."
    name = str(path)
    converted = f"{name.removesuffix(path.suffix)}.utf8{path.suffix}"
    return f"{fault} Convert it: iconv -f {encoding} -t UTF-8 {quote(name)} > {quote(converted)}"


def first_line(error: Exception) -> str:
    """Return the first line of a message, for a sentence."""
    return str(error).partition("\n")[0].rstrip(".")

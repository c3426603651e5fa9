"""The interface of stores, what vecmill keeps beside the vectors, and the checks before anything is added."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from threading import RLock
from typing import Any, ClassVar, NamedTuple

from vecmill.bulk.embedder import EmbeddingForm, Vectors
from vecmill.bulk.input_scan import ColumnType
from vecmill.errors import InvalidConfig, MissingExtra, ServerFailed, VecmillError, one_line
from vecmill.values.aliases import JsonValue
from vecmill.values.environment import environment_variables
from vecmill.values.json_text import decode_json
from vecmill.values.messages import pip_command
from vecmill.values.output_kinds import OutputDtype

# The columns of a row, beside the copied ones. The id of a row is that of its text, or of a chunk of it.
ID = "id"
VECTOR = "embedding"
SOURCE = "vecmill_source"
DIGEST = "vecmill_digest"
DOCUMENT = "document_id"  # of chunks: the id of the text
OWN_COLUMNS = (ID, VECTOR, SOURCE, DIGEST)

# The key of what is kept beside the vectors.
ABOUT = "vecmill"


_FORMS = {
    EmbeddingForm.DENSE: "one dense vector of a text",
    EmbeddingForm.SPARSE: "sparse vectors",
    EmbeddingForm.TOKENS: "several vectors of a text",
}


class Distance(StrEnum):
    """The measure by which a collection is searched."""

    COSINE = "cosine"
    DOT = "dot"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"
    HAMMING = "hamming"  # of bits


@dataclass(frozen=True, slots=True)
class CollectionAbout:
    """What all vectors of a collection have in common. `dim` counts dimensions, of binary vectors bits."""

    space: str | None
    model: str
    dim: int
    dtype: OutputDtype
    distance: Distance
    chunking: JsonValue = None
    form: EmbeddingForm = EmbeddingForm.DENSE

    def to_json(self) -> str:
        """Return the text that a store keeps beside the vectors."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes | None) -> "CollectionAbout | None":
        """Return what a text of `to_json` says, `None` for any other text."""
        try:
            found = decode_json(text or "")
            dtype, distance = OutputDtype(found["dtype"]), Distance(found["distance"])
            form = EmbeddingForm(found["form"])
            return cls(found["space"], found["model"], found["dim"], dtype, distance, found["chunking"], form)
        except (ValueError, KeyError, TypeError):
            return None

    def describe_space(self) -> str:
        """Return the name of the space, of vectors without one the name of the model."""
        return self.space or f"no named space, of the model {self.model!r}"


@dataclass(frozen=True, slots=True)
class FoundCollection:
    """A collection that exists: what vecmill keeps there, and what the store itself says of the vectors."""

    about: CollectionAbout | None
    is_empty: bool
    dim: int | None = None
    distance: Distance | None = None


class StoredRow(NamedTuple):
    """A row of a collection: its key, the id of its text, its source and its digest.

    A row that vecmill did not write has no source.
    """

    key: str
    document: str
    source: str | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class StoreRows:
    """Rows to write: their `keys`, and values of each column.

    `vectors` is (rows, dim) or, of other forms than dense, (rows,) of objects; `None` if the
    vectors of the rows stay. Values are strings, numbers, booleans or `None`.
    """

    keys: Sequence[str]
    columns: Mapping[str, Sequence[Any]]
    vectors: Vectors | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def payloads(self) -> list[dict[str, Any]]:
        """Return the columns of each row as an object."""
        names = list(self.columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def slices(self, rows: int) -> Iterator["StoreRows"]:
        """Return the rows in slices of at most so many."""
        for at in range(0, len(self), rows):
            part = slice(at, at + rows)
            columns = {name: values[part] for name, values in self.columns.items()}
            yield StoreRows(self.keys[part], columns, None if self.vectors is None else self.vectors[part])


class VectorStore(ABC):
    """One collection of a store. Calls block, and come from one thread at a time.

    A call that returns has been acknowledged by the store. Methods may raise any error of the store's client:
    call them in `reported`.
    """

    name: ClassVar[str]  # for messages
    extra: ClassVar[str]  # of the package, with the store's client
    dtypes: ClassVar[Collection[OutputDtype]] = (OutputDtype.FLOAT,)
    distances: ClassVar[Collection[Distance]]
    forms: ClassVar[Collection[EmbeddingForm]] = (EmbeddingForm.DENSE,)
    secret_variables: ClassVar[Sequence[str]] = ()  # whose values no message may show

    def __init__(self, place: str, collection: str, shown: str) -> None:
        """`place` and `collection` are those of an address, `shown` the address in messages."""
        self.place = place
        self.collection = collection
        self.shown = shown
        # A part that is still being written when a run is interrupted is finished before the store is closed.
        self._one_call = RLock()

    def open(self, about: CollectionAbout, columns: Mapping[str, ColumnType], *, adopts: bool) -> None:
        """Make the collection, or check that vectors described by `about` belong into the existing one.

        `adopts`: also into one that vecmill did not make. Raises `InvalidConfig`.
        """
        if about.form not in self.forms:
            raise InvalidConfig(f"{self.name} has no place for {_FORMS[about.form]}.")
        if about.dtype not in self.dtypes:
            raise InvalidConfig(f"{self.name} has no vectors of the type {about.dtype}: {self._offer()}.")
        if about.distance not in self.distances:
            raise InvalidConfig(f"{self.name} does not compare such vectors by {about.distance} distance.")
        with self.reported():
            self.connect()
            found = self.find()
            if found is None:
                self.create(about, columns)
                return
        _check_found(self.shown, found, about, adopts=adopts)
        with self.reported():
            self.extend(columns)
            if found.about is None:
                self.describe(about)

    @abstractmethod
    def connect(self) -> None:
        """Connect to the store, and exclude other writers where the store can."""

    @abstractmethod
    def find(self) -> FoundCollection | None:
        """Return the collection, `None` if there is none."""

    @abstractmethod
    def create(self, about: CollectionAbout, columns: Mapping[str, ColumnType]) -> None:
        """Make the collection, with `about` beside it, in one step."""

    @abstractmethod
    def describe(self, about: CollectionAbout) -> None:
        """Keep `about` beside the vectors of an existing collection."""

    def extend(self, columns: Mapping[str, ColumnType]) -> None:  # noqa: B027  most stores have no schema
        """Add the columns that an existing collection lacks."""

    @abstractmethod
    def rows(self) -> Iterable[StoredRow]:
        """Return all rows of the collection, without holding them."""

    @abstractmethod
    def upsert(self, rows: StoreRows) -> None:
        """Write rows with vectors; a row with the same key is replaced."""

    @abstractmethod
    def update(self, rows: StoreRows) -> None:
        """Replace the columns of existing rows; their vectors stay."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete rows."""

    @abstractmethod
    def close(self, *, is_complete: bool) -> None:
        """Disconnect. `is_complete`: all rows were written, so the store may tidy up."""

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Wait for other calls, and turn an error of the client into `ServerFailed`, without secrets."""
        try:
            with self._one_call:
                yield
        except VecmillError:
            raise
        except ImportError as error:
            raise MissingExtra(
                f"{self.name} needs a package that is not installed ({one_line(error)}): "
                f"{pip_command('install', f'vecmill[{self.extra}]')}."
            ) from error
        except Exception as error:
            message = one_line(error) or type(error).__name__
            for variable in self.secret_variables:
                if secret := environment_variables().get(variable):
                    message = message.replace(secret, "***")
            raise ServerFailed(
                f"{self.shown}: {self.name} failed: {message.rstrip('.')}. What it has acknowledged is kept, "
                "and the same command continues from there."
            ) from None

    def _offer(self) -> str:
        return " and ".join(sorted(kind.value for kind in self.dtypes)) + " only"


def _check_found(shown: str, found: FoundCollection, about: CollectionAbout, *, adopts: bool) -> None:
    """Raise `InvalidConfig` if vectors that `about` describes do not belong into a collection."""
    known = found.about
    if known is None and not found.is_empty and not adopts:
        raise InvalidConfig(
            f"{shown} has vectors that vecmill did not write, so their space is not known. Choose another "
            "collection, or add --adopt if they are of the same model."
        )
    if known is not None:
        is_same = known.space == about.space and (about.space is not None or known.model == about.model)
        if not is_same:
            raise InvalidConfig(
                f"{shown} has vectors of the space {known.describe_space()}, made by {known.model!r}, but "
                f"the new ones are of {about.describe_space()}, made by {about.model!r}. Choose another "
                "collection."
            )
        if (known.chunking is None) != (about.chunking is None):
            held = "texts" if known.chunking is None else "chunks of texts"
            raise InvalidConfig(f"{shown} has a row for {held}. Choose another collection.")
    for name, here, there in (
        ("dimensions", about.dim, found.dim if known is None else known.dim),
        ("dimensions", about.dim, found.dim),
        ("type", about.dtype, known and known.dtype),
        ("form", about.form, known and known.form),
        ("distance", about.distance, found.distance if known is None else known.distance),
        ("distance", about.distance, found.distance),
    ):
        if there is not None and here != there:
            raise InvalidConfig(
                f"{shown} has vectors with the {name} {there}, but the new ones have {here}. Choose another "
                "collection."
            )


def import_client(name: str) -> Any:
    """Import a module of a store's client when it is needed."""
    from importlib import import_module

    return import_module(name)

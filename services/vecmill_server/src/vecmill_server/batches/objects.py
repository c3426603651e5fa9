"""The file and batch objects of the store, and their JSON in OpenAI's format.

Times are whole Unix seconds. Source: OpenAI's API reference and the types of its clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from vecmill.values.aliases import JsonValue
from vecmill_server.base.json_schema import (
    OPTIONAL_STRING,
    Component,
    Schema,
    an_object,
    described,
    nullable,
    word,
)


class BatchStatus(StrEnum):
    """The state of a batch. The docstring of `vecmill_server.batches` shows the transitions."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


STARTED_STATUSES = (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING)
OPEN_STATUSES = (BatchStatus.VALIDATING, *STARTED_STATUSES)


class FilePurpose(StrEnum):
    """The use of a file: the input of a batch, or its output."""

    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


@dataclass(frozen=True, slots=True)
class FileObject:
    """A file that its owner can fetch. Without `expires_at`, the file is kept until a client deletes it."""

    id: str
    purpose: FilePurpose
    filename: str
    bytes: int
    created_at: int
    expires_at: int | None
    owner: str

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON of the file. `asdict` would be too slow for lists of up to ten thousand files."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            **({} if self.expires_at is None else {"expires_at": self.expires_at}),
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        }


def _without_nulls(values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the values that are there: OpenAI's schema has optional fields that may not be null."""
    return {name: value for name, value in values.items() if value is not None}


_TIME: Schema = {"type": "integer", "description": "Unix seconds"}
_FILE = {
    "id": str,
    "object": "file",
    "purpose": word(*FilePurpose),
    "filename": str,
    "bytes": int,
    "created_at": _TIME,
    "status": "processed",
}
FILE = Component("File", an_object(tuple(_FILE), {**_FILE, "expires_at": _TIME}))


@dataclass(frozen=True, slots=True)
class LineError:
    """An error in an input file. `line` counts from 1; it is `None` for an error of the whole file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class NewBatch:
    """The fields of a batch that the client sets. `window_s` is `completion_window` in seconds."""

    input_file_id: str
    endpoint: str
    completion_window: str
    window_s: int
    metadata: Mapping[str, str] | None = None
    output_expires_after_s: int | None = None


_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


@dataclass(frozen=True, slots=True)
class BatchObject:
    """A batch: the fields that the client set, its state, its progress and its times.

    `ending` is the final status that the batch will have. The first `lines_done` lines and `input_offset`
    bytes of the input are done. Their responses and errors are the first `output_bytes` and `error_bytes`
    bytes of the two output files.
    """

    id: str
    owner: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchStatus
    ending: BatchStatus
    metadata: Mapping[str, str] | None
    errors: Sequence[LineError]
    output_file_id: str
    error_file_id: str
    output_expires_after_s: int | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    total: int
    completed: int
    failed: int
    tokens: int
    lines_done: int
    input_offset: int
    output_bytes: int
    error_bytes: int

    @property
    def is_open(self) -> bool:
        """True if the batch has not ended."""
        return self.status in OPEN_STATUSES

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON of the batch. Output files appear when the batch has ended, unless empty."""
        errors = {"object": "list", "data": [asdict(error) for error in self.errors]}
        optional = {
            "errors": errors if self.errors else None,
            "output_file_id": self.output_file_id if self.output_bytes and not self.is_open else None,
            "error_file_id": self.error_file_id if self.error_bytes and not self.is_open else None,
            **{f"{name}_at": getattr(self, f"{name}_at") for name in _TIMES},
        }
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "status": self.status,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            **_without_nulls(optional),
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": self.metadata,
            "usage": {
                "input_tokens": self.tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.tokens,
            },
        }


# The maximum number of entries, and the maximum lengths of names and values in characters.
MAX_METADATA = 16
MAX_METADATA_NAME = 64
MAX_METADATA_VALUE = 512
METADATA: Schema = {
    "type": "object",
    "nullable": True,
    "maxProperties": MAX_METADATA,
    "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE},
}
_LINE_ERROR = {"code": str, "message": str, "param": OPTIONAL_STRING, "line": nullable({"type": "integer"})}
_USAGE = {
    "input_tokens": int,
    "input_tokens_details": {"cached_tokens": int},
    "output_tokens": int,
    "output_tokens_details": {"reasoning_tokens": int},
    "total_tokens": int,
}
_BATCH = {
    "id": str,
    "object": "batch",
    "endpoint": str,
    "input_file_id": str,
    "completion_window": str,
    "status": word(*BatchStatus),
    "created_at": _TIME,
    "expires_at": _TIME,
    "request_counts": {"total": int, "completed": int, "failed": int},
    "metadata": METADATA,
    "usage": described(_USAGE, "The tokens of the inputs; OpenAI's other counts are 0."),
}
_OPTIONAL_OF_BATCH = {
    "errors": {"object": "list", "data": [_LINE_ERROR]},
    "output_file_id": str,
    "error_file_id": str,
    **{f"{name}_at": _TIME for name in _TIMES},
}
BATCH = Component("Batch", an_object(tuple(_BATCH), {**_BATCH, **_OPTIONAL_OF_BATCH}))


def list_schema(name: str, item: Component) -> Component:
    """Return the schema of a page of a list of `item`."""
    return Component(
        name,
        {
            "object": "list",
            "data": [item],
            "first_id": OPTIONAL_STRING,
            "last_id": OPTIONAL_STRING,
            "has_more": bool,
        },
    )


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The next lines of a batch that have ended, and the bytes to write for them.

    `completed` and `failed` count requests, without blank lines.
    """

    lines: int
    input_bytes: int
    output: bytes
    errors: bytes
    completed: int
    failed: int
    tokens: int


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The limits of a store. `owner_count` returns the number of owners that share them."""

    max_open: int
    max_bytes: int
    owner_count: Callable[[], int] = lambda: 1


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: `limit` entries after the entry with the id `after`."""

    limit: int
    after: str | None = None
    newest_first: bool = True

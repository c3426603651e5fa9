"""What is kept of a file and of a batch, and how OpenAI's clients see them.

Times are whole Unix seconds. Source of the documents: OpenAI's API reference and the types of its clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from vecmill.types import JsonValue


class BatchStatus(StrEnum):
    """Where a batch is; `vecmill_server.batches` draws it."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


AT_WORK = (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING)
OPEN = (BatchStatus.VALIDATING, *AT_WORK)


class Purpose(StrEnum):
    """Whose file it is: uploaded for a batch, or made by one."""

    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file that clients can fetch. `expires_at` is `None` for one that stays until it is deleted."""

    id: str
    purpose: Purpose
    filename: str
    bytes: int
    created_at: int
    expires_at: int | None

    def document(self) -> dict[str, JsonValue]:
        """As OpenAI's clients see it. Not by `asdict`, since a list has ten thousand."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


@dataclass(frozen=True, slots=True)
class LineProblem:
    """What is wrong with an input file: in which line, from 1, or `None` for the file as a whole."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What a client asks for. `window_s` is `completion_window` in seconds."""

    input_file_id: str
    endpoint: str
    completion_window: str
    window_s: int
    metadata: Mapping[str, str] | None = None
    output_expires_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch: what was asked for, where it is, and when it got there.

    `ending` is the status that it will have in the end. Of its input, `lines_done` lines and `input_offset`
    bytes are done, and their answers and errors are the first `output_bytes` and `error_bytes` of its two
    files.
    """

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchStatus
    ending: BatchStatus
    metadata: Mapping[str, str] | None
    errors: Sequence[LineProblem]
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
        """Whether there is anything left to do."""
        return self.status in OPEN

    def document(self) -> dict[str, JsonValue]:
        """As OpenAI's clients see it: files are named once they can be fetched, if anything is in them."""
        errors = {"object": "list", "data": [asdict(error) for error in self.errors]}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": errors if self.errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "status": self.status,
            "output_file_id": self.output_file_id if self.output_bytes and not self.is_open else None,
            "error_file_id": self.error_file_id if self.error_bytes and not self.is_open else None,
            "created_at": self.created_at,
            "in_progress_at": self.in_progress_at,
            "expires_at": self.expires_at,
            "finalizing_at": self.finalizing_at,
            "completed_at": self.completed_at,
            "failed_at": self.failed_at,
            "expired_at": self.expired_at,
            "cancelling_at": self.cancelling_at,
            "cancelled_at": self.cancelled_at,
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


@dataclass(frozen=True, slots=True)
class Progress:
    """Lines that have ended, the next ones of their batch: how many lines and bytes, and what to write.

    `completed` and `failed` count requests; a line may be blank and be neither.
    """

    lines: int
    input_bytes: int
    output: bytes
    errors: bytes
    completed: int
    failed: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for: `limit` entries after the one of id `after`."""

    limit: int
    after: str | None = None
    newest_first: bool = True

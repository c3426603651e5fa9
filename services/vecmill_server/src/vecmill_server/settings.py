"""Every setting of the server: frozen, validated where it is made, each default written once.

Like `vecmill.config`, a field's `help` metadata is the sentence that `--help` shows.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vecmill.config import setting
from vecmill.errors import InvalidConfig


class TokenIds(StrEnum):
    """What to do with inputs that are lists of token ids."""

    REFUSE = "refuse"
    NATIVE = "native"
    CL100K = "cl100k"


class RerankDocument(StrEnum):
    """How the documents of a rerank answer are written."""

    OBJECT = "object"
    STRING = "string"


class MetricAliases(StrEnum):
    """Whose names our metrics are exposed under besides our own."""

    INFINITY = "infinity"
    TEI = "tei"


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """Which log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Everything that the server can be told. Raises `InvalidConfig` for a value that cannot work."""

    host: str = setting("127.0.0.1", "The address to listen on.")
    port: int = setting(7997, "The port to listen on; 0 takes any free one.")
    uds: Path | None = setting(None, "A Unix socket to listen on, instead of an address and a port.")
    url_prefix: str = setting("", "A path that comes before every route, such as /vecmill.")
    api_key: tuple[str, ...] = field(
        default=(),
        repr=False,  # a key must not reach a log
        metadata={
            "help": "A key that clients must send; may be given several times. Without any, no key is asked."
        },
    )
    cors_origin: tuple[str, ...] = setting(
        (), "An origin whose pages may call the server, or *; may be repeated."
    )
    alias: tuple[str, ...] = setting(
        (),
        "Another name of the first model, such as text-embedding-3-small, or NAME=MODEL for another; "
        "may be repeated.",
    )
    task: tuple[str, ...] = setting(
        (),
        "What a model is for, where its directory does not say so: embed, rerank, classify, classify_tokens, "
        "sparse or multi_vector, or MODEL=TASK for one of several; may be repeated.",
    )
    trust_remote_code: tuple[str, ...] = setting(
        (),
        "A model that may run the code that comes with it, once you have read it: its name as it is "
        "served or given; may be repeated.",
    )
    token_ids: TokenIds = setting(
        TokenIds.REFUSE,
        "Inputs that are token ids: refuse them, take them as the model's own (native), or as "
        "OpenAI's, whose text is then embedded (cl100k).",
    )
    rerank_document: RerankDocument = setting(
        RerankDocument.OBJECT,
        "How documents come back from a rerank: as an object with their text, or as a string, which "
        "LiteLLM's infinity provider needs.",
    )
    metric_aliases: tuple[MetricAliases, ...] = setting(
        (),
        "Whose names the metrics have besides our own, for dashboards that exist: infinity or tei; "
        "may be repeated.",
    )
    max_body_bytes: int = setting(32 * 1024 * 1024, "Bytes in the body of one request.")
    max_header_bytes: int = setting(16 * 1024, "Bytes in the request line and headers of one request.")
    header_timeout_s: float = setting(10.0, "A client has this long to send its headers.")
    body_timeout_s: float = setting(30.0, "A client has this long to send its body.")
    keep_alive_s: float = setting(75.0, "A connection without a request is closed after this long.")
    lame_duck_s: float = setting(
        5.0,
        "After SIGTERM, requests are served this long while /readyz says 503 already.",
    )
    drain_s: float = setting(25.0, "After that, accepted work has this long to finish.")
    batch_dir: Path | None = setting(
        None,
        "A folder, for this server alone, in which files and batches are kept; without one, /v1/files and "
        "/v1/batches are off.",
    )
    batch_keep_s: int | None = setting(
        None, "Files are deleted this long after they were made; without it, when a client says so."
    )
    max_batch_lines: int = setting(50_000, "Requests in the file of one batch.")
    max_open_batches: int = setting(100, "Batches that have not ended.")
    max_file_bytes: int = setting(200 * 1024 * 1024, "Bytes in an uploaded file.")
    max_stored_bytes: int = setting(
        20 * 1024 * 1024 * 1024, "Bytes in all files, beyond which no more are taken."
    )
    upload_timeout_s: float = setting(600.0, "A client has this long to send a file.")
    log_level: LogLevel = setting(LogLevel.INFO, "Which log lines are written.")
    log_format: LogFormat = setting(LogFormat.TEXT, "How log lines are written.")
    access_log: bool = setting(True, "Write a log line for each request.")

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "port must be between 0 and 65535")
        _require(bool(self.host), "host must not be empty")
        _require(
            self.url_prefix == "" or (self.url_prefix.startswith("/") and not self.url_prefix.endswith("/")),
            "url_prefix must start with / and not end with it",
        )
        _require("" not in self.api_key, "api_key must not be empty")
        _require(all(alias.strip() for alias in self.alias), "alias must not be empty")
        for name in ("max_body_bytes", "max_header_bytes", "max_file_bytes", "max_stored_bytes"):
            _require(getattr(self, name) >= 1024, f"{name} must be at least 1024")
        for name in ("max_batch_lines", "max_open_batches"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1")
        _require(self.batch_keep_s is None or self.batch_keep_s > 0, "batch_keep_s must be more than 0")
        for name in ("header_timeout_s", "body_timeout_s", "keep_alive_s", "upload_timeout_s"):
            _require(getattr(self, name) > 0, f"{name} must be more than 0")
        for name in ("lame_duck_s", "drain_s"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidConfig(f"{message}.")

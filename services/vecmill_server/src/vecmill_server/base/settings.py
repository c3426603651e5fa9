"""The settings of the server, with their defaults, help texts and validation, and its listening address.

The `help` metadata of a field is the text that `--help` shows, as in `vecmill.config`.
"""

import ipaddress
import math
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vecmill.config import setting
from vecmill.errors import InvalidConfig
from vecmill.values.request_choices import Priority
from vecmill_server.base.picture_urls import is_listed_host
from vecmill_server.base.web_origins import is_web_origin

# The priorities that a client can ask for, by their words, the most urgent first.
PRIORITIES = {priority.value: priority for priority in (Priority.INTERACTIVE, Priority.BULK)}

DEFAULT_LAME_DUCK_S = 5.0
# Of the embedding cache, if there is a folder.
DEFAULT_CACHE_MEMORY_BYTES = 64 * 1024 * 1024
DEFAULT_MODEL_KEEP_ALIVE_S = 300.0
# A server without models takes 200 MB.
LEAST_BUDGET_MIB = 256


class TokenIds(StrEnum):
    """The policy for inputs that are lists of token ids."""

    REFUSE = "refuse"
    NATIVE = "native"
    CL100K = "cl100k"


class RerankDocument(StrEnum):
    """The JSON type of the documents in a rerank response."""

    OBJECT = "object"
    STRING = "string"


class MetricAliases(StrEnum):
    """The servers whose metric names are available as aliases."""

    INFINITY = "infinity"
    TEI = "tei"
    VLLM = "vllm"


class LogFormat(StrEnum):
    """The format of the log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level of log lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


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

    @property
    def is_loopback(self) -> bool:
        """True for a host that only this machine reaches."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name, or no host
            return False


# An origin as browsers serialise it. Source: RFC 6454, section 6.2.


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of the server. Raises `InvalidConfig` if a value is invalid."""

    host: str = setting("127.0.0.1", "The address to listen on.")
    port: int = setting(7997, "The port to listen on; 0 selects a free port.")
    uds: Path | None = setting(None, "A Unix socket to listen on, instead of an address and a port.")
    uds_mode: str = setting("660", "The permissions of the Unix socket, as octal digits.")
    fd: int | None = setting(
        None,
        "The file descriptor of a listening socket that the process inherits, instead of an address and a "
        "port. A socket that systemd passes (LISTEN_FDS) needs no option.",
    )
    processes: int = setting(
        1,
        "The number of server processes, which share the port and divide the cores. More than one helps if "
        "the event loop is busier than the models; excludes --batch-dir.",
    )
    url_prefix: str = setting("", "The path prefix of every route, such as /vecmill.")
    api_key: tuple[str, ...] = field(
        default=(),
        repr=False,  # a key must not reach a log
        metadata={
            "help": "An API key that clients must send; may be repeated. By default, no key is required."
        },
    )
    api_key_file: Path | None = setting(
        None,
        "A file with a name and an API key, or the sha256: digest of a key, on each line. The file is read "
        "again when it changes. The names own files and batches.",
    )
    metrics_key: tuple[str, ...] = field(
        default=(),
        repr=False,
        metadata={"help": "A key that /metrics requires; may be repeated. By default, /metrics is open."},
    )
    admin_key_file: Path | None = setting(
        None,
        "A file of keys, in the format of --api-key-file, that may also load models, drop them and take them "
        "out of what is served. Needs --memory-budget-mib.",
    )
    cors_origin: tuple[str, ...] = setting(
        (),
        "An origin whose web pages may call the server, a pattern such as https://*.example.org or "
        "http://localhost:*, or * for all; may be repeated.",
    )
    allowed_host: tuple[str, ...] = setting(
        (),
        "A host name of this server, such as the name that a proxy serves, or *; may be repeated. Addresses, "
        "names without dots and names of private domains need not be listed.",
    )
    alias: tuple[str, ...] = setting(
        (),
        "An additional name of the first model, such as text-embedding-3-small, or NAME=MODEL for another "
        "model, or * for any name that no model has; may be repeated.",
    )
    task: tuple[str, ...] = setting(
        (),
        "The task of models whose files do not determine it: embed, rerank, classify, classify_tokens, "
        "sparse or multi_vector, or MODEL=TASK for one of several models; may be repeated.",
    )
    strict: bool = setting(
        False,
        "Serve all models or none: exit if one cannot be loaded or loses its workers. By default the other "
        "models are served.",
    )
    memory_budget_mib: int | None = setting(
        None,
        "The memory that this process may take, in MiB. With this option, models are loaded on demand, at "
        "their first request, and dropped when they are not used or others need their memory. By default, "
        "all models are loaded at the start and stay.",
    )
    model_keep_alive_s: float | None = setting(
        None,
        "The time that a model is kept after its last request, in seconds; 0 drops it after each request, "
        "-1 keeps it until others need its memory; by default 300. Needs --memory-budget-mib.",
    )
    trust_remote_code: tuple[str, ...] = setting(
        (),
        "A model whose own Python code may run, once you have read that code: its name as served or as "
        "given on the command line; may be repeated.",
    )
    token_ids: TokenIds = setting(
        TokenIds.REFUSE,
        "The policy for inputs that are token ids: refuse them, use them as ids of the model's own tokenizer "
        "(native), or decode them to text as OpenAI's cl100k_base (cl100k).",
    )
    image_urls: tuple[str, ...] = setting(
        (),
        "A host whose pictures the server fetches when a request names a URL: images.example.org, that name "
        "with a port, or *.example.org for all names below one; may be repeated. Without a port, 80 and 443 "
        "are meant. Private addresses are never asked. By default no URL is fetched.",
    )
    rerank_document: RerankDocument = setting(
        RerankDocument.OBJECT,
        "The JSON type of the documents in a rerank response: an object with the text, or a string, which "
        "LiteLLM's infinity provider needs.",
    )
    metric_aliases: tuple[MetricAliases, ...] = setting(
        (),
        "Add metrics under the names of another server for its dashboards: infinity, tei or vllm; may be "
        "repeated.",
    )
    max_body_bytes: int = setting(32 * 1024 * 1024, "The maximum size of a request body, in bytes.")
    max_header_bytes: int = setting(16 * 1024, "The maximum size of the request line and headers, in bytes.")
    header_timeout_s: float = setting(10.0, "The time limit for a client to send the headers, in seconds.")
    body_timeout_s: float = setting(30.0, "The time limit for a client to send the body, in seconds.")
    write_timeout_s: float = setting(
        60.0,
        "The time in which a client must take its response, or 1 MiB of a larger response, in seconds.",
    )
    max_connections: int = setting(4096, "The maximum number of connections.")
    max_buffered_bytes: int | None = setting(
        None,
        "The maximum size of all requests and responses that the server holds, in bytes; by default a "
        "quarter of the available memory, at most 1 GiB.",
    )
    keep_alive_s: float = setting(75.0, "The time after which an idle connection is closed, in seconds.")
    max_connection_age_s: float = setting(
        300.0,
        "The age at which a response closes its connection, so that clients also reach new servers, in "
        "seconds; 0 means no limit. Each connection has a random age between 80% and 100% of it.",
    )
    lame_duck_s: float | None = setting(
        None,
        "The time after SIGTERM in which requests are served but /readyz answers 503, in seconds; by default "
        "5 if a readiness probe (/readyz, /health, /ping or /) has come in the last minute, else 0.",
    )
    drain_s: float = setting(
        25.0, "The time limit for accepted requests to finish after --lame-duck-s, in seconds."
    )
    batch_dir: Path | None = setting(
        None,
        "The folder for files and batches, which no other process may use; without it, /v1/files and "
        "/v1/batches are disabled.",
    )
    batch_keep_s: int | None = setting(
        None,
        "The maximum age of files, in seconds; by default, files are deleted only when a client requests it.",
    )
    max_batch_lines: int = setting(50_000, "The maximum number of requests in the input file of a batch.")
    max_open_batches: int = setting(100, "The maximum number of batches that have not ended.")
    max_file_bytes: int = setting(200 * 1024 * 1024, "The maximum size of an uploaded file, in bytes.")
    max_stored_bytes: int = setting(
        20 * 1024 * 1024 * 1024,
        "The total size of all files, in bytes, at which uploads are refused. Each file counts 16 KiB more "
        "than its content.",
    )
    upload_timeout_s: float = setting(600.0, "The time limit for a client to upload a file, in seconds.")
    result_cache_memory_bytes: int | None = setting(
        None,
        "The size of the embedding cache in memory, in bytes; by default 64 MiB with --result-cache-dir, "
        "else there is none.",
    )
    result_cache_dir: Path | None = setting(
        None,
        "The folder of the embedding cache on disk, which several processes of this machine may use. By "
        "default, nothing is kept on disk.",
    )
    result_cache_disk_bytes: int = setting(
        4 * 1024 * 1024 * 1024, "The size of the embedding cache on disk, in bytes."
    )
    log_level: LogLevel = setting(LogLevel.INFO, "The lowest level of log lines that are written.")
    log_format: LogFormat = setting(LogFormat.TEXT, "The format of the log.")
    console: bool = setting(
        True, "Show browsers a page at / on which people try the models and watch the server."
    )
    access_log: bool = setting(True, "Write a log line for each request.")
    tracing: bool = setting(
        False,
        "Send traces to an OpenTelemetry collector, as the environment variables OTEL_* say (needs "
        "vecmill-server[otel]).",
    )

    @property
    def longest_lame_duck_s(self) -> float:
        """The time after SIGTERM in which requests are served, if a readiness probe has come, in seconds."""
        return DEFAULT_LAME_DUCK_S if self.lame_duck_s is None else self.lame_duck_s

    @property
    def has_embedding_cache(self) -> bool:
        """True if there is an embedding cache."""
        return self.result_cache_dir is not None or bool(self.result_cache_memory_bytes)

    @property
    def cache_memory_bytes(self) -> int:
        """The size of the embedding cache in memory, in bytes."""
        if self.result_cache_memory_bytes is not None:
            return self.result_cache_memory_bytes
        return DEFAULT_CACHE_MEMORY_BYTES if self.has_embedding_cache else 0

    @property
    def has_api_keys(self) -> bool:
        """True if requests need an API key."""
        return bool(self.api_key) or self.api_key_file is not None

    @property
    def kept_s(self) -> float:
        """The time that a model of a catalog is kept after its last request, in seconds."""
        if self.model_keep_alive_s is None:
            return DEFAULT_MODEL_KEEP_ALIVE_S
        return math.inf if self.model_keep_alive_s < 0 else self.model_keep_alive_s

    def __post_init__(self) -> None:
        self._check_catalog()
        require(0 <= self.port <= 65535, "port must be between 0 and 65535")
        require(bool(self.host), "host must not be empty")
        require(
            self.url_prefix == "" or (self.url_prefix.startswith("/") and not self.url_prefix.endswith("/")),
            "url_prefix must start with / and not end with it",
        )
        require("" not in self.api_key, "api_key must not be empty")
        require("" not in self.metrics_key, "metrics_key must not be empty")
        require(all(alias.strip() for alias in self.alias), "alias must not be empty")
        self._check_other_hosts()
        for name in ("max_body_bytes", "max_header_bytes", "max_file_bytes", "max_stored_bytes"):
            require(getattr(self, name) >= 1024, f"{name} must be at least 1024")
        require(
            self.max_buffered_bytes is None or self.max_buffered_bytes >= 1024 * 1024,
            "max_buffered_bytes must be at least 1048576",
        )
        require(
            self.result_cache_memory_bytes is None or self.result_cache_memory_bytes >= 0,
            "result_cache_memory_bytes must not be negative",
        )
        require(
            self.result_cache_disk_bytes >= 16 * 1024 * 1024,
            "result_cache_disk_bytes must be at least 16777216",
        )
        for name in ("max_batch_lines", "max_open_batches", "max_connections"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1")
        require(self.batch_keep_s is None or self.batch_keep_s > 0, "batch_keep_s must be more than 0")
        for name in (
            "header_timeout_s",
            "body_timeout_s",
            "write_timeout_s",
            "keep_alive_s",
            "upload_timeout_s",
        ):
            require(getattr(self, name) > 0, f"{name} must be more than 0")
        require(self.max_connection_age_s >= 0, "max_connection_age_s must not be negative")
        require(self.lame_duck_s is None or self.lame_duck_s >= 0, "lame_duck_s must not be negative")
        require(self.drain_s >= 0, "drain_s must not be negative")
        require(
            len(self.uds_mode) in (3, 4) and set(self.uds_mode) <= set("01234567"),
            "uds_mode must be three or four octal digits, such as 660",
        )
        require(self.fd is None or self.fd >= 0, "fd must not be negative")
        require(self.fd is None or self.uds is None, "fd and uds exclude each other")
        require(self.processes >= 1, "processes must be at least 1")
        require(
            self.processes == 1 or self.batch_dir is None,
            "processes and batch_dir exclude each other: only one process may use the folder. For files and "
            "batches, start another server with one process",
        )

    def _check_other_hosts(self) -> None:
        """Check the settings that name origins and hosts. Raises `InvalidConfig`."""
        for origin in self.cors_origin:
            require(
                is_web_origin(origin),
                f"cors_origin {origin!r} is no origin, and no page would match it. Write scheme, host and "
                "port, in small letters and without a path, such as https://example.org",
            )
        for host in self.image_urls:
            require(
                is_listed_host(host),
                f"image_urls {host!r} is no host to fetch pictures from. Write a public address, or a "
                "name such as images.example.org, with a port if it is neither 80 nor 443, or *.example.org "
                "for all names below one",
            )

    def _check_catalog(self) -> None:
        """Check the settings of on-demand loading. Raises `InvalidConfig`."""
        budget = self.memory_budget_mib
        require(
            budget is None or budget >= LEAST_BUDGET_MIB,
            f"memory_budget_mib must be at least {LEAST_BUDGET_MIB}, which a server needs without models",
        )
        require(
            budget is None or self.processes == 1,
            "processes and memory_budget_mib exclude each other: each process would hold its own models. "
            "Start one process, or leave the budget out, so that all models stay loaded",
        )
        for name in ("model_keep_alive_s", "admin_key_file"):
            require(
                budget is not None or getattr(self, name) is None,
                f"{name} needs memory_budget_mib, without which all models stay loaded",
            )


def require(condition: bool, message: str) -> None:
    """Raise `InvalidConfig` with `message`, which lacks its full stop, unless the condition is true."""
    if not condition:
        raise InvalidConfig(f"{message}.")

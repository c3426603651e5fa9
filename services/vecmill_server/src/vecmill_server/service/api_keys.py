"""The API keys of a server, the names of their owners, and the paths that are open without a key.

The keys are from options and from a file that may change.

Each line of the file has the name of an owner and a key, or the SHA-256 digest of a key. A priority may
follow, which requests with the key have:

    # name   key                                                                       priority
    search   sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
    ingest   a-key-in-plain-text                                                       bulk

Several lines may have the same name, so an old and a new key can overlap. Only digests are kept in memory.
A key is looked up by its digest, so a request takes the same time with one key and with many thousand.
The file is looked at once a second, off the event loop. A change is read when the file has stayed the same
for a second. A file that cannot be used leaves the keys as they are.
"""

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from starlette.types import Scope

from vecmill.errors import InvalidConfig
from vecmill.hardware.system_calls import open_regular
from vecmill.requests import Priority
from vecmill_server.base.errors import InvalidKey
from vecmill_server.base.headers import header
from vecmill_server.base.settings import PRIORITIES, ServerSettings

logger = logging.getLogger(__name__)

# The owner of keys that have no name, which are the keys of `--api-key`.
UNNAMED = ""

# The metrics now, and those of the last minutes.
METRICS_PATHS = ("/metrics", "/console/history.json")

# The paths that may be read without a key. A new route requires a key unless it is listed here. Other
# methods on these paths, such as POST /, require a key. With `--metrics-key`, METRICS_PATHS require it.
PUBLIC_PATHS = frozenset(
    {
        *("/", "/health", "/v1/health", "/livez", "/readyz", "/ping"),
        *("/.well-known/live", "/.well-known/ready", "/v1/health/live", "/v1/health/ready", "/meta"),
        *("/docs", "/openapi.json", "/alerts", "/console", "/console/state.json", "/v1/cluster/auth"),
        *METRICS_PATHS,
    }
)
# The prefixes of the assets of the pages at /docs and at /, and of the pages of alerts.
PUBLIC_PREFIXES = ("/docs/", "/console/assets/", "/alerts/")
_READ_METHODS = frozenset({"GET", "HEAD"})

# The first words are OpenAI's, by which LiteLLM tells a wrong key from an invalid request.
WRONG = "Incorrect API key provided. Ask the operator of this server for a key."
MISSING = "An API key is required: Authorization: Bearer <key>."
MISSING_FOR_METRICS = "The key of --metrics-key is required: Authorization: Bearer <key>."

LOOK_S = 1.0
MOST_FILE_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
_DIGEST_PREFIX = "sha256:"


class KeyLine(NamedTuple):
    """What the key file says about a key: the name of its owner, and the priority of its requests."""

    owner: str
    priority: Priority | None = None


# The keys by their digests.
KeyLines = Mapping[bytes, KeyLine]
# Changes when a file is written or replaced.
_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who sent a valid key. `owner` owns files and batches; `client` shares the engine with other clients.

    Keys without a name have one owner, but each is a client. `priority` is that of the key. With an admin key
    `is_admin` is true.
    """

    owner: str
    client: str
    priority: Priority | None = None
    is_admin: bool = False


class ApiKeys:
    """The keys that open a server. `keys` have no name; the keys in `file` have names.

    The file is read at once, and then once a second after `watch` was called. `owner_count` is the number of
    owners; the keys without a name have one owner.
    """

    def __init__(
        self,
        keys: Iterable[str],
        file: Path | None = None,
        *,
        option: str = "--api-key-file",
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Read the file, which `option` names. Raises `InvalidConfig` if it cannot be used."""
        self._unnamed: KeyLines = {_digest(key.encode("utf-8")): KeyLine(UNNAMED) for key in keys}
        self._file = file
        self._pause = pause
        self._stamp: _Stamp | None = None
        self._seen: _Stamp | None = None  # of the last look
        self._complaint = ""
        self._watcher: asyncio.Task[None] | None = None
        named: KeyLines = {}
        if file is not None:
            try:
                self._stamp, named = read_key_file(file)
            except OSError as error:
                raise InvalidConfig(
                    f"The key file {file} cannot be read: {error.strerror}. Name another with {option}."
                ) from error
        self._set(named)

    def find_holder(self, keys: Iterable[bytes]) -> KeyHolder | None:
        """Return the holder of the first key that is valid; `None` if none is."""
        return next((holder for key in keys if (holder := self._find(key)) is not None), None)

    def watch(self) -> None:
        """Look at the file once a second from now on, if there is one. Call in the event loop."""
        if self._watcher is None and self._file is not None:
            self._watcher = asyncio.create_task(self._watch())

    def look(self) -> None:
        """Read the file again if it has changed. An error is logged once, and the keys stay as they are.

        A program that writes the file in place may have written only a part of it: a part of the keys, or a
        part of a key. Therefore a change is read only if the next look finds the file unchanged.
        """
        assert self._file is not None
        try:
            found = _stamp(os.stat(self._file))
            if found == self._stamp:
                return
            if found != self._seen:
                self._seen = found
                return
            stamp, named = read_key_file(self._file)
        except (OSError, InvalidConfig) as error:
            # The stamp stays, so that the file is read again: it may be written at this moment.
            complaint = error.message if isinstance(error, InvalidConfig) else str(error.strerror)
            if complaint != self._complaint:
                logger.warning("the key file %s is not used, the keys stay: %s", self._file, complaint)
            self._complaint = complaint
            return
        if stamp != found:  # it was replaced just now
            self._seen = stamp
            return
        self._stamp = stamp
        self._complaint = ""
        self._set(named)
        logger.info("read %d keys of %d owners from %s", len(named), count_owners(named), self._file)

    async def _watch(self) -> None:
        while True:
            await self._pause(LOOK_S)
            try:
                await asyncio.to_thread(self.look)
            except Exception:
                logger.exception("the key file could not be looked at")

    def _set(self, named: KeyLines) -> None:
        # A new dictionary in one assignment, because requests read it in another thread.
        self._known: KeyLines = {**self._unnamed, **named}
        self.owner_count = count_owners(self._known)

    def _find(self, key: bytes) -> KeyHolder | None:
        # The time of a lookup tells nothing about the known digests: before bytes, the dictionary compares
        # hashes of digests, which are keyed at random in each process. And no digest reveals a random key.
        digest = _digest(key)
        found = self._known.get(digest)
        if found is None:
            return None
        owner, priority = found
        return KeyHolder(owner, owner or digest.hex(), priority)


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The check that a request has one of `keys`, as `Bearer key`, the bare key, `api-key` or `x-api-key`.

    `metrics_keys` are the only keys that open the metrics. Without `keys`, all other paths are open. Without
    `metrics_keys`, the metrics are. `admin_keys` open what `keys` open.
    """

    keys: ApiKeys | None
    metrics_keys: ApiKeys | None = None
    admin_keys: ApiKeys | None = None

    def find_holder(self, scope: Scope) -> KeyHolder | None:
        """Return the holder of the key of a request, `None` if it needs no key. Raises `InvalidKey`."""
        is_open = is_public(scope["method"], scope["path"])
        is_scrape = is_open and scope["path"] in METRICS_PATHS
        keys = self.metrics_keys if is_scrape else None if is_open else self.keys
        if keys is None and (is_open or self.admin_keys is None):
            return None
        sent = tuple(_sent_keys(scope))
        if self.admin_keys is not None and not is_open:
            self.admin_keys.watch()
            holder = self.admin_keys.find_holder(sent)
            if holder is not None:
                return replace(holder, is_admin=True)
        if keys is None:
            return None
        keys.watch()
        holder = keys.find_holder(sent)
        if holder is None:
            raise InvalidKey(WRONG if sent else MISSING_FOR_METRICS if is_scrape else MISSING)
        return holder


def is_public(method: str, path: str) -> bool:
    """Return True if a request needs no API key."""
    if method == "OPTIONS":  # a load balancer's probe
        return path == "/"
    return method in _READ_METHODS and (path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIXES))


def requires_key(settings: ServerSettings, method: str, path: str) -> bool:
    """Return True if a server with these settings requires a key for the request."""
    if is_public(method, path):
        return path in METRICS_PATHS and bool(settings.metrics_key)
    return settings.has_api_keys


def _sent_keys(scope: Scope) -> Iterator[bytes]:
    authorization = header(scope, b"authorization")
    if authorization is not None:
        scheme, _, credentials = authorization.partition(b" ")
        yield credentials.strip() if scheme.lower() == b"bearer" and credentials else authorization
    for name in (b"api-key", b"x-api-key"):
        api_key = header(scope, name)
        if api_key is not None:
            yield api_key


def count_owners(keys: KeyLines) -> int:
    """Return the number of owners. The keys without a name have one owner."""
    return len({line.owner for line in keys.values()})


def read_key_file(path: Path) -> tuple[_Stamp, KeyLines]:
    """Read a key file. Raises `OSError`, and `InvalidConfig` with the number of a wrong line."""
    with open_regular(path) as file:
        before = _stamp(os.fstat(file.fileno()))
        content = file.read(MOST_FILE_BYTES + 1)
        if _stamp(os.fstat(file.fileno())) != before:
            raise InvalidConfig(f"The key file {path} was written while it was read. Try again.")
    if len(content) > MOST_FILE_BYTES:
        raise InvalidConfig(f"The key file {path} is larger than {MOST_FILE_BYTES} bytes.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidConfig(f"The key file {path} is not UTF-8 text.") from None
    return before, _read_lines(path, text)


def _read_lines(path: Path, text: str) -> KeyLines:
    keys: dict[bytes, KeyLine] = {}
    for number, digest, line in _entries(path, text):
        # Two owners of one key could read the files of each other.
        earlier = keys.setdefault(digest, line)
        if earlier != line:
            raise InvalidConfig(
                f"The key in line {number} of {path} has another name or priority in an earlier line."
            )
    if not keys:
        raise InvalidConfig(f"The key file {path} has no key. Write lines of a name and a key.")
    return keys


def _entries(path: Path, text: str) -> Iterator[tuple[int, bytes, KeyLine]]:
    """Yield the number, the digest and the rest of each line. Errors show no part of a line."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3):
            raise InvalidConfig(
                f"Line {number} of {path} must have a name and a key, separated by a space, and at most a "
                "priority after them."
            )
        name, key, *rest = words
        if not _NAME.fullmatch(name):
            raise InvalidConfig(
                f"The name in line {number} of {path} must have 1 to 64 letters, digits, `.`, `_` and `-`."
            )
        if rest and rest[0] not in PRIORITIES:
            raise InvalidConfig(f"The priority in line {number} of {path} must be {' or '.join(PRIORITIES)}.")
        priority = PRIORITIES[rest[0]] if rest else None
        yield number, _read_digest(path, number, key), KeyLine(name, priority)


def _read_digest(path: Path, number: int, key: str) -> bytes:
    if not key.startswith(_DIGEST_PREFIX):
        return _digest(key.encode("utf-8"))
    written = key.removeprefix(_DIGEST_PREFIX)
    if not _DIGEST.fullmatch(written):
        raise InvalidConfig(
            f"Line {number} of {path} must have 64 hexadecimal digits after `{_DIGEST_PREFIX}`."
        )
    return bytes.fromhex(written)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

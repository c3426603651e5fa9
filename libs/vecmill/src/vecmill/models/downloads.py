"""Downloads files of a hub's model, verifies their digests, and resumes interrupted downloads.

The hub's client stores a file under its digest and links to it from the folder of a commit. The client checks
the size of a file, not its digest, and never resumes the partial file of a killed process. So this module
downloads the files and links to them:

    blobs/<digest>.incomplete    partial file, resumed by a Range request under the client's lock of the file
    blobs/<digest>               complete file, whose content has this digest

The digest is the SHA-256 of a large file (Git LFS), and the SHA-1 of the Git object of any other file. It is
computed while the file arrives.

Source of the rules: huggingface_hub 2.4, `file_download.py`.
"""

import errno
import hashlib
import logging
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Self, cast

logger = logging.getLogger(__name__)

_PARTS = 10  # lines in the log


class DownloadProgress:
    """The number of bytes that have arrived, of `total` bytes in `files` files. Safe to use from threads."""

    def __init__(self, name: str, files: int, total: int) -> None:
        # The hub's bar can be switched off with HF_HUB_DISABLE_PROGRESS_BARS.
        from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

        self._name = name
        self._total = total
        self._arrived = self._told = 0
        self._lock = threading.Lock()
        self._bar: Any = tqdm(  # type: ignore[no-untyped-call]
            total=total,
            desc=name,
            unit="B",
            unit_scale=True,
            file=sys.stderr,
            disable=None,  # if standard error is not a terminal
            dynamic_ncols=True,
        )
        if self._bar.disable:
            counted = "1 file" if files == 1 else f"{files} files"
            logger.info("downloading %s: %s, %.1f MB", name, counted, total / 1e6)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def add(self, nbytes: int) -> None:
        """Count bytes that have arrived; a negative number for bytes that have to arrive again."""
        with self._lock:
            self._arrived += nbytes
            self._bar.update(nbytes)
            part = _PARTS * self._arrived // self._total if self._total else _PARTS
            if self._bar.disable and part > self._told:
                self._told = part
                logger.info("downloading %s: %d%%", self._name, 100 * part // _PARTS)


# The client writes 10 MiB at a time, so smaller files cannot be resumed; they are fetched side by side.
LARGE_BYTES = 16 * 2**20
_PARALLEL = 8
_ATTEMPTS = 2  # to get a file with the right digest
_RESETS = 5  # connections in a row that are reset and bring nothing
_RETRY_S = 1.0
_TIMEOUT_S = 10.0  # for the hub's response
_READ_BYTES = 2**20
_PATIENCE_S = 1.0  # for the lock of a file, before the log has a line
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class DiskFull(OSError):
    """The disk of the hub client's cache cannot hold the missing files. The message names the disk."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of `size` bytes at `url`, and its paths in the client's cache.

    `blob` is the content, `link` the name in the folder of the commit, `lock` the lock file of the content.
    """

    name: str
    url: str
    size: int
    blob: Path
    link: Path
    lock: Path

    @property
    def is_stored(self) -> bool:
        """Whether the file has arrived. On disks without links the client stores the content as `link`."""
        return self.blob.exists() or self.link.exists()

    @property
    def partial(self) -> Path:
        """The path of the part that has arrived."""
        return self.blob.with_name(f"{self.blob.name}.incomplete")

    @property
    def missing_bytes(self) -> int:
        """The number of bytes that have not arrived."""
        if self.is_stored:
            return 0
        try:
            return self.size - self.partial.stat().st_size
        except FileNotFoundError:  # another process may just have completed the file
            return self.size


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository at one commit: its files by name, and the folder of the commit in the client's cache."""

    name: str
    commit: str
    files: Mapping[str, Any]
    snapshot: Path


def list_repository(repository: str, revision: str | None) -> HubRepository:
    """Ask the hub for the files of a repository. Raises any exception of the client."""
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.hf_api import RepoFile

    api = HfApi()
    commit = str(api.model_info(repository, revision=revision or "main", timeout=_TIMEOUT_S).sha)
    tree = api.list_repo_tree(repository, recursive=True, revision=commit)
    files = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
    folder = Path(HF_HUB_CACHE, repo_folder_name(repo_id=repository, repo_type="model"))
    return HubRepository(repository, commit, files, folder / "snapshots" / commit)


def find_files(repository: HubRepository, names: Iterable[str]) -> tuple[HubFile, ...]:
    """Return the files of a repository with these names, except files without a digest."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = repository.snapshot.parents[1]
    found = []
    for name in names:
        file = repository.files[name]
        digest = file.lfs.sha256 if file.lfs else file.blob_id
        if not _DIGEST.fullmatch(digest):
            continue
        found.append(
            HubFile(
                name=name,
                url=hf_hub_url(repository.name, name, revision=repository.commit),
                size=file.size,
                blob=folder / "blobs" / digest,
                link=repository.snapshot / name,
                lock=Path(HF_HUB_CACHE, ".locks", folder.name, f"{digest}.lock"),
            )
        )
    return tuple(found)


def fetch_files(name: str, wanted: Sequence[HubFile]) -> None:
    """Download the missing parts of the files of the model `name`: small files side by side.

    Raises `DiskFull` before the download if the files do not fit, or when the disk is full, `OSError` if a
    file arrives damaged twice, and any exception of the hub's client.
    """
    # Files with the same content share a blob.
    missing = [*{file.blob: file for file in wanted if not file.is_stored}.values()]
    if not missing:
        return
    if _free_bytes(missing[0].blob) < sum(file.missing_bytes for file in missing):
        raise _disk_full(missing)
    small = [file for file in missing if file.size < LARGE_BYTES]
    large = [file for file in missing if file.size >= LARGE_BYTES]
    try:
        with DownloadProgress(name, len(missing), sum(file.missing_bytes for file in missing)) as progress:
            _fetch_side_by_side(small, progress)
            for file in large:
                fetch_file(file, progress)
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise _disk_full(missing) from error
        raise


def _fetch_side_by_side(files: Iterable[HubFile], progress: DownloadProgress) -> None:
    """Call `fetch_file` for each file, and raise the first exception. An interrupt ends the calls at once.

    A pool of threads would wait for its threads after an interrupt, even when the interpreter exits.
    """
    waiting = SimpleQueue[HubFile]()
    for file in files:
        waiting.put(file)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                fetch_file(waiting.get_nowait(), progress)
                if failures:
                    return
        except Empty:
            return
        except BaseException as error:  # raised again below
            failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_PARALLEL, waiting.qsize()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def fetch_file(wanted: HubFile, progress: DownloadProgress) -> None:
    """Download the missing part of a file and verify its digest. Raises the same errors as `fetch_files`."""
    for folder in (wanted.blob.parent, wanted.lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with _take_lock(wanted):
        for _ in range(_ATTEMPTS):
            if wanted.blob.exists():
                return
            if _download(wanted, progress) == wanted.blob.name:
                wanted.partial.replace(wanted.blob)
                return
            wanted.partial.unlink()
            progress.add(-wanted.size)
    kind = "SHA-256" if len(wanted.blob.name) == hashlib.sha256().digest_size * 2 else "SHA-1"
    raise OSError(
        f"{wanted.name} arrived {_ATTEMPTS} times with another {kind} than the hub states, so it was deleted"
    )


def _take_lock(wanted: HubFile) -> ExitStack:
    """Take the client's lock of a file. The log has a line if another process holds the lock."""
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    held = ExitStack()
    try:
        held.enter_context(WeakFileLock(wanted.lock, timeout=_PATIENCE_S))
    except Timeout:
        logger.info("waiting for another process that downloads %s", wanted.name)
        held.enter_context(WeakFileLock(wanted.lock))
    return held


def _download(wanted: HubFile, progress: DownloadProgress) -> str:
    """Download the missing part of a file to its partial file, and return the digest of the whole file."""
    if wanted.missing_bytes < 0:
        wanted.partial.unlink()
    wanted.partial.touch()
    with wanted.partial.open("r+b") as file:
        hashed = _HashedFile(file, wanted, progress.add)
        _append_missing(wanted, hashed)
    return hashed.digest


def _append_missing(wanted: HubFile, hashed: "_HashedFile") -> None:
    """Download the missing part of a file, also after resets of the connection, as the client does not."""
    import httpx2
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
    from huggingface_hub.utils.tqdm import silent_tqdm

    resets = 0
    while True:
        begun = hashed.tell()
        try:
            http_get(
                wanted.url,
                cast(BinaryIO, hashed),
                resume_size=begun,
                headers=build_hf_headers(),
                expected_size=wanted.size,
                displayed_filename=wanted.name,
                tqdm_class=silent_tqdm,  # `progress` shows all files
            )
            return
        except httpx2.ReadError:
            resets = 0 if hashed.tell() > begun else resets + 1
            if resets == _RESETS:
                raise
            time.sleep(_RETRY_S)


def link_files(files: Iterable[HubFile]) -> None:
    """Link to downloaded files from the folder of the commit, if the disk has links.

    The client would ask the hub for the ETag of each file, and download files again, unverified, if a mirror
    has other ETags than the hub. On other disks the client copies the files.
    """
    from huggingface_hub.constants import HF_HUB_DISABLE_SYMLINKS

    for file in files:
        if HF_HUB_DISABLE_SYMLINKS or not file.blob.exists() or not is_safe(file.name):
            continue
        with suppress(OSError):  # no links, or a link that another process has made
            file.link.parent.mkdir(parents=True, exist_ok=True)
            file.link.symlink_to(os.path.relpath(file.blob, file.link.parent))


def is_safe(name: str) -> bool:
    """Return whether the name of a file stays in the folder of the commit. The client refuses other names."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name


class _HashedFile:
    """A partial file, positioned at its end, whose digest is known. Has the methods that the client uses."""

    def __init__(
        self, file: BinaryIO, wanted: HubFile, count: Callable[[int], object] = lambda nbytes: None
    ) -> None:
        self._file = file
        self._wanted = wanted
        self._count = count
        self._hash = self._start_hash()
        self._read()

    @property
    def digest(self) -> str:
        """The digest of the file, in lower-case hex."""
        return str(self._hash.hexdigest())

    def write(self, data: bytes) -> int:
        """Append `data`. Raises `OSError` if the file then has more bytes than the hub states."""
        name, size = self._wanted.name, self._wanted.size
        if self._file.tell() + len(data) > size:
            raise OSError(f"{name} has more than the {size} bytes that the hub states")
        self._hash.update(data)
        self._count(len(data))
        return self._file.write(data)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def seek(self, position: int) -> int:
        """Go to a position, at which `truncate` must follow."""
        return self._file.seek(position)

    def truncate(self) -> None:
        """Remove the content after the position: the hub sends this part again."""
        position = self._file.tell()
        self._count(position - self._file.seek(0, os.SEEK_END))
        self._file.seek(position)
        self._file.truncate()
        self._hash = self._start_hash()
        self._file.seek(0)
        self._read()

    def _start_hash(self) -> Any:
        if len(self._wanted.blob.name) == hashlib.sha256().digest_size * 2:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self._wanted.size, usedforsecurity=False)

    def _read(self) -> None:
        while chunk := self._file.read(_READ_BYTES):
            self._hash.update(chunk)


def _disk_full(missing: Sequence[HubFile]) -> DiskFull:
    needed, blob = sum(file.missing_bytes for file in missing), missing[0].blob
    return DiskFull(
        f"the disk of {blob.parents[2]} has {_free_bytes(blob)} bytes free, and the missing files need "
        f"{needed} bytes. Free space, or choose a folder on another disk with HF_HOME"
    )


def _free_bytes(path: Path) -> int:
    """Return the free space of the disk on which `path` will be."""
    return shutil.disk_usage(next(folder for folder in path.parents if folder.exists())).free

"""Downloads large files of a hub's model, and resumes interrupted downloads.

The hub's client stores a file under its digest and links to it from the folder of a commit. It downloads
under a new name each time, so it never resumes the partial file of a killed process:

    blobs/<digest>.<random>.incomplete    partial file of the client (huggingface_hub 2.4)
    blobs/<digest>.incomplete             partial file of this module, resumed by a Range request under the
                                          client's lock of the file
    blobs/<digest>                        complete file, which the client finds and links to

Source of the rules: huggingface_hub 2.4, `file_download.py`.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LARGE_BYTES = 16 * 2**20  # the client writes 10 MiB at a time, so smaller files cannot be resumed
_TIMEOUT_S = 10.0  # for the hub's response
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A file of `size` bytes at `url`; `blob` is its path in the client's cache, `lock` its lock file."""

    name: str
    url: str
    size: int
    blob: Path
    lock: Path


def find_large_files(
    repository: str, revision: str | None, *, allow: Iterable[str], ignore: Iterable[str]
) -> tuple[LargeFile, ...]:
    """Return the large files that match the patterns. Raises any exception of the hub's client."""
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    api = HfApi()
    commit = api.model_info(repository, revision=revision or "main", timeout=_TIMEOUT_S).sha
    tree = api.list_repo_tree(repository, recursive=True, revision=commit)
    files = {entry.path: entry for entry in tree if isinstance(entry, RepoFile) and entry.size >= LARGE_BYTES}
    folder = repo_folder_name(repo_id=repository, repo_type="model")
    found = []
    for path in filter_repo_objects(files, allow_patterns=list(allow), ignore_patterns=list(ignore)):
        file = files[path]
        digest = file.lfs.sha256 if file.lfs else file.blob_id
        found.append(
            LargeFile(
                name=path,
                url=hf_hub_url(repository, path, revision=commit),
                size=file.size,
                blob=Path(HF_HUB_CACHE, folder, "blobs", digest),
                lock=Path(HF_HUB_CACHE, ".locks", folder, f"{digest}.lock"),
            )
        )
    return tuple(found)


def fetch_large_file(wanted: LargeFile) -> None:
    """Download the missing part of a file, with a progress bar.

    Raises any exception of the hub's client, and `OSError` if the file's SHA-256 is wrong.
    """
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

    for folder in (wanted.blob.parent, wanted.lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(wanted.lock):
        if wanted.blob.exists():
            return
        partial = wanted.blob.with_name(f"{wanted.blob.name}.incomplete")
        with partial.open("ab") as file:
            resumed_at = file.tell()
            http_get(
                wanted.url,
                file,
                resume_size=resumed_at,
                headers=build_hf_headers(),
                expected_size=wanted.size,
                displayed_filename=wanted.name,
            )
        if resumed_at and _SHA256.fullmatch(wanted.blob.name):
            _check_digest(partial, wanted.blob.name)
        partial.replace(wanted.blob)


def _check_digest(partial: Path, digest: str) -> None:
    """Raise `OSError` if the resumed file, begun by another process, has the wrong SHA-256."""
    with partial.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        partial.unlink()
        raise OSError(
            f"{partial.name}, resumed from an earlier download, has the wrong SHA-256; it has been deleted"
        )

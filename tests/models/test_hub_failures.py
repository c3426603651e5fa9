"""A download that fails says why and what to do, in one sentence, and not to do what was just done."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from huggingface_hub.utils import close_session  # type: ignore[attr-defined]

from support.fake_hub import FakeHub, Repository, point_client_at, run_fake_hub
from vecmill.commands.main import main
from vecmill.errors import ModelNotFound
from vecmill.models.hub import HubName, fetch_model
from vecmill.models.hub_failures import find_cause

NAME = HubName("owner/model")
PROXIES = (
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
)
NOT_CACHED = "owner/model is not in the cache in full, and the hub cannot be asked for it: "


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for variable in PROXIES:
        monkeypatch.delenv(variable, raising=False)
    with run_fake_hub() as hub:
        hub.repositories[NAME.repository] = Repository({"config.json": b"{}"})
        point_client_at(hub, tmp_path / "cache", monkeypatch)
        yield hub
    close_session()


def message() -> str:
    close_session()  # the client keeps connections, and the proxies of its first request
    with pytest.raises(ModelNotFound) as caught:
        fetch_model(NAME)
    assert "\n" not in caught.value.message
    assert "vecmill pull" not in caught.value.message
    return caught.value.message


def point_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)


def test_a_name_that_cannot_be_resolved(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    point_at("http://hub.example", monkeypatch)
    assert message() == (
        f"{NOT_CACHED}the name of hub.example cannot be resolved (Name or service not known). Check the "
        "network, HF_ENDPOINT and HTTPS_PROXY."
    )
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@proxy.example:3128")
    found = message()
    assert "the name of the proxy proxy.example:3128 cannot be resolved" in found
    assert "secret" not in found


def test_a_hub_or_a_proxy_that_refuses_connections(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://127.0.0.1:9", monkeypatch)
    assert message() == f"{NOT_CACHED}127.0.0.1 refuses connections. Check HF_ENDPOINT and HTTPS_PROXY."
    point_at("http://hub.example", monkeypatch)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    assert f"{NOT_CACHED}the proxy 127.0.0.1:9 refuses connections." in message()


def test_a_certificate_that_is_not_trusted() -> None:
    cause = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
    cause.verify_message = "self-signed certificate in certificate chain"
    error = httpx2.ConnectError(str(cause), request=httpx2.Request("GET", "https://hub.example/api"))
    error.__cause__ = cause
    assert find_cause(error) == (
        "the certificate of hub.example is not trusted (self-signed certificate in certificate chain). If "
        "your network has its own certificate authority, name the authority's file in SSL_CERT_FILE."
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, "(unauthorised). Set HF_TOKEN to a valid token."),
        (403, "(forbidden). Set HF_TOKEN to a token that may read the model."),
        (404, "(not found). Check the model's name, and HF_ENDPOINT."),
        (407, "(the proxy asks for a password). Put the user and the password in HTTPS_PROXY."),
        (503, ", which is a fault of the hub."),
    ],
)
def test_a_hub_that_answers_something_else(hub: FakeHub, status: int, expected: str) -> None:
    hub.status = status
    found = message()
    assert found == f"{NOT_CACHED}127.0.0.1 answers {status} {expected}".replace(" ,", ",")


def test_a_client_that_was_told_to_stay_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert message() == (
        f"{NOT_CACHED}HF_HUB_OFFLINE is set. Unset it, or copy the model into the cache of HF_HOME."
    )
    assert hub.asked == []


def test_a_cache_that_cannot_be_written(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    found = message()
    assert found.startswith(f"owner/model could not be downloaded: {tmp_path}/cache/")
    assert found.endswith(
        "cannot be written (Permission denied). Choose a folder that can be written with HF_HOME."
    )


def test_a_file_that_the_hub_does_not_give(hub: FakeHub) -> None:
    hub.broken.add("config.json")
    assert message() == (
        "owner/model could not be downloaded: 127.0.0.1 answers 500, which is a fault of the hub. Try again: "
        "partial downloads are kept."
    )


def test_terms_that_were_not_accepted(hub: FakeHub) -> None:
    """The hub names the files of such a model to everybody."""
    hub.repositories[NAME.repository].gated_files = True
    assert message() == (
        "The hub gives owner/model only to those who accepted its terms. Accept them on its page, and set "
        "HF_TOKEN to a token of yours."
    )


def test_a_repository_of_another_kind(hub: FakeHub) -> None:
    hub.repositories[NAME.repository] = Repository({"model-Q4_K_M.gguf": b"GGUF", "params.json": b"{}"})
    assert message() == (
        "owner/model has neither modules.json nor config.json nor adapter_config.json, so it is not a model "
        "of sentence-transformers, transformers or peft. If it is a conversion, such as GGUF, name the "
        "original model."
    )
    assert hub.served == []


def test_cached_files_are_used_with_a_warning(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = fetch_model(NAME)
    point_at("http://127.0.0.1:9", monkeypatch)
    close_session()
    assert fetch_model(NAME) == folder
    (record,) = [record for record in caplog.records if record.name == "vecmill.models.hub"]
    assert record.getMessage().startswith(
        "owner/model: the cached files are used, and the hub cannot be asked"
    )


def test_pull_does_not_send_people_in_a_circle(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://127.0.0.1:9", monkeypatch)
    close_session()
    result = CliRunner().invoke(main, ["pull", NAME.repository])
    assert result.exit_code == 2
    assert "vecmill pull" not in result.output.replace("Usage: vecmill pull", "")
    assert result.output.count("\n") == 1

"""A small hub on loopback: what the hub's client asks of one, and what users meet there."""

import contextlib
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_0123456789"


@dataclass(slots=True)
class Repository:
    """The files of a repository, at its only commit; `branches` lead to it."""

    files: Mapping[str, bytes]
    branches: tuple[str, ...] = ("main",)
    private: bool = False
    gated: bool = False
    gated_files: bool = False  # the names of files are shown to everybody, but not the files
    is_large: frozenset[str] = frozenset()  # files that are known by their SHA-256, as the hub's large ones
    # The last commit, and the files that it is of: a hash of megabytes, asked for with every request.
    _commit: tuple[tuple[tuple[str, bytes], ...], str] | None = field(default=None, init=False, repr=False)

    def digest(self, path: str) -> str:
        """What a file is known by."""
        content = self.files[path]
        if path in self.is_large:
            return hashlib.sha256(content).hexdigest()
        return _oid(content)

    @property
    def commit(self) -> str:
        found = tuple(sorted(self.files.items()))
        if self._commit is None or self._commit[0] != found:
            digest = hashlib.sha1(usedforsecurity=False)
            for name, content in found:
                digest.update(name.encode() + b"\0" + content)
            self._commit = found, digest.hexdigest()
        return self._commit[1]


@dataclass(slots=True)
class FakeHub:
    """What is served, and what was asked for: the paths of files, with the range where there was one."""

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    served: list[tuple[str, str | None]] = field(default_factory=list)
    cut_short: set[str] = field(default_factory=set)  # files of which half is sent the first time
    stalled: set[str] = field(default_factory=set)  # files of which half is sent, and then nothing more
    broken: set[str] = field(default_factory=set)  # files that cannot be read
    damaged: dict[str, int] = field(default_factory=dict)  # how often one byte of a file arrives wrong
    resets: dict[str, int] = field(default_factory=dict)  # how often the connection of a file is reset
    endless: set[str] = field(default_factory=set)  # files that go on after the stated size
    etag: str | None = None  # of all files, as a mirror may have ETags of its own
    updates: dict[str, Repository] = field(default_factory=dict)  # what follows when a file was asked for
    past: list[Repository] = field(default_factory=list)  # found at their commits
    status: int = 200  # of all answers of the API, if it is another


@contextmanager
def run_fake_hub() -> Iterator[FakeHub]:
    """A hub on a free port of loopback, until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_port}")
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def point_client_at(hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub's client, in this process, use `hub` and the folder `cache`, and try again at once."""
    from huggingface_hub import constants, file_download

    from vecmill.models import downloads

    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr(downloads, "_RETRY_S", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in {
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False,
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
    }.items():
        monkeypatch.setattr(constants, name, value)


class _Handler(BaseHTTPRequestHandler):
    @property
    def hub(self) -> FakeHub:
        hub: FakeHub = self.server.hub  # type: ignore[attr-defined]
        return hub

    def log_message(self, format: str, *arguments: Any) -> None:
        """Be silent."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(path)
        parts = path.strip("/").split("/")
        if self.hub.status != 200:
            self._refuse(self.hub.status, "")
        elif parts[:2] == ["api", "models"]:
            self._answer_api("/".join(parts[2:4]), parts[4], "/".join(parts[5:]))
        elif parts[2:3] == ["resolve"]:
            self._answer_file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._refuse(404, "EntryNotFound")

    def _find(self, name: str, revision: str) -> Repository | None:
        past = {repository.commit: repository for repository in self.hub.past}
        repository = past.get(revision) or self.hub.repositories.get(name)
        is_ours = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not is_ours):
            self._refuse(404 if is_ours else 401, "RepoNotFound")
        elif repository.gated and not is_ours:
            self._refuse(403, "GatedRepo")
        elif revision not in (*repository.branches, repository.commit):
            self._refuse(404, "RevisionNotFound")
        else:
            return repository
        return None

    def _answer_api(self, name: str, question: str, revision: str) -> None:
        repository = self._find(name, revision)
        if repository is None:
            return
        files = [
            {"type": "file", "path": path, "size": len(content), "oid": _oid(content)}
            | (
                {"lfs": {"oid": repository.digest(path), "size": len(content), "pointerSize": 100}}
                if path in repository.is_large
                else {}
            )
            for path, content in repository.files.items()
        ]
        siblings = [{"rfilename": path} for path in repository.files]
        document = {"id": name, "modelId": name, "sha": repository.commit, "siblings": siblings, "tags": []}
        self._send_json(files if question == "tree" else document)

    def _answer_file(self, name: str, revision: str, path: str) -> None:
        repository = self._find(name, revision)
        if repository is None:
            return
        if path not in repository.files:
            self._refuse(404, "EntryNotFound")
            return
        if self.command == "GET" and path in self.hub.updates:
            self.hub.past.append(repository)
            self.hub.repositories[name] = self.hub.updates.pop(path)
        if repository.gated_files and self.headers.get("Authorization") is None:
            self._refuse(401, "GatedRepo")
            return
        if path in self.hub.broken and self.command == "GET":
            self._refuse(500, "ServerError")
            return
        content = repository.files[path]
        start, stop, wanted = 0, len(content), self.headers.get("Range")
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1, stop) if last else stop
        self.send_response(200 if wanted is None else 206)
        self.send_header("ETag", f'"{self.hub.etag or repository.digest(path)}"')
        self.send_header("X-Repo-Commit", repository.commit)
        self.send_header("Accept-Ranges", "bytes")
        if path not in self.hub.endless:
            self.send_header("Content-Length", str(stop - start))
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            self._send_content(path, content[start:stop], wanted)

    def _send_content(self, path: str, content: bytes, wanted: str | None) -> None:
        self.hub.served.append((path, wanted))
        if self.hub.damaged.get(path, 0) > 0:
            self.hub.damaged[path] -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        if path in self.hub.cut_short:
            self.hub.cut_short.remove(path)
            content = content[: len(content) // 2]
            self.close_connection = True
        if path in self.hub.endless:
            with contextlib.suppress(OSError):  # the client does not wait for the end
                self.wfile.write(bytes(32 * 2**20))
            return
        if self.hub.resets.get(path, 0) > 0:
            self.hub.resets[path] -= 1
            self.wfile.write(content[: len(content) // 2])
            # Closed with a reset, when the handler has closed its files too.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        if path in self.hub.stalled:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.connection.recv(1)  # until the client is gone
            return
        self.wfile.write(content)

    def _send_json(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

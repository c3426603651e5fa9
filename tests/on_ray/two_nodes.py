"""A Ray cluster of two nodes with a network between them, and an S3 server that both reach."""

import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from urllib.error import URLError
from xml.etree import ElementTree

from on_ray.namespaces import Network
from support.source_tree import ROOT

# `make test-all` makes this environment.
RAY = Path(os.environ.get("VECMILL_RAY_ENVIRONMENT", ROOT / ".venv/ray")) / "bin"
HEAD, WORKER = "head", "worker"
BUCKET = "vecmill"

T = TypeVar("T")

_S3_PORT, _RAY_PORT = 5555, 6379
_XML = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class TwoNodes:
    """The cluster. `cores` is the number of cores of each node; the worker is restarted when it ends.
    `variables` go before those of `environment`.

    That is what an operator such as KubeRay does with a node that the cluster has given up.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cores: int = 1,
        has_worker: bool = True,
        has_dashboard: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._has_dashboard = has_dashboard
        self._variables = variables or {}
        self._cores = cores
        self._has_worker = has_worker
        self._network = Network([HEAD, WORKER])
        self._is_closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self.worker_starts = 0

    def __enter__(self) -> Self:
        self._network.__enter__()
        try:
            address = self._network.hub_address
            self._start("hub", "s3", str(RAY / "moto_server"), "-H", address, "-p", str(_S3_PORT))
            self._wait_for(lambda: self._request("PUT", f"/{BUCKET}") is not None, "S3")
            self._start(
                HEAD,
                HEAD,
                *self._node(HEAD, "--head", "--port", str(_RAY_PORT), *self._dashboard()),
            )
            self._wait_for(lambda: self._has_started(HEAD), HEAD)
            if self._has_worker:
                thread = threading.Thread(target=self._keep_worker, daemon=True)
                thread.start()
                self._threads.append(thread)
                self._wait_for(lambda: self._has_started(WORKER), WORKER)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing.set()
        for host in (HEAD, WORKER, "hub"):
            self._network.kill_all(host)
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.wait()
        self._network.__exit__(kind, error, trace)

    def put(self, name: str, content: bytes) -> None:
        """Store an object in the bucket."""
        self._request("PUT", f"/{BUCKET}/{name}", content)

    def get(self, name: str) -> bytes:
        """The content of an object of the bucket."""
        found = self._request("GET", f"/{BUCKET}/{name}")
        assert found is not None, name
        return found

    def names(self, prefix: str) -> list[str]:
        """The names of the objects of the bucket that begin with `prefix`."""
        names: list[str] = []
        more = ""
        while True:
            answer = self._request("GET", f"/{BUCKET}?list-type=2&prefix={prefix}{more}")
            root = ElementTree.fromstring(answer or b"<none/>")
            names += [node.text or "" for node in root.iter(f"{_XML}Key")]
            token = root.findtext(f"{_XML}NextContinuationToken")
            if not token:
                return names
            more = f"&continuation-token={token}"

    def drive(self, log: Path, *line: str) -> subprocess.Popen[bytes]:
        """Start a `vecmill` command on the head node."""
        return self._start(HEAD, log.stem, str(RAY / "vecmill"), *line, log=log)

    def kill_actor(self, host: str) -> int:
        """Kill one actor that embeds on a host, and return its process."""
        for process in self._network.processes(host):
            with suppress(OSError):
                if b"MapWorker" in Path(f"/proc/{process}/cmdline").read_bytes():
                    os.kill(process, signal.SIGKILL)
                    return process
        raise LookupError(f"{host} has no actor")

    def cut_worker(self, seconds: float) -> None:
        """Pull the cable of the worker for some seconds."""
        self._network.cut(WORKER)
        try:
            time.sleep(seconds)
        finally:
            self._network.restore(WORKER)

    def lose_worker(self) -> None:
        """Pull the cable of the worker, until the end."""
        self._network.cut(WORKER)

    def kill_process(self, host: str, title: str) -> int:
        """Kill one process of a host whose title contains `title`, and return its number."""
        for process in self._network.processes(host):
            with suppress(OSError):
                if title in Path(f"/proc/{process}/cmdline").read_text("utf-8", "replace"):
                    os.kill(process, signal.SIGKILL)
                    return process
        raise LookupError(f"{host} has no process {title}")

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread that reaches both nodes."""
        return self._network.call(function)

    def address(self, host: str) -> str:
        """The IP address of a host."""
        return self._network.address(host)

    def environment(self, host: str = HEAD) -> dict[str, str]:
        """The environment of all processes of a host."""
        # Each node has a HAProxy, with files of its own although the nodes share a file system.
        proxy = f"/tmp/hap-{self._network.namespace(host)}"
        return {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{self._network.hub_address}:{_S3_PORT}",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(
                str(ROOT / part)
                for part in ("libs/vecmill/src", "services/vecmill_server/src", "services/vecmill_ray/src")
            ),
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{proxy}/haproxy.cfg",
            "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{proxy}/admin.sock",
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": proxy,
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{proxy}/server-state",
            "RAY_ADDRESS": f"{self._network.address(HEAD)}:{_RAY_PORT}",
            # The nodes would not agree about a token that lies in the home folder.
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            # As on machines of their own. By default anything else that runs here goes before the workers.
            "RAY_worker_niceness": "0",
            "VECMILL_CACHE_DIR": str(self._folder / "cache"),
            **self._variables,
        }

    def _dashboard(self) -> list[str]:
        if self._has_dashboard:  # as KubeRay starts it
            return ["--include-dashboard", "true", "--dashboard-host", "0.0.0.0"]
        return ["--include-dashboard", "false"]

    def _node(self, host: str, *arguments: str) -> list[str]:
        # Unix sockets have short paths.
        session = f"/tmp/ray-{self._network.namespace(host)}"
        return [
            *(str(RAY / "ray"), "start", "--block", *arguments),
            *("--node-ip-address", self._network.address(host)),
            *("--num-cpus", str(self._cores), "--object-store-memory", "100000000"),
            *("--temp-dir", session),
        ]

    def _keep_worker(self) -> None:
        """Start the worker, and start it again each time that it ends."""
        address = f"{self._network.address(HEAD)}:{_RAY_PORT}"
        while not self._is_closing.is_set():
            self._network.kill_all(WORKER)
            self.worker_starts += 1
            self._start(WORKER, WORKER, *self._node(WORKER, "--address", address)).wait()
            self._is_closing.wait(1)

    def _start(self, host: str, name: str, *line: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        with (log or self._folder / f"{name}.log").open("ab") as file:
            process = subprocess.Popen(
                self._network.command(host, *line),
                env=self.environment(host),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._folder,
            )
        self._processes.append(process)
        return process

    def _has_started(self, host: str) -> bool:
        log = self._folder / f"{host}.log"
        return log.exists() and "Ray runtime started" in log.read_text("utf-8", "replace")

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes | None:
        """Answer of the S3 server, `None` if it cannot be reached."""
        address = f"http://{self._network.hub_address}:{_S3_PORT}{path}"

        def send() -> bytes | None:
            request = urllib.request.Request(address, body, method=method)
            # Else the body counts as a form.
            request.add_header("Content-Type", "application/octet-stream")
            request.add_header(
                "Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    content: bytes = answer.read()
                    return content
            except URLError:
                return None

        return self._network.call(send)

    def _wait_for(self, is_ready: Callable[[], bool], what: str, limit_s: float = 300) -> None:
        deadline = time.monotonic() + limit_s
        while not is_ready():
            assert time.monotonic() < deadline, f"{what} did not start; see the logs in {self._folder}"
            time.sleep(0.5)

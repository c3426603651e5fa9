"""Network namespaces on one bridge, so that a real network lies between processes of one machine.

Needs root and iproute2. Nothing of it touches the network of the machine itself: the bridge is in a
namespace too, and a thread of the test enters that namespace to talk to what runs there.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


def why_not() -> str | None:
    """Why namespaces cannot be made here, `None` if they can."""
    if shutil.which("ip") is None:
        return "needs Debian's package iproute2"
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    made = subprocess.run(["ip", "netns", "add", f"vecmill-try-{os.getpid()}"], capture_output=True)
    if made.returncode:
        return f"network namespaces are not allowed here: {made.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "del", f"vecmill-try-{os.getpid()}"], check=True)
    return None


class Network:
    """A bridge with one address for the stand-in of shared storage, and a cable to each named host."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._prefix = f"vm{os.getpid()}"
        self._hosts = list(hosts)
        self.hub_address = "10.77.0.1"

    def __enter__(self) -> Self:
        self._ip("netns", "add", self.namespace("hub"))
        hub = ("-n", self.namespace("hub"))
        self._ip(*hub, "link", "add", "bridge0", "type", "bridge")
        self._ip(*hub, "addr", "add", f"{self.hub_address}/24", "dev", "bridge0")
        self._ip(*hub, "link", "set", "bridge0", "up")
        self._ip(*hub, "link", "set", "lo", "up")
        for host in self._hosts:
            name = self.namespace(host)
            self._ip("netns", "add", name)
            self._ip(*hub, "link", "add", f"to-{host}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self._ip(*hub, "link", "set", f"to-{host}", "master", "bridge0", "up")
            self._ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            self._ip("-n", name, "link", "set", "eth0", "up")
            self._ip("-n", name, "link", "set", "lo", "up")
            self._ip("-n", name, "route", "add", "default", "via", self.hub_address)
            # As docs/ray.md says: the kernel gives up a connection to a lost node after seconds.
            retries = "echo 4 > /proc/sys/net/ipv4/tcp_retries2"
            subprocess.run(self.command(host, "sh", "-c", retries), check=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in (*self._hosts, "hub"):
            self.kill_all(host)
            subprocess.run(["ip", "netns", "del", self.namespace(host)], capture_output=True)

    def namespace(self, host: str) -> str:
        """The name of the namespace of a host."""
        return f"{self._prefix}-{host}"

    def address(self, host: str) -> str:
        """The IP address of a host."""
        return f"10.77.0.{2 + self._hosts.index(host)}"

    def command(self, host: str, *line: str) -> list[str]:
        """The command line that runs `line` on a host."""
        return ["ip", "netns", "exec", self.namespace(host), *line]

    def cut(self, host: str) -> None:
        """Pull the cable of a host."""
        self._ip("-n", self.namespace("hub"), "link", "set", f"to-{host}", "down")

    def restore(self, host: str) -> None:
        """Plug the cable of a host in again."""
        self._ip("-n", self.namespace("hub"), "link", "set", f"to-{host}", "up")

    def processes(self, host: str) -> list[int]:
        """The processes of a host."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.namespace(host)], capture_output=True, text=True, check=False
        )
        return [int(line) for line in done.stdout.split()]

    def kill_all(self, host: str) -> None:
        """Kill all processes of a host."""
        for process in self.processes(host):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread that is in the namespace of the bridge."""
        results: list[T] = []
        errors: list[BaseException] = []

        def enter_and_call() -> None:
            try:
                with Path(f"/run/netns/{self.namespace('hub')}").open("rb") as file:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(file.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns failed")
                results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=enter_and_call)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

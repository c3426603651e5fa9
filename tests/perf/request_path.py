"""What one request passes in the server, and the time that it takes of the event loop's thread.

make bench-path ARGS="--before ../other-checkout"

The functions and files are those of `vecmill_server` that the event loop's thread enters for one warm request
from the first byte of its head until the library sees it, and until its end, as `sys.setprofile` reports
them; comprehensions belong to their function. The times of the stages are shares of a profile, which makes
small functions look slower than they are. The time of a request is that of the event loop's thread by the
scheduler of Linux, so it includes the system calls and nothing that other threads do. The engine is the fake
one, and one client sends.
"""

import argparse
import cProfile
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import urlsplit

from perf.before_after import command_of
from support.http_server import HttpServer, serve_in_thread
from support.server import live_server
from support.source_tree import ROOT

BODY = b'{"input": "a short text, as a search for something has it", "encoding_format": "base64"}'
REQUEST = (
    b"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1:7997\r\nuser-agent: client/1.0\r\naccept: */*\r\n"
    b"accept-encoding: gzip, deflate\r\nauthorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
WARM_UP = 300  # requests
COUNTED = 5  # requests, of which the one with the fewest functions counts
PROMISED_FUNCTIONS, PROMISED_FILES = 70, 22
PROMISED_RATIO = 0.8
# Code that Python makes a function of its own, inside another.
_INNER = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
_SERVER, _LIBRARY = "/src/vecmill_server/", "/src/vecmill/"
# What the main loop enters ten times a second, whatever is asked.
_TICKS = (":Runner.on_tick", ":Runner.main_loop", ":Alarm.sleep")
# The function of the library that computes a request.
_ENTRY = "Mill.run"


class Client:
    """One connection to a server on loopback, which sends the same request again and again."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, times: int = 1) -> None:
        """Send the request and read its response, so many times. Raises `RuntimeError` if one is an error."""
        for _ in range(times):
            self._socket.sendall(REQUEST)
            received = b""
            while b"\r\n\r\n" not in received:
                received += self._receive()
            head, _, body = received.partition(b"\r\n\r\n")
            if b" 200 " not in head.partition(b"\r\n")[0]:
                raise RuntimeError(f"The server answered {head!r}.")
            length = next(
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            )
            while len(body) < length:
                body += self._receive()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self) -> bytes:
        received = self._socket.recv(65_536)
        if not received:
            raise RuntimeError("The server closed the connection.")
        return received


@dataclass(frozen=True, slots=True)
class RequestPath:
    """The functions of the server that one request passes, each as `file:name`, and the shares of stages.

    The first `before_library` functions are entered before the library computes. A stage is
    a folder of the server, `library`, or `others` for functions of others that others call.
    """

    functions: Sequence[str]
    before_library: int
    shares: Mapping[str, float]

    @property
    def first(self) -> Sequence[str]:
        """The functions before the library computes."""
        return self.functions[: self.before_library]


def trace_path(requests: int) -> RequestPath:
    """Return the path of a request through the server of the packages that this process imports."""
    with serve_in_thread() as server:
        client = Client(server.port)
        client.ask(WARM_UP)
        traced = min((_trace_one(server, client) for _ in range(COUNTED)), key=len)
        shares = _profile(server, client, requests)
        client.close()
    functions = [function for function in traced if function != _ENTRY]
    return RequestPath(functions, traced.index(_ENTRY), shares)


def count_files(functions: Iterable[str]) -> int:
    """Return the number of files that have the functions."""
    return len({function.partition(":")[0] for function in functions})


def _on_loop(server: HttpServer, call: Callable[[], object]) -> None:
    """Call a function in the event loop's thread, and wait until it was called."""
    loading = server.runner._loading
    assert loading is not None
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    loading.get_loop().call_soon_threadsafe(run)
    done.wait(20)


def _trace_one(server: HttpServer, client: Client) -> list[str]:
    """Return the functions of the server that a request enters, and `_ENTRY` at its place."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name in _INNER:
            return
        _, is_server, file = code.co_filename.partition(_SERVER)
        if is_server:
            entered[f"{file}:{code.co_qualname}"] = None
        elif code.co_qualname == _ENTRY and _LIBRARY in code.co_filename:
            entered[_ENTRY] = None

    _on_loop(server, lambda: sys.setprofile(note))
    client.ask()
    _on_loop(server, lambda: sys.setprofile(None))
    return [name for name in entered if not name.endswith(_TICKS)]


def _profile(server: HttpServer, client: Client, requests: int) -> dict[str, float]:
    profile = cProfile.Profile()
    _on_loop(server, profile.enable)
    client.ask(requests)
    _on_loop(server, profile.disable)
    entries = profile.getstats()
    spent: dict[str, float] = {}
    for entry in entries:
        stage = _stage_of(entry.code)
        if stage is not None:
            # What functions of others take is their caller's.
            calls = (call.inlinetime for call in entry.calls or () if _stage_of(call.code) is None)
            spent[stage] = spent.get(stage, 0.0) + entry.inlinetime + sum(calls)
    total = sum(entry.inlinetime for entry in entries)
    spent["others"] = total - sum(spent.values())
    largest_first = sorted(spent, key=lambda stage: -spent[stage])
    return {stage: spent[stage] / total for stage in largest_first}


def _stage_of(code: CodeType | str) -> str | None:
    """Return the stage of a function, `None` for a function of others, such as C functions."""
    if isinstance(code, str):
        return None
    _, is_server, inner = code.co_filename.partition(_SERVER)
    if is_server:
        return inner.partition("/")[0]
    return "library" if _LIBRARY in code.co_filename else None


def trace_apart(checkout: Path, requests: int) -> RequestPath:
    """Return the path of a request through the server of a checkout, traced in a process of its own."""
    sources = [checkout / each for each in ("libs/vecmill/src", "services/vecmill_server/src", "tests")]
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, sources))}
    command = [sys.executable, __file__, "--trace", "--requests", str(requests)]
    done = subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    return RequestPath(**json.loads(done.stdout))


def measure_pairs(checkouts: Mapping[str, Path], pairs: int, requests: int) -> dict[str, list[float]]:
    """Return the microseconds of the event loop's thread for a request, in turns, by checkout."""
    found: dict[str, list[float]] = {name: [] for name in checkouts}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vecmill-bench-")))
        measured: dict[str, tuple[Client, Path]] = {}
        for name, checkout in checkouts.items():
            (folder / name).mkdir()
            quiet = ("--engine", "fake", "--no-access-log")
            server = stack.enter_context(
                live_server(folder / name, arguments=quiet, command=command_of(checkout))
            )
            client = Client(urlsplit(server.url).port or 0)
            stack.callback(client.close)
            client.ask(WARM_UP)
            process = server.process.pid
            measured[name] = client, Path(f"/proc/{process}/task/{process}/schedstat")
        for number in range(pairs):
            for name in list(measured)[:: 1 if number % 2 else -1]:
                client, schedule = measured[name]
                began = _spent_us(schedule)
                client.ask(requests)
                found[name].append((_spent_us(schedule) - began) / requests)
    return found


def _spent_us(schedule: Path) -> float:
    """Return the microseconds that a thread has had a processor; its first number is nanoseconds."""
    return int(schedule.read_text().split()[0]) / 1000


def _print_path(name: str, path: RequestPath) -> None:
    print(f"{name}: {len(path.first)} functions in {count_files(path.first)} files before the library,")
    print(f"{' ' * len(name)}  {len(path.functions)} in {count_files(path.functions)} until the end")
    by_folder = Counter(function.partition("/")[0].partition(":")[0] for function in path.functions)
    for stage, share in path.shares.items():
        print(f"  {stage:12}  {share:6.1%} of the profile, {by_folder.get(stage, 0):3} functions")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="Another checkout to compare with.")
    parser.add_argument("--pairs", type=int, default=10, help="How many times each server is measured.")
    parser.add_argument("--requests", type=int, default=2_000, help="How many requests a measurement has.")
    parser.add_argument("--functions", action="store_true", help="Print the functions, in order.")
    parser.add_argument(
        "--trace", action="store_true", help="Print the path of this process's packages as JSON."
    )
    options = parser.parse_args(arguments)
    if options.trace:
        path = trace_path(options.requests)
        print(json.dumps(asdict(path)))
        return 0
    checkouts = {"after": ROOT}
    if options.before is not None:
        checkouts = {"before": options.before.resolve(), **checkouts}
    paths = {name: trace_apart(checkout, options.requests) for name, checkout in checkouts.items()}
    for name, path in paths.items():
        _print_path(name, path)
    if options.functions:
        print("\n".join(paths["after"].functions))
    spent = measure_pairs(checkouts, options.pairs, options.requests)
    print("microseconds of the event loop's thread for a request: median (lowest, highest)")
    for name, each in spent.items():
        print(f"  {name:8} {statistics.median(each):6.1f} ({min(each):.1f}, {max(each):.1f})")
    first = paths["after"].first
    holds = len(first) <= PROMISED_FUNCTIONS and count_files(first) <= PROMISED_FILES
    if options.before is not None:
        ratio = statistics.median(
            after / before for before, after in zip(spent["before"], spent["after"], strict=True)
        )
        print(f"  after / before, median of {options.pairs} pairs: {ratio:.3f}")
        holds = holds and ratio <= PROMISED_RATIO
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

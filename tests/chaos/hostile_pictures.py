"""Hostile pictures at a real server: what each is answered, and what they cost the server and other clients.

    PYTHONPATH=tests python -m chaos.hostile_pictures [COUNT]

A client sends every file that was made by hand, and COUNT files with changes (10,000 by default), each alone,
on several connections. Another client sends texts: alone, while the first sends harmless texts on as many
connections, and while it sends the files. All clients share the cores with the server, so that any requests
on so many connections make the texts slower; the second time tells how much. Memory is the proportional set
size of the server and of its child processes, read every few milliseconds. That before is of a server that
has decoded nothing.
"""

import base64
import http.client
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from bench.process_use import proportional_mb
from chaos.text_client import texts_sent
from support.hostile_pictures import hostile_pictures, mutated_pictures
from support.livez_gap import LivezGap, livez_gap
from support.server import LiveServer, live_server
from support.two_towers import save_clip
from vecmill.hardware.system_calls import add_niceness

CONNECTIONS = 4
ALONE_S = 5.0
# Of those who send pictures and read the memory: from another machine they would take no core of the server.
NICENESS = 10
PATIENCE_S = 120.0
SEED = 3
FLOOD, OTHER = "flood", "other"

_MEMORY_EVERY_S = 0.05


@dataclass(slots=True)
class Found:
    """What happened. `wrong` are answers that are neither an embedding nor a 400 about the file."""

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    before_mb: float = 0.0
    most_mb: float = 0.0
    took_s: float = 0.0
    alone_ms: float = 0.0
    beside_texts_ms: float = 0.0
    beside_ms: float = 0.0
    texts_beside: int = 0
    gap: LivezGap = field(default_factory=LivezGap)

    @property
    def added_mb(self) -> float:
        """The memory above that of the server before."""
        return self.most_mb - self.before_mb

    def __str__(self) -> str:
        gap = self.gap
        times = [each / self.alone_ms for each in (self.beside_texts_ms, self.beside_ms)]
        return (
            f"{self.statuses.total()} files in {self.took_s:.0f} s: {dict(self.statuses)}, wrong "
            f"{self.wrong[:3]}; memory {self.before_mb:.0f} MB before, at most {self.added_mb:.0f} MB more; "
            f"/livez at most {1000 * gap.server_s:.0f} ms (control {1000 * gap.control_s:.0f} ms, computed "
            f"{1000 * gap.computed_s:.0f} ms); texts {self.alone_ms:.2f} ms alone, "
            f"{self.beside_texts_ms:.2f} ms beside texts ({times[0]:.2f} times), {self.beside_ms:.2f} ms "
            f"beside pictures ({times[1]:.2f} times; {self.texts_beside} texts)"
        )


@contextmanager
def picture_server(folder: Path) -> Iterator[LiveServer]:
    """Serve a tiny CLIP model to two clients."""
    keys = folder / "keys"
    keys.write_text(f"{FLOOD} {FLOOD}\n{OTHER} {OTHER}\n", "utf-8")
    model = save_clip(folder / "model")
    # The probe of /livez has one connection for all of the run.
    arguments = [str(model), "--no-access-log", "--api-key-file", str(keys), "--max-connection-age-s", "0"]
    with live_server(folder, arguments=arguments) as server:
        yield server


def send_files(server: LiveServer, count: int, *, alone_s: float = ALONE_S) -> Found:
    """Send all files, and texts beside them.

    For `alone_s` seconds before, texts are sent alone, and for as long beside harmless texts.
    """
    found = Found()
    pid, port = server.process.pid, int(server.url.rpartition(":")[2])
    with texts_sent(port, OTHER) as alone:
        time.sleep(alone_s)
    found.alone_ms, found.before_mb = alone.median_ms, _measure_mb(pid)
    with texts_sent(port, OTHER) as beside_texts, _harmless_texts(port):
        time.sleep(alone_s)
    found.beside_texts_ms = beside_texts.median_ms
    files = chain(hostile_pictures().items(), _name_mutated(count))
    began = time.perf_counter()
    with livez_gap(port, pid) as found.gap, texts_sent(port, OTHER) as beside:
        _send_all(found, files, port, pid)
    found.took_s = time.perf_counter() - began
    found.beside_ms, found.texts_beside = beside.median_ms, beside.answers
    return found


@contextmanager
def _harmless_texts(port: int) -> Iterator[None]:
    """Send texts on as many connections as pictures are sent on, until the block ends."""
    is_over = threading.Event()

    def send() -> None:
        add_niceness(NICENESS)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        while not is_over.is_set():
            status, answer = _send(connection, FLOOD, b'{"input": "a cat and a dog"}')
            assert status == 200, answer
        connection.close()

    senders = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for sender in senders:
        sender.start()
    try:
        yield
    finally:
        is_over.set()
        for sender in senders:
            sender.join()


def _name_mutated(count: int) -> Iterator[tuple[str, bytes]]:
    return ((f"changed {index}", data) for index, data in enumerate(mutated_pictures(SEED, count)))


def _send_all(found: Found, files: Iterable[tuple[str, bytes]], port: int, pid: int) -> None:
    lock, waiting, is_over = threading.Lock(), iter(files), threading.Event()

    def send() -> None:
        add_niceness(NICENESS)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        while True:
            with lock:
                name, data = next(waiting, ("", None))
            if data is None:
                connection.close()
                return
            status, answer = _send(connection, FLOOD, _body(data))
            with lock:
                found.statuses[status] += 1
                if not _is_right(status, answer):
                    found.wrong.append(f"{name}: {status} {answer[:200]!r}")

    def measure() -> None:
        add_niceness(NICENESS)
        while not is_over.wait(_MEMORY_EVERY_S):
            found.most_mb = max(found.most_mb, _measure_mb(pid))

    senders = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    watching = threading.Thread(target=measure)
    for thread in (*senders, watching):
        thread.start()
    for thread in senders:
        thread.join()
    is_over.set()
    watching.join()


def _is_right(status: int, answer: bytes) -> bool:
    document = json.loads(answer)
    if status == 200:
        return len(document["data"]) == 1
    return status == 400 and document["error"]["param"] == "input" and "`input[0]` " in document["message"]


def _body(data: bytes) -> bytes:
    return json.dumps({"input": [{"image": base64.b64encode(data).decode()}]}).encode()


def _send(connection: http.client.HTTPConnection, key: str, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", "/v1/embeddings", body, {"authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def _measure_mb(pid: int) -> float:
    """Return the memory of a process and of its children."""
    total = proportional_mb(pid)
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError, StopIteration):
            for child in (task / "children").read_text("ascii").split():
                total += proportional_mb(child)
    return total


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder, picture_server(Path(folder)) as server:
        print(send_files(server, count))


if __name__ == "__main__":
    main()

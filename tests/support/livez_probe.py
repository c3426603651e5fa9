"""The processes of `support.livez_gap`. They import little, because every measurement starts three of them.

Run as a program: `livez_probe.py serve`, or `livez_probe.py probe PORT [PID]`.
"""

import os
import select
import socket
import sys
import time

EVERY_S = 0.002
PATIENCE_S = 120.0

REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
BEGUN = "begun\n"


def probe_port(port: int, pid: int | None) -> tuple[float, float]:
    """Ask again and again until standard input ends; return the longest times between two answers.

    The second counts only as much of each time as one thread of the process `pid` computed in it.
    """
    longest_s = longest_computed_s = 0.0
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        last_at, last_computed_s = _ask(connection), _read_computed_s(pid)
        print(BEGUN, end="", flush=True)
        while not select.select([sys.stdin], [], [], EVERY_S)[0]:
            now, computed_s = _ask(connection), _read_computed_s(pid)
            longest_s = max(longest_s, now - last_at)
            busiest_s = max(time_s - last_computed_s.get(tid, 0.0) for tid, time_s in computed_s.items())
            longest_computed_s = max(longest_computed_s, min(now - last_at, busiest_s))
            last_at, last_computed_s = now, computed_s
    return longest_s, longest_computed_s


def _read_computed_s(pid: int | None) -> dict[str, float]:
    """Return the processor time so far of each thread of a process; without one, the time."""
    if pid is None:
        return {"": time.perf_counter()}
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                found[tid] = int(file.read().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
    return found


def _ask(connection: socket.socket) -> float:
    """Return the time of the answer."""
    connection.sendall(REQUEST)
    if not connection.recv(65_536).startswith(b"HTTP/1.1 200 "):
        raise ConnectionError("`/livez` failed")
    return time.perf_counter()


def serve_control() -> None:
    """Answer whatever arrives on a free port, which is printed, until the process is killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connections: list[socket.socket] = []
    while True:
        for ready in select.select([listener, *connections], [], [])[0]:
            if ready is listener:
                connections.append(listener.accept()[0])
            elif ready.recv(65_536):
                ready.sendall(ANSWER)
            else:
                connections.remove(ready)
                ready.close()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve_control()
    else:
        print(*probe_port(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))

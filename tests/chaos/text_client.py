"""A client that sends a text after the answer to the one before: `text_client.py PORT KEY`.

It is a process of its own: in that of those who send much else it would wait for them. It sends until a line
comes on standard input, and then prints the median time of an answer in milliseconds, and their number.
"""

import http.client
import json
import select
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import PIPE, Popen

PATIENCE_S = 120.0


@dataclass(slots=True)
class TextTimes:
    """The median time of an answer, and the number of answers, known after the context."""

    median_ms: float = 0.0
    answers: int = 0


@contextmanager
def texts_sent(port: int, key: str) -> Iterator[TextTimes]:
    """Send texts until the block ends."""
    found = TextTimes()
    command = [sys.executable, "-I", "-S", __file__, str(port), key]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield found
            told, _ = process.communicate("end\n", timeout=PATIENCE_S)
        finally:
            process.kill()
    median_ms, answers = told.split()
    found.median_ms, found.answers = float(median_ms), int(answers)


def send_texts(port: int, key: str) -> list[float]:
    """Return the seconds of each answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    took_s: list[float] = []
    while not took_s or not select.select([sys.stdin], [], [], 0)[0]:
        body = json.dumps({"input": f"the cat {len(took_s)}"}).encode()
        began = time.perf_counter()
        connection.request("POST", "/v1/embeddings", body, {"authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        told = answer.read()
        took_s.append(time.perf_counter() - began)
        if answer.status != 200:
            raise ConnectionError(told)
    return took_s


if __name__ == "__main__":
    times_s = send_texts(int(sys.argv[1]), sys.argv[2])
    print(1000 * statistics.median(times_s), len(times_s))

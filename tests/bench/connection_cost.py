"""The processor time of a request in the protocol of a connection, over a transport in memory.

PYTHONPATH=tests .venv/test/bin/python -m bench.connection_cost [--before CHECKOUT]

The application answers every request at once with the same 2 KB, so the time is that of the protocol and of
the event loop. Each case runs in processes of their own, which take turns. `--before` compares with
another checkout.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from starlette.types import Receive, Scope, Send

from support.source_tree import ROOT

SEED = 20_261_123
BODY = b'{"input": "a short text, as a search for something has it"}'
HEAD = (
    b"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1:7997\r\nuser-agent: client/1.0\r\naccept: */*\r\n"
    b"accept-encoding: gzip, deflate\r\nauthorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
    b"content-type: application/json\r\n"
)
WHOLE = HEAD + b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
# The reads of one request.
CASES = MappingProxyType(
    {
        "whole": [WHOLE],
        "head and body": [WHOLE[: -len(BODY)], BODY],
        "chunked": [CHUNKED],
        "ten pieces": [
            WHOLE[at : at + len(WHOLE) // 10 + 1] for at in range(0, len(WHOLE), len(WHOLE) // 10 + 1)
        ],
        "pipelined": [WHOLE * 20],
    }
)
MOST_TURNS = 10  # of the event loop, for a request
ANSWER = b"x" * 2_048
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request when its body is complete."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


def measure(case: str, requests: int) -> float:
    """Return the processor time of a request in microseconds, in this process."""
    import uvloop

    from support.memory_transport import give, make_share, open_connection

    share = make_share()
    reads = CASES[case]
    count = b"".join(reads).count(b"POST ")

    async def run(rounds: int) -> float:
        connection, transport, state = open_connection(answer, share)
        began = time.process_time()
        for number in range(rounds):
            wanted = count * (number + 1)
            for read in reads:
                give(connection, read)
            for _ in range(MOST_TURNS * count):
                await asyncio.sleep(0)
                if state.total_requests == wanted:
                    break
            transport.written.clear()
        return (time.process_time() - began) / (rounds * count)

    uvloop.run(run(requests // count // 10))  # warms up
    return 1e6 * float(uvloop.run(run(requests // count)))


def measure_apart(checkout: Path, case: str, requests: int) -> float:
    """Return the figure of a checkout, measured in a process of its own."""
    folders = ("libs/vecmill/src", "services/vecmill_server/src", "tests")
    environment = {**os.environ, "PYTHONPATH": ":".join(str(checkout / folder) for folder in folders)}
    command = [sys.executable, "-m", "bench.connection_cost", "--case", case, "--requests", str(requests)]
    done = subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="Another checkout.")
    parser.add_argument("--requests", type=int, default=20_000, help="How many requests a process answers.")
    parser.add_argument("--rounds", type=int, default=5, help="How many processes measure each case.")
    parser.add_argument(
        "--case", choices=CASES, help="Measure one case in this process, and print its figure."
    )
    options = parser.parse_args(arguments)
    if options.case is not None:
        print(measure(options.case, options.requests))
        return 0
    checkouts = (
        {"after": ROOT} if options.before is None else {"before": options.before.resolve(), "after": ROOT}
    )
    found: dict[tuple[str, str], list[float]] = {(case, name): [] for case in CASES for name in checkouts}
    dice = random.Random(SEED)
    for _ in range(options.rounds):
        for case, name in dice.sample(list(found), len(found)):
            found[case, name].append(measure_apart(checkouts[name], case, options.requests))
    print(f"seed {SEED}, processor time of a request in microseconds: median (lowest) of {options.rounds}")
    for case in CASES:
        figures = {name: found[case, name] for name in checkouts}
        cells = [f"{name} {statistics.median(each):.1f} ({min(each):.1f})" for name, each in figures.items()]
        print(f"  {case}: {', '.join(cells)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

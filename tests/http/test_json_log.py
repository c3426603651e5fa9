"""With `--log-format json` every line on standard error is JSON, from the first one to the last."""

import json
import os
import re
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.forked_process import run_process
from support.server import live_server

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
COMMAND = (sys.executable, "-m", "vecmill", "serve")


def read(text: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines
    assert all(RFC_3339.fullmatch(line["time"]) for line in lines)
    assert all({"level", "logger", "message"} <= line.keys() for line in lines)
    return lines


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("--log-format", "json", "--port", "99999"), {}, "port must be between 0 and 65535"),
        (("--no-such-option", "--log-format=json"), {}, "--no-such-option"),
        ((), {"VECMILL_LOG_FORMAT": "json", "VECMILL_PORT": "many"}, "'many' is not a valid integer"),
        (("--log-format", "json", "/no/such/folder"), {}, "/no/such/folder"),
    ],
)
def test_an_error_at_the_start_is_json(
    arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    done = run_process([*COMMAND, *arguments], env=os.environ | environment)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = read(done.stderr)
    assert message in line["message"]
    assert line["level"] == "CRITICAL"


def test_a_server_writes_json_and_the_address_of_the_client(tmp_path: Path) -> None:
    arguments = ("--engine", "fake", "--log-format", "json")
    with live_server(tmp_path, arguments=arguments) as server:
        urllib.request.urlopen(f"{server.url}/livez").close()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        lines = server.log.read_text().splitlines()
    # The file has the message on standard output too.
    others = [line for line in lines if not line.startswith("{")]
    assert [line.split()[0] for line in others] == ["vecmill", "curl", "To", "The"]
    found = read("\n".join(line for line in lines if line not in others))
    access = [line for line in found if line["message"] == "request"]
    assert access[-1]["route"] == "livez"
    assert {line["client"] for line in access} == {"127.0.0.1"}

"""The server starts with the command, the variables and the files that the chart gives to the pod."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.rendering import config_file_of, container_of, render_text, select
from support.server import free_port, wait_until_ready

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("chart_tools")]

CONFIG = """
[server]
url_prefix = "/vectors"
host = "192.0.2.1"
port = 1
api_key_file = "/home/author/keys"
max_connections = 500
keep_alive_s = 7.5
cors_origin = ["https://a.example", "https://b.example"]

[[models]]
model = "all-MiniLM-L6-v2"
engine = "fake"
"""
KEY, METRICS_KEY = "a-key-of-a-client", "a-key-of-prometheus"


def read_variable(entry: Mapping[str, Any]) -> str:
    """Return the value of a variable of the container, for a CPU request of 2 cores."""
    if "value" in entry:
        return str(entry["value"])
    return METRICS_KEY if "secretKeyRef" in entry["valueFrom"] else "2"


def status_of(url: str, key: str | None = None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_server_starts_as_in_the_pod(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG, encoding="utf-8")
    settings = ("--set", "keys.existingSecret=vecmill-keys,keys.metricsEntry=metrics")
    text = render_text(*settings, "--set-file", f"config={tmp_path / 'config.toml'}")
    manifests = tuple(yaml.safe_load_all(text))
    container = container_of(select(manifests, "Deployment"))
    # The folders of the container are folders of the test, which its variables name.
    folders = {mount["mountPath"]: tmp_path / mount["name"] for mount in container["volumeMounts"]}
    for folder in folders.values():
        folder.mkdir()
    (tmp_path / "keys/keys").write_text(f"search {KEY}\n", encoding="utf-8")
    (tmp_path / "config/vecmill.toml").write_text(config_file_of(manifests), "utf-8")

    def in_test(value: str) -> str:
        for mount, folder in folders.items():
            if value.startswith(f"{mount}/"):
                return f"{folder}{value.removeprefix(mount)}"
        return value

    port = free_port()
    environment = {entry["name"]: in_test(read_variable(entry)) for entry in container["env"]}
    environment |= {"VECMILL_PORT": str(port), "VECMILL_LAME_DUCK_S": "0"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VECMILL_")}
    command = [sys.executable, "-m", *map(in_test, container["command"])]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=kept | environment)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(f"{url}/vectors", process, log, deadline=time.perf_counter() + 60)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert status_of(url + container[probe]["httpGet"]["path"]) == 200, probe
        assert status_of(f"{url}/vectors/metrics") == 401
        assert status_of(f"{url}/vectors/metrics", METRICS_KEY) == 200
        assert status_of(f"{url}/vectors/v1/models") == 401
        assert status_of(f"{url}/vectors/v1/models", KEY) == 200
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0

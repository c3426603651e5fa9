"""The proxies of docs/reverse-proxies.md, run from the configurations on the page."""

import os
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection

from support.certificates import make_certificate
from support.server import free_port
from support.source_tree import ROOT

PAGE = (ROOT / "docs/reverse-proxies.md").read_text("utf-8")
LANGUAGES = {"nginx": "nginx", "caddy": "caddyfile"}
ADDRESSES = ("10.0.0.11:7997", "10.0.0.12:7997")
START_S = 20.0

# The part of nginx's configuration that Debian's package has, with paths inside one folder.
NGINX = """
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
worker_processes 2;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/vecmill.conf;
}}
"""
CADDY = "{{\n    admin off\n    auto_https disable_redirects\n    storage file_system {folder}/storage\n}}\n"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy. `tls` trusts its certificate."""

    kind: str
    port: int
    tls: ssl.SSLContext
    log: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


def configuration(kind: str) -> str:
    """The configuration of a proxy as the page has it."""
    (block,) = re.findall(rf"^```{LANGUAGES[kind]}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(block)


def replaced(text: str, values: Mapping[str, str]) -> str:
    """`text` with each key replaced by its value. Raises `AssertionError` if a key is not in the text."""
    for key, value in values.items():
        assert key in text, key
        text = text.replace(key, value)
    return text


@contextmanager
def running_proxy(
    kind: str, folder: Path, servers: Sequence[str], changes: Mapping[str, str] | None = None
) -> Iterator[Proxy]:
    """Run a proxy before two servers, whose addresses may be equal. `changes` replace parts of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = make_certificate(folder, "127.0.0.1", "IP")
    port = free_port()
    text = replaced(configuration(kind), changes or {})
    text = replaced(text, dict(zip(ADDRESSES, servers, strict=True)))
    write = write_nginx if kind == "nginx" else write_caddy
    command = write(folder, text, port, certificate, key)
    log = folder / "proxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "HOME": str(folder)}
        )
    try:
        wait_for_port(port, process, log)
        yield Proxy(kind, port, ssl.create_default_context(cafile=str(certificate)), log)
    finally:
        process.terminate()
        process.wait(START_S)


def write_nginx(folder: Path, text: str, port: int, certificate: Path, key: Path) -> list[str]:
    """Write the configuration of nginx, and return its command."""
    values = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/ssl/embed.example.com.pem": str(certificate),
        "/etc/ssl/private/embed.example.com.key": str(key),
    }
    (folder / "vecmill.conf").write_text(replaced(text, values), "utf-8")
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user), "utf-8")
    return [
        shutil.which("nginx") or "/usr/sbin/nginx",
        "-p",
        str(folder),
        "-c",
        str(folder / "nginx.conf"),
        "-g",
        "daemon off;",
    ]


def write_caddy(folder: Path, text: str, port: int, certificate: Path, key: Path) -> list[str]:
    """Write the configuration of Caddy, and return its command."""
    site = f"https://127.0.0.1:{port} {{\n    tls {certificate} {key}"
    text = CADDY.format(folder=folder) + replaced(text, {"embed.example.com {": site})
    (folder / "Caddyfile").write_text(text, "utf-8")
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the proxy listens."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(f"the proxy does not listen:\n{log.read_text()}")

"""The limits and times of docs/reverse-proxies.md fit the defaults of the server."""

import re
from collections.abc import Callable
from enum import Enum

import pytest
import yaml

from proxies.running import PAGE, configuration
from support.http_server import QUIET, build_service
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill_server.app import list_routes
from vecmill_server.app.routes.batches import batches_routes
from vecmill_server.base.settings import ServerSettings
from vecmill_server.base.time_limit import TIMEOUT_S

MIB = 1024 * 1024
DEFAULTS = ServerSettings()
# For each proxy, the patterns of its limits and times.
PATTERNS = {
    "nginx": {
        "body": r"^    client_max_body_size (\d+)m;",
        "file": r"^        client_max_body_size (\d+)m;",
        "idle": r"keepalive_timeout (\d+)s;",
        "answer": r"proxy_read_timeout (\d+)s;",
    },
    "caddy": {
        "body": r"handle \{\n\s+request_body \{\n\s+max_size (\d+)MiB",
        "file": r"handle @files \{\n\s+request_body \{\n\s+max_size (\d+)MiB",
        "idle": r"keepalive (\d+)s",
        "answer": r"response_header_timeout (\d+)s",
    },
}


class Destination(Enum):
    """Where a proxy sends a request."""

    ALL = "any server"
    FIRST = "the server with the files"
    NOBODY = "404"


def figure(kind: str, name: str) -> int:
    """The only value of a limit or a time in the configuration of a proxy."""
    (value,) = set(re.findall(PATTERNS[kind][name], configuration(kind), re.MULTILINE))
    return int(value)


@pytest.mark.parametrize("kind", PATTERNS)
def test_limits_and_times_fit_the_defaults_of_the_server(kind: str) -> None:
    assert figure(kind, "body") * MIB == DEFAULTS.max_body_bytes
    assert figure(kind, "file") * MIB > DEFAULTS.max_file_bytes
    assert figure(kind, "idle") < DEFAULTS.keep_alive_s
    assert figure(kind, "answer") > TIMEOUT_S


def test_nginx_takes_headers_of_the_size_that_the_server_takes() -> None:
    assert f"large_client_header_buffers 4 {DEFAULTS.max_header_bytes // 1024}k;" in configuration("nginx")


def choose_in_nginx(path: str) -> Destination:
    """Return where the page's nginx sends a request: the first location whose regular expression matches."""
    for pattern, block in re.findall(r"location ~ (\S+) \{(.*?)\n    \}", configuration("nginx"), re.DOTALL):
        if re.search(pattern, path):
            return Destination.FIRST if "proxy_pass http://vecmill_files;" in block else Destination.NOBODY
    return Destination.ALL


def choose_in_caddy(path: str) -> Destination:
    """Return where the page's Caddy sends a request: the first matcher of which a pattern fits."""
    text = configuration("caddy").replace("\\\n", " ")
    for name, patterns in re.findall(r"@(\w+) path (.*)", text):
        if any(
            path.startswith(each[:-1]) if each.endswith("*") else path == each for each in patterns.split()
        ):
            return {"files": Destination.FIRST, "metrics": Destination.NOBODY}[name]
    return Destination.ALL


def choose_in_traefik(path: str) -> Destination:
    """Return where the page's Traefik sends a request: the matching router of the highest priority."""
    (text,) = re.findall(r"^```yaml\n(http:\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    routers = yaml.safe_load(text)["http"]["routers"].values()
    found = [each for each in routers if fits_rule(each["rule"], path)]
    if not found:
        return Destination.NOBODY
    best = max(found, key=lambda each: each.get("priority", len(each["rule"])))
    return {"vecmill": Destination.ALL, "vecmill-files": Destination.FIRST}[best["service"]]


def fits_rule(rule: str, path: str) -> bool:
    """Return whether a path fits all parts of a rule of Traefik, joined by `&&`."""
    for part in rule.split(" && "):
        (found,) = re.findall(r"^(!?)(\w+)\(`(.*)`\)$", part)
        negation, matcher, argument = found
        fits = {
            "Host": True,
            "PathPrefix": path.startswith(argument),
            "PathRegexp": re.search(argument, path) is not None,
        }
        if fits[matcher] == bool(negation):
            return False
    return True


def choose_in_haproxy(path: str) -> Destination:
    """Return where the page's HAProxy sends a request."""
    (hidden,) = re.findall(r"http-request return status 404 if (.*)", PAGE)
    (files,) = re.findall(r"use_backend vecmill_files if (.*)", PAGE)
    for condition, destination in ((hidden, Destination.NOBODY), (files, Destination.FIRST)):
        for test, argument in re.findall(r"\{ (\w+) (\S+) \}", condition):
            fits = {"path": path == argument, "path_beg": path.startswith(argument)}
            if fits[test] if test in fits else re.search(argument, path):
                return destination
    return Destination.ALL


@pytest.mark.parametrize("choose", [choose_in_nginx, choose_in_caddy, choose_in_traefik, choose_in_haproxy])
def test_each_path_of_the_server_reaches_the_servers_that_know_it(
    choose: Callable[[str], Destination],
) -> None:
    service = build_service(QUIET, [(describe_model(locate_model()), None)])
    files = {route.path for route in batches_routes(service)}
    assert len(files) >= 4 * 6
    for route in list_routes(service):
        path = re.sub(r"\{[^}]*\}", "a-1", route.path)
        hidden = Destination.NOBODY if path.startswith("/metrics") else Destination.ALL
        expected = Destination.FIRST if route.path in files else hidden
        assert choose(path) is expected, path

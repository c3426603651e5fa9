"""The pages for people who open the server in a browser.

The plain page tells what the server is, and how to send it a request; it is HTML without scripts. The console
is a page with scripts: try, compare, watch. Its files are in the folder `console/assets`. Names of models,
messages and paths are escaped in both.
"""

import base64
import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, join, normpath
from string import Template
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import quote

from starlette.types import Scope

from vecmill.values.task import Task
from vecmill_server.base.headers import HeaderList, header
from vecmill_server.base.json_io import encode_json
from vecmill_server.service.service import Service

_STYLE = (
    "body{font-family:system-ui,sans-serif;line-height:1.5;max-width:48rem;margin:2rem auto;padding:0 1rem}"
    "pre{background:#f2f2f2;color:#111;padding:1rem;overflow-x:auto}"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>vecmill</title>
<style>$style</style>
</head>
<body>
<h1>vecmill</h1>
<p>This is an embedding and reranking server. Programs send it requests over HTTP.</p>
$note
<p>A request from a shell:</p>
<pre>$command</pre>
<ul>
<li><a href="$prefix/docs">$prefix/docs</a> shows every operation, with examples to send.</li>
<li><a href="$prefix/readyz">$prefix/readyz</a> shows the state of the server.</li>
<li><a href="$prefix/metrics">$prefix/metrics</a> has the metrics for Prometheus.</li>
</ul>
<p>Models:</p>
<ul>
$models
</ul>
</body>
</html>
"""
# The path and body of an example request, by the task of a model.
EXAMPLES: Mapping[Task, tuple[str, str]] = MappingProxyType(
    {
        Task.EMBED: ("/v1/embeddings", '{"input": "hello"}'),
        Task.RERANK: ("/rerank", '{"query": "hello", "documents": ["hi", "goodbye"]}'),
        Task.CLASSIFY: ("/predict", '{"inputs": "hello"}'),
        Task.CLASSIFY_TOKENS: ("/predict", '{"inputs": "hello"}'),
        Task.SPARSE: ("/embed_sparse", '{"inputs": "hello"}'),
        Task.MULTI_VECTOR: ("/embed_all", '{"inputs": "hello"}'),
    }
)
# The hosts that are shown: names, IPv4 and IPv6 addresses, each with or without a port.
_HOST = re.compile(rb"[A-Za-z0-9._-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
_READ_METHODS = ("GET", "HEAD")

# All comes from this server, nothing is written into the page as script or style, and no other page may
# show it in a frame. The charts set styles of elements from scripts, which needs no further permission.
CONSOLE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ASSETS_PATH = "/console/assets"
_ASSETS_FOLDER, _INDEX, _MAIN_MODULE = "app/console/assets", "index.html", "main.js"
# What a module needs before it runs. Modules of a call of `import` come later.
_IMPORT = re.compile(r'^import [^"]*"(\.[^"]+)";$', re.MULTILINE)
_TYPES: Mapping[str, str] = MappingProxyType(
    {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
)


def wants_page(scope: Scope) -> bool:
    """Return True if a request comes from a browser that opens an address: it accepts HTML, but not JSON."""
    accept = header(scope, b"accept")
    if accept is None or scope["method"] not in _READ_METHODS:
        return False
    kinds = {part.partition(b";")[0].strip().lower() for part in accept.split(b",")}
    return b"text/html" in kinds and b"application/json" not in kinds


@dataclass(frozen=True, slots=True)
class BrowserPage:
    """The page of a server."""

    service: Service

    def render(
        self, scope: Scope, note: str = "", example: Mapping[str, Any] | None = None
    ) -> tuple[HeaderList, bytes]:
        """Return the headers and the body of the page for a request.

        `note` is a sentence about the request. The page has a command that posts `example` to the path of the
        request, or by default an example for the first model.
        """
        settings = self.service.settings
        body = (
            Template(_PAGE)
            .substitute(
                style=_STYLE,
                note=f"<p><strong>{escape(note)}</strong></p>" if note else "",
                command=escape(self.command(scope, example)),
                prefix=escape(settings.url_prefix),
                models="\n".join(
                    f"<li>{escape(model.name)}: {escape(model.state)}</li>" for model in self.service.catalog
                ),
            )
            .encode()
        )
        return page_headers(policy_of(_STYLE), body), body

    def command(self, scope: Scope, example: Mapping[str, Any] | None = None) -> str:
        """Return the shell command of the page; see `render`."""
        settings = self.service.settings
        if example is None:
            first = next((model.task for model in self.service.catalog if model.failure is None), None)
            path, body = EXAMPLES[first or Task.EMBED]
        else:
            path, body = quote(scope["path"]), encode_json(example).decode()
        host = header(scope, b"host") or b""
        shown = host.decode("ascii") if _HOST.fullmatch(host) else f"127.0.0.1:{settings.port}"
        key = ["-H", "authorization: Bearer YOUR_KEY"] if settings.has_api_keys else []
        return shlex.join(["curl", *key, f"http://{shown}{settings.url_prefix}{path}", "-d", body])


@dataclass(frozen=True, slots=True)
class PageAssets:
    """The template of the console, and the contents of its other files by name.

    `version` changes with every file, so browsers may keep what they loaded under this version.
    """

    page: str
    contents: Mapping[str, bytes]
    version: str

    @classmethod
    def read(cls) -> Self:
        """Read the files of the package."""
        found = dict(sorted(_walk(files("vecmill_server") / _ASSETS_FOLDER, "")))
        digest = hashlib.sha256()
        for name, content in found.items():
            digest.update(b"%s\0%d\0%s" % (name.encode(), len(content), content))
        page = found.pop(_INDEX).decode()
        contents = {name: content for name, content in found.items() if media_type(name) is not None}
        return cls(page, contents, digest.hexdigest()[:12])

    @property
    def modules(self) -> list[str]:
        """The modules of the first view, which a browser otherwise finds one level after the other."""
        found: dict[str, None] = {}
        waiting = [_MAIN_MODULE]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = None
                imported = _IMPORT.findall(self.contents[name].decode())
                waiting += [normpath(join(dirname(name), path)) for path in imported]
        return list(found)


class ConsolePage:
    """The console of a server. `plain` makes the command for browsers without scripts."""

    def __init__(self, plain: BrowserPage) -> None:
        self.assets = PageAssets.read()
        self._plain = plain

    def render(self, scope: Scope) -> tuple[HeaderList, bytes]:
        """Return the headers and the body of the page for a request."""
        settings = self._plain.service.settings
        assets = escape(f"{settings.url_prefix}{ASSETS_PATH}/{self.assets.version}")
        body = (
            Template(self.assets.page)
            .substitute(
                assets=assets,
                modules="\n".join(
                    f'<link rel="modulepreload" href="{assets}/{name}">' for name in self.assets.modules
                ),
                prefix=escape(settings.url_prefix),
                needs_key="true" if settings.has_api_keys else "false",
                command=escape(self._plain.command(scope)),
            )
            .encode()
        )
        return page_headers(CONSOLE_POLICY, body), body


def media_type(name: str) -> str | None:
    """Return the media type of a file, `None` for files that the page does not load."""
    return next((found for suffix, found in _TYPES.items() if name.endswith(suffix)), None)


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, f"{name}/")
        else:
            yield name, entry.read_bytes()


def page_headers(policy: str, body: bytes) -> HeaderList:
    """Return the headers of a page that is not kept, with this `Content-Security-Policy`."""
    return [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"vary", b"accept"),
        (b"content-length", b"%d" % len(body)),
    ]


def policy_of(style: str) -> str:
    """Return the `Content-Security-Policy` of a page without scripts that has this style."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )

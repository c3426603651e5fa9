"""The pages of the alerts: when each fires, and what to do then. The alerts' rules link to them.

The pages are part of the package, so they can be read without the internet, in the release that runs. They
say nothing about this server, and need no key: whoever is woken by an alert has a link and no key. Links are
relative, so the pages work below any prefix that a proxy adds or takes away.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vecmill_server.app.browser_page import page_headers, policy_of
from vecmill_server.base.errors import UnknownRoute

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font-family:system-ui,sans-serif;line-height:1.5;max-width:48rem;margin:2rem auto;padding:0 1rem;"
    "overflow-wrap:anywhere}"
    "pre{border:1px solid;border-radius:4px;padding:.75rem;white-space:pre-wrap}"
    "dt{font-weight:600}dd{margin:0 0 .75rem}"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title: vecmill</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
$content
</body>
</html>
"""
_ALERT = """<p><strong>$severity.</strong> $condition</p>
<h2>What to do</h2>
<p>$action</p>
<h2>The rule</h2>
<pre>$expression</pre>
<p>The alert fires $lasting.</p>
<p><a href="../alerts">All alerts</a></p>"""

# As the packaged file has it: name, severity, condition, action, expression and lasting.
Alert = Mapping[str, str]


def alerts_routes() -> list[Route]:
    """Return the routes of the list of alerts, and of the page of each."""

    async def listing(request: Request) -> Response:
        return _respond(
            "Alerts", _render_list(_read_alerts(), is_below=request.scope.get("raw_path", b"").endswith(b"/"))
        )

    async def page(request: Request) -> Response:
        alerts = _read_alerts()
        alert = alerts.get(request.path_params["name"])
        if alert is None:
            raise UnknownRoute("There is no alert with this name. GET /alerts lists the alerts.")
        return _respond(alert["name"], _render_alert(alert, alerts))

    return [
        Route("/alerts", listing, methods=["GET"], name="alerts"),
        Route("/alerts/{name}", page, methods=["GET"], name="alert"),
    ]


@cache
def _read_alerts() -> Mapping[str, Alert]:
    """Return the alerts of the package, by name."""
    text = (files("vecmill_server") / "app/routes/alerts.json").read_text("utf-8")
    return {alert["name"]: alert for alert in json.loads(text)}


def _render_list(alerts: Mapping[str, Alert], *, is_below: bool) -> str:
    """Return the list as HTML. `is_below` tells whether the address of the page ends in a slash."""
    folder = "" if is_below else "alerts/"
    entries = (
        f'<dt><a href="{folder}{escape(name)}">{escape(name)}</a></dt><dd>{escape(alert["condition"])}</dd>'
        for name, alert in alerts.items()
    )
    return f"<dl>{''.join(entries)}</dl>"


def _render_alert(alert: Alert, alerts: Mapping[str, Alert]) -> str:
    link = _link_to(alerts)
    return Template(_ALERT).substitute(
        severity=escape(alert["severity"].capitalize()),
        condition=link(alert["condition"]),
        action=link(alert["action"]),
        expression=escape(alert["expression"]),
        lasting=_describe_time(int(alert["lasting"].removesuffix("m"))),
    )


def _describe_time(minutes: int) -> str:
    if not minutes:
        return "as soon as this has a result"
    return f"when this has had a result for {minutes} minute{'s' if minutes > 1 else ''}"


def _link_to(alerts: Mapping[str, Alert]) -> Callable[[str], str]:
    """Return a function that makes HTML of a text: names of alerts are links, and words in backticks code."""

    def write(match: re.Match[str]) -> str:
        code, name = match.groups()
        if code is not None:
            return f"<code>{code}</code>"
        return f'<a href="{name}">{name}</a>' if name in alerts else str(name)

    return lambda text: re.sub(r"`([^`]+)`|\b(Vecmill\w+)", write, escape(text))


def _respond(title: str, content: str) -> Response:
    body = Template(_PAGE).substitute(title=escape(title), style=_STYLE, content=content).encode()
    headers = {name.decode(): value.decode() for name, value in page_headers(policy_of(_STYLE), body)}
    return Response(body, headers=headers)

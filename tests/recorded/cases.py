"""A recorded request, and the ways to write one down."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

BOUNDARY = "a-boundary"


@dataclass(frozen=True, slots=True)
class Case:
    """One request.

    `raw` sends `content` to the socket as it is, without HTTP. Of the answer, `base64` is the dtype of the
    rows that are written in base64, `keep` names the only places of a JSON document that are recorded, and
    `file` the file that has its body. `labels` name places in the answer: `<label>` in the path or content of
    a later request stands for what was there. `until` is a metric, its labels and the value that it has to
    reach before the request is sent.
    """

    name: str
    method: str
    path: str
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bool = False
    base64: str | None = None
    keep: tuple[str, ...] = ()
    file: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    until: tuple[str, Mapping[str, str], float] | None = None

    def __str__(self) -> str:
        """The request, short enough to print."""
        content = (self.content or b"").decode("utf-8", "backslashreplace")
        shown = content if len(content) <= 400 else f"{content[:400]}... ({len(content)} characters)"
        return f"{self.method} {self.path} {dict(self.headers) or ''} {shown}"


def post(name: str, path: str, body: Any, *, headers: Mapping[str, str] | None = None, **rest: Any) -> Case:
    """A JSON document, sent."""
    return send(name, path, json.dumps(body).encode(), headers=headers, **rest)


def send(
    name: str, path: str, content: bytes, *, headers: Mapping[str, str] | None = None, **rest: Any
) -> Case:
    """Bytes, sent as JSON whatever they are."""
    return Case(name, "POST", path, content, {"content-type": "application/json", **(headers or {})}, **rest)


def get(name: str, path: str, **rest: Any) -> Case:
    """Something read."""
    return Case(name, "GET", path, **rest)


def ask(name: str, method: str, path: str, **rest: Any) -> Case:
    """Any other method, without a body."""
    return Case(name, method, path, **rest)


def raw(name: str, content: bytes) -> Case:
    """Bytes that need not be HTTP."""
    return Case(name, "-", "-", content, raw=True)


def upload(name: str, path: str, content: str, fields: Mapping[str, str], **rest: Any) -> Case:
    """A form with fields and a file called `in.jsonl`."""
    parts = [
        f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
    ]
    disposition = 'content-disposition: form-data; name="file"; filename="in.jsonl"'
    file = f"--{BOUNDARY}\r\n{disposition}\r\n\r\n{content}\r\n"
    form = "".join([*parts, file, f"--{BOUNDARY}--\r\n"]).encode()
    return Case(
        name, "POST", path, form, {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}, **rest
    )


def family(name: str, *cases: Case) -> tuple[Case, ...]:
    """The same cases, called `name/...`."""
    return tuple(replace(case, name=f"{name}/{case.name}") for case in cases)

"""Files and batches. `<input>` is the id of the file that `upload` has labelled so."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

import json
from typing import Any

from recorded.cases import Case, ask, family, get, post, send, upload

FILES, BATCHES = "/v1/files", "/v1/batches"
ENDED = "vecmill_batch_api_batches_total"


def line(custom_id: str, **body: Any) -> str:
    """A line of an input file."""
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body})


INPUT = "\n".join(
    (
        line("a", input="hello"),
        line("b", input=["brave", "new", "world"], dimensions=4),
        "",
        line("no text", input=[]),
        line("nobody", input="hello", model="nobody"),
        line("base64", input="hello", encoding_format="base64"),
    )
)
WRONG = "\n".join(
    (
        line("a", input="hello"),
        line("a", input="again"),
        "not JSON",
        json.dumps({"method": "GET", "url": "/v1/rerank", "body": []}),
        json.dumps({"custom_id": "", "method": "POST", "url": "/v1/embeddings"}),
    )
)
FOR_BATCH = {"purpose": "batch"}


def create(name: str, file: str, **rest: Any) -> Case:
    """A batch of a labelled file, which gets the label `name`."""
    body = {"input_file_id": f"<{file}>", "endpoint": "/v1/embeddings", "completion_window": "24h"}
    return post(name, BATCHES, {**body, **rest}, labels={name: "id"})




def _each(version: str) -> tuple[Case, ...]:
    """Every path of a version, asked for what is not there."""
    files, batches = f"{version}/files", f"{version}/batches"
    return (
        get(files, files),
        post(f"{files} as JSON", files, {"purpose": "batch"}),
        get(f"{files} unknown", f"{files}/file-nobody"),
        ask(f"{files} unknown deleted", "DELETE", f"{files}/file-nobody"),
        get(f"{files} unknown content", f"{files}/file-nobody/content"),
        get(batches, batches),
        post(f"{batches} of nothing", batches, {}),
        get(f"{batches} unknown", f"{batches}/batch_nobody"),
        ask(f"{batches} unknown cancelled", "POST", f"{batches}/batch_nobody/cancel"),
        ask(f"{batches} deleted", "DELETE", batches),
    )


EACH_PATH = family("each", *(case for version in ("/v1", "", "/openai/v1", "/openai") for case in _each(version)))

CASES = family(
    "batches",
    get("no files", FILES),
    get("no batches", BATCHES),
    upload("upload", FILES, INPUT, FOR_BATCH, labels={"input": "id"}),
    upload("upload to keep", "/files", WRONG, {**FOR_BATCH, "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}, labels={"wrong": "id"}),
    upload("upload of nothing", "/openai/files", "\n\n", FOR_BATCH, labels={"empty": "id"}),
    upload("upload of many", "/openai/v1/files?api-version=1", "\n".join(line(str(number), input="a") for number in range(9)), FOR_BATCH, labels={"many": "id"}),
    upload("upload without purpose", FILES, INPUT, {}),
    upload("upload for tuning", FILES, INPUT, {"purpose": "fine-tune"}),
    upload("upload to keep too shortly", FILES, INPUT, {**FOR_BATCH, "expires_after[anchor]": "created_at", "expires_after[seconds]": "60"}),
    upload("upload to keep from elsewhere", FILES, INPUT, {**FOR_BATCH, "expires_after[anchor]": "now", "expires_after[seconds]": "3600"}),
    upload("upload too large", FILES, "a" * 400_000, FOR_BATCH),
    post("upload as JSON", FILES, {"purpose": "batch"}),
    Case("upload without a file", "POST", FILES, b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n', {"content-type": "multipart/form-data; boundary=b"}),
    Case("upload of a string", "POST", FILES, b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nbatch\r\n--b--\r\n', {"content-type": "multipart/form-data; boundary=b"}),
    Case("upload that is cut", "POST", FILES, b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nba', {"content-type": "multipart/form-data; boundary=b"}),
    Case("upload that is no form", "POST", FILES, b"hello", {"content-type": "multipart/form-data; boundary=b"}),
    get("files", FILES),
    get("files by purpose", f"{FILES}?purpose=batch&limit=1&order=asc"),
    get("files after", f"{FILES}?after=<wrong>&order=asc"),
    get("files of no purpose", f"{FILES}?purpose=vision"),
    get("files limit unknown", f"{FILES}?limit=0"),
    get("files order unknown", f"{FILES}?order=up"),
    get("files after unknown", f"{FILES}?after=file-nobody"),
    get("file", f"{FILES}/<input>"),
    get("content", f"{FILES}/<input>/content"),
    ask("content, head", "HEAD", f"{FILES}/<input>/content"),
    get("file unknown", f"{FILES}/file-nobody"),
    get("content unknown", f"{FILES}/file-nobody/content"),
    ask("file unknown deleted", "DELETE", f"{FILES}/file-nobody"),
    ask("file put", "PUT", f"{FILES}/<input>"),
    create("whole", "input", metadata={"who": "me"}, output_expires_after={"anchor": "created_at", "seconds": 7200}),
    get("whole at its end", f"{BATCHES}/<whole>", until=(ENDED, {"status": "completed"}, 1.0), labels={"output": "output_file_id", "errors": "error_file_id"}),
    get("output", f"{FILES}/<output>"),
    get("output content", f"{FILES}/<output>/content", base64="<f4"),
    get("errors content", f"{FILES}/<errors>/content"),
    create("failing", "wrong"),
    get("failing at its end", f"{BATCHES}/<failing>", until=(ENDED, {"status": "failed"}, 1.0)),
    create("of nothing", "empty"),
    get("of nothing at its end", "/openai/v1/batches/<of nothing>", until=(ENDED, {"status": "failed"}, 2.0)),
    create("of too many", "many"),
    get("of too many at its end", "/openai/batches/<of too many>", until=(ENDED, {"status": "failed"}, 3.0)),
    post("input_file_id missing", BATCHES, {"endpoint": "/v1/embeddings"}),
    post("input_file_id unknown", BATCHES, {"input_file_id": "file-nobody", "endpoint": "/v1/embeddings"}),
    post("endpoint missing", BATCHES, {"input_file_id": "<input>"}),
    post("endpoint unknown", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/chat/completions"}),
    post("completion_window unknown", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/embeddings", "completion_window": "soon"}),
    post("completion_window too long", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/embeddings", "completion_window": "9999h"}),
    post("metadata a string", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/embeddings", "metadata": "a"}),
    post("metadata of a number", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/embeddings", "metadata": {"a": 1}}),
    post("output_expires_after a number", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/embeddings", "output_expires_after": 3600}),
    post("output_expires_after too short", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/embeddings", "output_expires_after": {"anchor": "created_at", "seconds": 1}}),
    send("not JSON", BATCHES, b"input_file_id"),
    send("too large", BATCHES, b'{"metadata": "' + b"a" * 300_000 + b'"}'),
    get("unknown", f"{BATCHES}/batch_nobody"),
    ask("unknown cancelled", "POST", f"{BATCHES}/batch_nobody/cancel"),
    ask("ended cancelled", "POST", f"{BATCHES}/<whole>/cancel"),
    ask("cancel read", "GET", f"{BATCHES}/<whole>/cancel"),
    get("all", f"{BATCHES}?limit=2"),
    get("all after", f"{BATCHES}?after=<of nothing>"),
    get("limit too large", f"{BATCHES}?limit=101"),
    get("all files", f"{FILES}?order=asc"),
    get("made by batches", f"{FILES}?purpose=batch_output&order=asc"),
    ask("deleted", "DELETE", f"{FILES}/<many>"),
    get("deleted and asked for", f"{FILES}/<many>"),
)

# One batch at a time, whose only line hangs.
STUCK = family(
    "batches",
    upload("upload", FILES, line("a", input="hello"), FOR_BATCH, labels={"input": "id"}),
    create("running", "input"),
    post("one too many", BATCHES, {"input_file_id": "<input>", "endpoint": "/v1/embeddings"}),
    get("under way", f"{BATCHES}/<running>", until=("vecmill_texts_admitted_total", {"model": "model/embed"}, 1.0)),
    ask("input deleted", "DELETE", f"{FILES}/<input>"),
    ask("cancelled", "POST", f"{BATCHES}/<running>/cancel"),
    ask("cancelled once more", "POST", f"{BATCHES}/<running>/cancel"),
)

"""The decoders of bytes that clients, operators and model repositories provide, as targets of a fuzzer.

A decoder takes any bytes. It returns or raises a `VecmillError`, which is a documented refusal. Any other
exception is a defect.
"""

import asyncio
import io
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import safetensors.numpy

from fuzz.connection import feed_connection
from support.pytorch_files import FORMATS, dictionary, tensor, write_file
from support.tiny_models import save_tiny_bert
from vecmill.bulk.remote_answers import read_document, read_embeddings
from vecmill.bulk.sources import open_source
from vecmill.directory_layouts import describe_model
from vecmill.errors import VecmillError
from vecmill.models import locate_model
from vecmill.models.location import MANIFEST_FILE
from vecmill.models.weights import Weights
from vecmill.serving_plan.manifest import Manifest
from vecmill.tokenization.building.conversion import convert_vocabulary
from vecmill.tokenization.building.sentencepieces import read_sentencepieces
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.embeddings import OutputDtype
from vecmill_server.base.json_io import decode_object
from vecmill_server.base.json_measure import DocumentLimits
from vecmill_server.batches.jsonl import read_line_request, read_lines
from vecmill_server.batches.uploads import check_purpose, read_age_s, receive_form
from vecmill_server.batches.validation import Validation
from vecmill_server.dialects.dialect_routes import routes_by_path
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.token_ids import Cl100k, keep_ids

OPTIONS = DialectOptions(keep_ids, lambda _name, _tasks=(), /: None)
BOUNDARY = b"edge"
ENDPOINT = "/v1/embeddings"


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder, and the examples that a fuzzer starts from."""

    run: Callable[[bytes], object]
    examples: tuple[bytes, ...]

    def check(self, data: bytes) -> None:
        """Decode `data`. Documented refusals pass; any other exception is a defect."""
        with suppress(VecmillError):
            self.run(data)


# What clients send.

PATHS = tuple(routes_by_path().values())

BODIES: tuple[Mapping[str, Any], ...] = (
    {"input": ["a", "b"], "model": "m", "encoding_format": "base64", "dimensions": 8},
    {"input": [[1, 2], [3]], "truncate": True, "output_dtype": "int8", "prompt_name": "query"},
    {"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": True},
    {"inputs": [["a", "b"]], "raw_scores": True, "parameters": {"normalize": True}},
    {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "truncate": "right"},
    {"texts": ["a"], "input_type": "search_query", "embedding_types": ["float", "int8"]},
    {"messages": [{"role": "user", "content": "a"}], "priority": 1},
    {"instances": [{"content": "a"}], "parameters": {"autoTruncate": True}},
    {"input": {"query": "q", "documents": ["a"]}, "parameters": {"top_n": 1}},
    {"input": {"texts": ["a"]}, "parameters": {"text_type": "query", "dimension": 8}},
    {"inputs": ["a", "b"], "truncate": True, "normalize": False, "dimensions": 8},
    {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
    {"sentences": ["a", "b"], "return_sparse": True, "return_colbert_vecs": True},
    {"instances": [{"inputs": "a"}, {"inputs": "b"}]},
    {"queries": ["q"], "documents": ["a"], "priority": 1},
    {"query": {"text": "q"}, "passages": [{"text": "a"}, "b"], "truncate": "END"},
    {
        "query": "q",
        "input": ["a", {"title": "b"}],
        "top_k": 1,
        "return_input": True,
        "rank_fields": ["title"],
    },
    {"input": [{"image": "aGk="}, {"text": "a"}], "modality": "image"},
    {"input": ["aGk="], "modality": "image"},
    {"images": ["aGk="], "input_type": "image", "embedding_types": ["float"]},
    {"texts": ["a"], "images": ["data:image/png;base64,aGk="]},
    {"inputs": [{"content": [{"type": "image_base64", "image_base64": "aGk="}]}]},
    {"inputs": "a", "parameters": {"candidate_labels": ["b"], "hypothesis_template": "{}"}},
    {"input": [{"image": "aGk="}, "a"], "labels": ["b"], "candidate_labels": ["b"]},
    {"content": ["a", "b"], "embd_normalize": -1},
    {"content": "a", "add_special": True, "with_pieces": True},
    {"prompt": "a", "add_special_tokens": True},
    {"tokens": [101, 2000, 102]},
    {"ids": [[101, 2000], [102]], "skip_special_tokens": True},
)


def read_body(data: bytes) -> None:
    """Read the JSON body of the route that the first byte chooses."""
    if data:
        route = PATHS[data[0] % len(PATHS)]
        body = decode_object(data[1:])
        chosen = route.bodies[0] if route.choose is None else route.choose(body, OPTIONS)
        chosen.parse(body, OPTIONS)


def read_batch_input(data: bytes) -> None:
    """Validate a file of requests, and read its lines as the execution does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input"
        path.write_bytes(data)
        limits = DocumentLimits(max_values=1_000, max_wide_characters=1_000)
        validation = Validation(ENDPOINT, 50, 2_000, limits)
        while not validation.is_done:
            lines = read_lines(path, validation.offset, validation.lines, validation.max_line_bytes)
            validation.read(lines)
        if validation.errors:
            return
        for line in read_lines(path, 0, 0):
            read_line_request(line, ENDPOINT, OPTIONS)


async def _reserve(size: int) -> None:
    """Reserve as much as is asked for."""


def read_upload(data: bytes) -> None:
    """Read a form that arrives in parts; the first byte is the size of the parts."""
    size = 1 + data[0] if data else 1

    async def parts() -> AsyncIterator[bytes]:
        for start in range(1, len(data), size):
            yield data[start : start + size]

    form = asyncio.run(
        receive_form(b"multipart/form-data; boundary=" + BOUNDARY, parts(), io.BytesIO(), _reserve)
    )
    check_purpose(form)
    read_age_s(form)


def read_content_type(data: bytes) -> None:
    """Read a form with this content type."""

    async def parts() -> AsyncIterator[bytes]:
        yield FORM[1:]

    asyncio.run(receive_form(data, parts(), io.BytesIO(), _reserve))


@cache
def _cl100k() -> Cl100k:
    return Cl100k.load()


def read_cl100k(data: bytes) -> None:
    """Decode token ids of OpenAI's encoding."""
    _cl100k().decode(np.frombuffer(data[: len(data) // 4 * 4], "<i4").tolist(), "input")


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.load(describe_model(locate_model()))


def tokenize(data: bytes) -> None:
    """Tokenise a text, or take token ids if the first byte is odd."""
    if data and data[0] % 2:
        ids = np.frombuffer(data[1 : 1 + (len(data) - 1) // 4 * 4], "<i4").tolist()
        _tokenizer().from_ids(ids)
        _tokenizer().join(ids, skip_special=False)
    else:
        _tokenizer().encode([data[1:].decode("utf-8", "surrogateescape" if len(data) % 2 else "replace")])


def read_server_response(data: bytes) -> None:
    """Read the response of another server, as `vecmill embed --server` does."""
    kinds = tuple(OutputDtype)
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    response = httpx2.Response(200, content=data[1:], request=httpx2.Request("POST", "http://x/"))
    read_embeddings(response, read_document(response), 2, 4, kind)


# What model repositories and operators provide.


@cache
def _model() -> Path:
    return save_tiny_bert(Path(tempfile.mkdtemp(prefix="fuzz-model-")))


SETTINGS = (
    "config.json",
    "tokenizer_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "special_tokens_map.json",
)


def read_settings(data: bytes) -> None:
    """Describe a model, one of whose settings files, chosen by the first byte, has these contents."""
    if not data:
        return
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        shutil.copytree(_model(), model)
        (model / SETTINGS[data[0] % len(SETTINGS)]).write_bytes(data[1:])
        describe_model(locate_model(model))


def read_tokenizer_file(data: bytes) -> None:
    """Load a tokenizer.json with these contents, and use the tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        shutil.copytree(_model(), model)
        (model / "tokenizer.json").write_bytes(data)
        Tokenizer.load(describe_model(locate_model(model))).encode(["a text"])


def _in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            read(path)

    return run


def _build_llama(path: Path) -> None:
    """Build a tokenizer of Llama's class from a sentencepiece model or a tiktoken file."""
    convert_vocabulary(TokenizerFiles.read(path, "LlamaTokenizer", {}))


def _read_weights(path: Path) -> None:
    weights = Weights.open(path)
    for name in ("a", "b"):
        weights.tensor(name, (2, 3)).read()


def _read_records(path: Path) -> None:
    source = open_source(path)
    names = list(source.columns())
    with suppress(StopIteration):
        for _, _record in zip(range(50), source.records(names), strict=False):
            pass


FORM = (
    b'\x10--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--edge\r\ncontent-disposition: form-data; name="expires_after[anchor]"\r\n\r\ncreated_at\r\n'
    b'--edge\r\ncontent-disposition: form-data; name="expires_after[seconds]"\r\n\r\n3600\r\n'
    b'--edge\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\nline 1\r\n--edge--\r\n"
)
PLAN = {"engine": "onnx", "precision": "fp32", "device": None, "max_batch_tokens": 512, "lane_widths": [1]}
MANIFEST = {
    "schema": 1,
    "model": "m",
    "model_fingerprint": "a",
    "machine": {"fingerprint": "b"},
    "versions": {"vecmill": "0.1.0"},
    "plan": PLAN,
    "candidates": [{"plan": PLAN, "accuracy": None}],
}
LINE = json.dumps({"custom_id": "a", "method": "POST", "url": ENDPOINT, "body": BODIES[0]}).encode()
PIECES = bytes.fromhex("0a0c0a053c756e6b3e15000000001802") + b"\x0a\x08\x0a\x01a\x15\x00\x00\x80\xbf"
RANKS = b"QQ== 0\nQg== 1\nQUI= 2\n"
WEIGHTS = safetensors.numpy.save({name: np.ones((2, 3), np.float32) for name in ("a", "b")})
RESPONSE = {"data": [{"index": place, "embedding": [1.0, 0.0, 0.5, 1]} for place in range(2)]}
REQUEST = b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 14\r\n\r\n" + b'{"input": "a"}'
CHUNKED = b"\x07POST /rerank HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n"
UNREAD = CHUNKED.replace(b"\x07", b"\x00").replace(
    b"/rerank", b"/nowhere"
)  # answered before its body arrives


def _body_examples() -> tuple[bytes, ...]:
    """The bodies that each route reads, of all."""
    examples = (bytes([place]) + json.dumps(body).encode() for place in range(len(PATHS)) for body in BODIES)
    return tuple(example for example in examples if _is_read(example))


def _is_read(example: bytes) -> bool:
    try:
        read_body(example)
    except VecmillError:
        return False
    return True


def _pytorch_examples() -> tuple[bytes, ...]:
    tensors = {"a": tensor(), "b": tensor(), "c": tensor((3, 2), (1, 3))}
    numbers = {"0": np.ones(6, np.float32).tobytes()}
    return tuple(write_file(form, dictionary(tensors), numbers) for form in FORMATS)


def _settings_examples() -> tuple[bytes, ...]:
    return tuple(
        bytes([place]) + (_model() / name).read_bytes()
        for place, name in enumerate(SETTINGS)
        if (_model() / name).is_file()
    )


DECODERS: Mapping[str, Callable[[], Decoder]] = {
    "body": lambda: Decoder(read_body, _body_examples()),
    "batch_input": lambda: Decoder(
        read_batch_input, (LINE, LINE + b"\n\n" + LINE.replace(b'"a"', b'"b"', 1))
    ),
    "upload": lambda: Decoder(read_upload, (FORM,)),
    "content_type": lambda: Decoder(read_content_type, (b'multipart/form-data; boundary="edge"',)),
    "cl100k": lambda: Decoder(read_cl100k, (np.arange(5, dtype="<i4").tobytes(),)),
    "text": lambda: Decoder(tokenize, (b"\x00a text", b"\x01\x05\x00\x00\x00")),
    "connection": lambda: Decoder(
        feed_connection, (b"\x00" + REQUEST, b"\x01" + REQUEST * 2, CHUNKED, UNREAD)
    ),
    "server_response": lambda: Decoder(
        read_server_response, tuple(bytes([place]) + json.dumps(RESPONSE).encode() for place in range(3))
    ),
    "settings": lambda: Decoder(read_settings, _settings_examples()),
    "manifest": lambda: Decoder(
        _in_file(MANIFEST_FILE, lambda path: Manifest.read(path.parent)), (json.dumps(MANIFEST).encode(),)
    ),
    "tokenizer": lambda: Decoder(read_tokenizer_file, ((_model() / "tokenizer.json").read_bytes(),)),
    "sentencepieces": lambda: Decoder(
        _in_file("pieces.model", lambda path: read_sentencepieces(path, path.read_bytes())), (PIECES,)
    ),
    "vocabulary": lambda: Decoder(
        _in_file("tokenizer.model", _build_llama), (PIECES + b"\x12\x02\x18\x02", RANKS)
    ),
    "weights": lambda: Decoder(_in_file("model.safetensors", _read_weights), (WEIGHTS,)),
    "pytorch_weights": lambda: Decoder(_in_file("pytorch_model.bin", _read_weights), _pytorch_examples()),
    "json_lines": lambda: Decoder(_in_file("input.jsonl", _read_records), (b'{"text": "a"}\n"b"\n',)),
    "csv": lambda: Decoder(_in_file("input.csv", _read_records), (b'id,text\n1,"a, b"\n2,c\n',)),
}

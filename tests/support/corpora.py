"""Files of texts to embed, and what is read back from the files of their rows."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import hash_row
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray

Table = Sequence[Mapping[str, Any]]


def numbered_texts(count: int) -> list[str]:
    """Texts of very different lengths, each once."""
    return [f"text {number}" + " and more" * (number * 37 % 50) for number in range(count)]


def numbered_rows(count: int) -> list[dict[str, Any]]:
    """`numbered_texts` under `text`, their number under `id`."""
    return [{"id": number, "text": text} for number, text in enumerate(numbered_texts(count))]


def write_corpus(path: Path, rows: Table) -> Path:
    """The rows in the format that the path's ending names."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read_rows(path: Path, dtype: str = "float32") -> npt.NDArray[Any]:
    """The embeddings of an output, (texts, dim); JSON does not say of which `dtype`."""
    if path.suffix == ".npy":
        rows: npt.NDArray[Any] = np.load(path)
        return rows
    if path.suffix == ".jsonl":
        lines = path.read_text("utf-8").splitlines()
        return np.array([json.loads(line)["embedding"] for line in lines], dtype)
    column = parquet.read_table(path)["embedding"].combine_chunks()
    return np.asarray(column.flatten()).reshape(len(column), -1)


def read_column(path: Path, name: str) -> list[Any]:
    """The values of a column of an output."""
    if path.suffix == ".jsonl":
        return [json.loads(line)[name] for line in path.read_text("utf-8").splitlines()]
    values: list[Any] = parquet.read_table(path)[name].to_pylist()
    return values


def fake_rows(texts: Sequence[str]) -> FloatArray:
    """What the fake engine computes in place of the embedded model's rows: exactly this."""
    description = describe_model(locate_model())
    tokenizer = Tokenizer.load(description)
    return np.stack([hash_row(one.token_ids, description.dim) for one in tokenizer.encode(texts)])

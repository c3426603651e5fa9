"""Labelled texts from files, in the forms of BEIR, MTEB and TREC, and pairs of a query and its right text.

    queries, corpus   JSON lines or Parquet with `_id` or `id`, `text` and perhaps `title`; or TSV: id, text
    judgements        TSV or Parquet with `query-id`, `corpus-id`, `score`, or JSON lines; or the four columns
                      of TREC; the first line of a TSV may hold the names of the columns
    pairs             TSV: query, right text

A title goes before its text, as in BEIR. Files of lines may be compressed (.gz, .zst). Every error names the
file and the line.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from vecmill.bulk.input_files import is_compressed, open_bytes, read_lines
from vecmill.bulk.local_inputs import open_input
from vecmill.bulk.records import Record, is_writable
from vecmill.bulk.sources import Source, open_source
from vecmill.errors import InvalidCorpus
from vecmill.evaluation.labelled_texts import Judgements, LabelledTexts, MemoryCorpus

_TEXT_NAMES = ("_id", "id", "text", "title")
_JUDGEMENT_NAMES = ("query-id", "corpus-id", "score")
_TABLES = (".tsv", ".txt", ".qrels", ".qrel", ".trec")
# The first words of a line with the names of the columns.
_HEADERS = frozenset(("_id", "id", "pid", "qid", "query", "query-id", "query_id", "queries"))

Entry = tuple[int, str, str]  # the line or row, the id, the text


@dataclass(frozen=True, slots=True)
class FileCorpus:
    """The corpus of a file, whose texts are read again whenever they are needed."""

    path: Path
    ids: Sequence[str]

    @classmethod
    def scan(cls, path: Path) -> "FileCorpus":
        """Read the whole file once, and keep its ids. Raises `InvalidCorpus`."""
        ids = [document for _, document, _ in _unique(path, "document")]
        if not ids:
            raise InvalidCorpus(f"{path} has no document.")
        return cls(path, ids)

    def texts(self) -> Iterator[str]:
        """Return the texts in the order of `ids`. Raises `InvalidCorpus` if the file has changed."""
        read = 0
        for place, document, text in _read_texts(self.path):
            if read == len(self.ids) or self.ids[read] != document:
                raise InvalidCorpus(f"{self.path}: {_unit(self.path)} {place} has changed since it was read.")
            read += 1
            yield text
        if read < len(self.ids):
            raise InvalidCorpus(f"{self.path} has become shorter since it was read.")


def read_labelled(queries: Path, judgements: Path, corpus: Path) -> LabelledTexts:
    """Read labelled texts from three files. Raises `InvalidCorpus`, `MissingExtra`."""
    return LabelledTexts.of(read_queries(queries), read_judgements(judgements), FileCorpus.scan(corpus))


def read_queries(path: Path) -> dict[str, str]:
    """Read queries by id. Raises `InvalidCorpus`."""
    found = {}
    for place, query, text in _unique(path, "query"):
        if not text.strip():
            raise InvalidCorpus(f"{path}: {_unit(path)} {place}: the query {query!r} is empty.")
        found[query] = text
    return found


def read_judgements(path: Path) -> Judgements:
    """Read the relevance of documents by query. Raises `InvalidCorpus`."""
    found: dict[str, dict[str, int]] = {}
    for place, query, document, score in _read_scores(path):
        known = found.setdefault(query, {})
        if known.get(document, score) != score:
            raise InvalidCorpus(
                f"{path}: {_unit(path)} {place} judges {document!r} for {query!r} a second time, as {score} "
                f"instead of {known[document]}."
            )
        known[document] = score
    return found


def read_pairs(path: Path) -> LabelledTexts:
    """Read queries and their right texts, which together are the corpus. Raises `InvalidCorpus`.

    Equal queries have several right texts, and equal texts are one document. Ids are the lines at which they
    first stand.
    """
    queries: dict[str, str] = {}
    documents: dict[str, str] = {}
    judgements: dict[str, dict[str, int]] = {}
    for place, fields in _read_table(path):
        if len(fields) != 2 or not all(field.strip() for field in fields):
            raise InvalidCorpus(
                f"{path}: line {place} must be a query and its right text, with a tab between."
            )
        query, text = (field.strip() for field in fields)
        query_id = queries.setdefault(query, f"q{place}")
        document_id = documents.setdefault(text, f"d{place}")
        judgements.setdefault(query_id, {})[document_id] = 1
    if not queries:
        raise InvalidCorpus(f"{path} has no pair.")
    by_id = {identifier: text for text, identifier in documents.items()}
    corpus = MemoryCorpus(by_id)
    return LabelledTexts.of({identifier: text for text, identifier in queries.items()}, judgements, corpus)


def _unique(path: Path, what: str) -> Iterator[Entry]:
    """Return the entries of a file of texts. Raises `InvalidCorpus` for an id that stands there twice."""
    seen: dict[str, int] = {}
    for place, identifier, text in _read_texts(path):
        if identifier in seen:
            unit, first = _unit(path), seen[identifier]
            raise InvalidCorpus(
                f"{path}: {unit} {place} has the id {identifier!r} of the {what} of {unit} {first}."
            )
        seen[identifier] = place
        yield place, identifier, text


def _read_texts(path: Path) -> Iterator[Entry]:
    if _is_table(path):
        for place, fields in _read_table(path):
            if len(fields) not in (2, 3) or not fields[0].strip():
                raise InvalidCorpus(f"{path}: line {place} must be an id and a text, with a tab between.")
            yield place, fields[0].strip(), " ".join(fields[:0:-1]).strip()
        return
    source = open_input(path)
    for record in _records(source, _TEXT_NAMES):
        first, second, text, title = record.values
        identifier = _read_id(first if first is not None else second)
        where = f"{path}: {source.unit} {record.place}"
        if not identifier:
            raise InvalidCorpus(f"{where} has no id: the field `_id` or `id` must be a string or a number.")
        if not isinstance(text, str) or not isinstance(title, str | None):
            raise InvalidCorpus(f"{where} has no text: the field `text` must be a string, and `title` too.")
        joined = f"{title or ''} {text}".strip()
        if not is_writable(joined):
            raise InvalidCorpus(f"{where} has a character in its text that cannot be written as UTF-8.")
        yield record.place, identifier, joined


def _read_scores(path: Path) -> Iterator[tuple[int, str, str, int]]:
    if _is_table(path):
        for place, fields in _read_table(path, splits_spaces=True):
            if len(fields) not in (2, 3, 4):
                raise InvalidCorpus(
                    f"{path}: line {place} must be a query's id, a document's id and a relevance, or the "
                    f"four columns of TREC; it has {len(fields)} column{'s' * (len(fields) != 1)}."
                )
            # TREC: query, iteration, document, relevance. Without a relevance the document is right.
            document, score = (fields[2], fields[3]) if len(fields) == 4 else (fields[1], [*fields, "1"][2])
            yield place, fields[0], document, _read_score(path, "line", place, score)
        return
    source = open_source(path)
    for record in _records(source, _JUDGEMENT_NAMES):
        query, document, score = record.values
        ids = _read_id(query), _read_id(document)
        if not all(ids):
            raise InvalidCorpus(
                f"{path}: {source.unit} {record.place} must have `query-id`, `corpus-id` and `score`."
            )
        value = _read_score(path, source.unit, record.place, 1 if score is None else score)
        yield record.place, *ids, value


def _read_score(path: Path, unit: str, place: int, value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    # Written so that NaN fails.
    if not -(2**31) <= number < 2**31 or number != int(number):
        raise InvalidCorpus(f"{path}: {unit} {place}: the relevance must be a whole number, not {value!r}.")
    return int(number)


def _read_id(value: Any) -> str:
    is_id = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value).strip() if is_id and is_writable(value) else ""


def _records(source: Source, names: Sequence[str]) -> Iterator[Record]:
    """Return the rows of a source, with `None` for columns that it does not have. Raises `InvalidCorpus`."""
    known = source.columns() if source.is_closed else dict.fromkeys(names, True)
    present = [name for name in names if name in known]
    for record in source.records(present):
        if record.problem is not None:
            raise InvalidCorpus(
                source.find_other_encoding()
                or f"{source.path}: {source.unit} {record.place} {record.problem}."
            )
        values: Mapping[str, Any] = dict(zip(present, record.values, strict=True))
        yield Record(record.place, tuple(map(values.get, names)))


def _read_table(path: Path, *, splits_spaces: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Return the number and the fields of each line that is not empty, without a line of names.

    Fields are divided by tabs, and are not quoted. With `splits_spaces` a line without a tab is divided by
    spaces. Raises `InvalidCorpus`.
    """
    if not path.is_file():
        raise InvalidCorpus(f"There is no file {path}.")
    with open_bytes(path) as opened, TextIOWrapper(opened, "utf-8-sig", "surrogateescape") as file:
        for place, line in enumerate(read_lines(path, file), 1):
            line = line.rstrip("\r\n")
            if not line.strip():
                continue
            if not is_writable(line):
                raise InvalidCorpus(f"{path}: line {place} is not UTF-8.")
            fields = line.split() if splits_spaces and "\t" not in line else line.split("\t")
            if place == 1 and fields[0].strip().lower() in _HEADERS:
                continue
            yield place, [field.strip() for field in fields] if splits_spaces else fields


def _is_table(path: Path) -> bool:
    name = path.stem if is_compressed(path) else path.name
    return Path(name).suffix.lower() in _TABLES


def _unit(path: Path) -> str:
    return "row" if path.suffix.lower() == ".parquet" else "line"

"""Make labelled sets that everybody can make: `make labelled-sets`, into build/labelled-sets.

The texts come from packages of PyPI and of Debian 12, by name, version and digest. The labels are made from
their structure, so that each set is one person's idea of a question and its answer: for comparisons, not for
praise. Each is a folder with queries.jsonl, qrels.tsv and corpus.jsonl.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from labelled_sets.archives import FOLDER
from labelled_sets.conversations import make_conversations
from labelled_sets.manual_pages import make_manual_pages
from labelled_sets.package_descriptions import make_package_descriptions
from labelled_sets.pairs import LabelledPairs

SETS: Mapping[str, Callable[[], LabelledPairs]] = {
    "man": make_manual_pages,
    "deb": make_package_descriptions,
    "chat": make_conversations,
}


def make_set(name: str) -> Path:
    """Return the folder of a set, which is made if it is not there."""
    folder = FOLDER / name
    if not (folder / "qrels.tsv").is_file():
        SETS[name]().write(folder)
    return folder


def main() -> None:
    """Make the sets that the command line names, by default all."""
    for name in sys.argv[1:] or SETS:
        folder = make_set(name)
        counts = [
            len((folder / f"{each}.jsonl").read_text("utf-8").splitlines()) for each in ("queries", "corpus")
        ]
        print(f"{folder}: {counts[0]:,} queries, {counts[1]:,} documents")


if __name__ == "__main__":
    main()

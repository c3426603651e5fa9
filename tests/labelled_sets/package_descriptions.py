"""The set `deb`: the synopsis of a Debian package -> its long description.

The packages are those of `debian_packages.txt`, chosen by chance from Debian 12. Their descriptions change
only with the release.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from labelled_sets.archives import read_translations
from labelled_sets.pairs import LabelledPairs, keep_distinct

NAMES = Path(__file__).parent / "debian_packages.txt"
QUERIES = 400
CHOSEN = 1_000
MOST_WORDS, FEWEST_WORDS = 120, 15

_ENTRY = re.compile(r"^Package: (\S+)\n(?:.*\n)*?Description-en: (.*)\n((?: .*\n?)+)", re.MULTILINE)


def make_package_descriptions() -> LabelledPairs:
    """Make the set from the descriptions of Debian 12. Raises `KeyError` for a package that is not there."""
    known = read_descriptions()
    names = NAMES.read_text("utf-8").split()
    return keep_distinct([known[name] for name in names], QUERIES)


def read_descriptions() -> Mapping[str, tuple[str, str]]:
    """Return the synopsis and the beginning of the long description of each package."""
    found = {}
    for entry in read_translations().split("\n\n"):
        match = _ENTRY.search(entry)
        if match is not None:
            lines = [line.strip() for line in match[3].splitlines() if line.strip() != "."]
            found[match[1]] = match[2].strip(), " ".join(" ".join(lines).split()[:MOST_WORDS])
    return found


def choose_names() -> None:
    """Choose the packages, and write their names: those whose digests come first."""
    known = read_descriptions()
    texts = [name for name, (_, text) in known.items() if len(text.split()) >= FEWEST_WORDS]
    chosen = sorted(texts, key=lambda name: hashlib.sha256(name.encode()).digest())[:CHOSEN]
    NAMES.write_text("\n".join([*sorted(chosen), ""]), "utf-8")


if __name__ == "__main__":
    choose_names()

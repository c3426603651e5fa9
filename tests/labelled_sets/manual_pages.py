"""The set `man`: what a manual page is for -> the beginning of its description.

The query is what the NAME section says after the dash, and the right answer the DESCRIPTION of the same page.
"""

import gzip
import re
from collections.abc import Iterator

from labelled_sets.archives import fetch_debian
from labelled_sets.pairs import LabelledPairs, keep_distinct

PACKAGES = (
    ("manpages", "6.03-2", "efa1ba4cd19ad7baeae959c9209a7eb74be2ebb858bcabb412597bfc9f588c91"),
    ("manpages-dev", "6.03-2", "96f55cb5e26231d5567c89b692bced63825a14a2d5bd18fdf16ea2ed44eb9838"),
)
QUERIES = 400
MOST_WORDS, FEWEST_WORDS = 120, 15

_PAGE = re.compile(r"/man/man[1-8]/[^/]+\.gz$")
# Macros whose arguments are text in one font, and in two that alternate without a space.
_FONTS = {"B", "I", "SM", "SB", "SS", "TP"}
_ALTERNATING = {"BR", "BI", "IR", "IB", "RB", "RI"}
_SPECIAL = {"aq": "'", "cq": "'", "oq": "'", "lq": '"', "rq": '"', "dq": '"', "em": "-", "en": "-", "bu": ""}


def make_manual_pages() -> LabelledPairs:
    """Make the set from the pages of Debian 12."""
    pages = sorted(
        (path, content)
        for package in PACKAGES
        for path, content in fetch_debian(*package)
        if _PAGE.search(path)
    )
    pairs = [pair for _, content in pages if (pair := _read_page(content)) is not None]
    return keep_distinct(pairs, QUERIES)


def _read_page(content: bytes) -> tuple[str, str] | None:
    """Return what a page is for, and the beginning of its description; `None` for a page without both."""
    source = gzip.decompress(content).decode("utf-8", "replace")
    sections = dict(_sections(source))
    _, dash, purpose = to_text(sections.get("NAME", "")).partition(" - ")
    words = to_text(sections.get("DESCRIPTION", "")).split()
    if not dash or not purpose.strip() or len(words) < FEWEST_WORDS:
        return None
    return purpose.strip(), " ".join(words[:MOST_WORDS])


def _sections(source: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\.SH\b", source, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        yield title.strip().strip('"').upper(), body


def to_text(source: str) -> str:
    """Return the text of roff, on one line."""
    lines = []
    for line in source.split("\n"):
        if line.startswith(("'\\\"", '.\\"')):
            continue
        macro = re.match(r"\.(\S+)\s*(.*)", line)
        if macro is None:
            lines.append("" if line.startswith(".") else line)
            continue
        name, rest = macro[1], re.sub(r'\s*\\".*', "", macro[2])
        words = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', rest)]
        if name in _FONTS:
            lines.append(" ".join(words))
        elif name in _ALTERNATING:
            lines.append("".join(words))
    return " ".join(_resolve_escapes(" ".join(lines)).split())


def _resolve_escapes(text: str) -> str:
    text = re.sub(r"\\f(?:\(..|\[[^\]]*\]|.)", "", text)
    text = re.sub(r"\\s[-+]?\d+", "", text)
    text = re.sub(r"\\\((..)|\\\[([^\]]*)\]", lambda found: _SPECIAL.get(found[1] or found[2], ""), text)
    text = re.sub(r"\\\*(?:\(..|\[[^\]]*\]|.)", "", text)
    text = re.sub(r"\\[&|^/,%:~c]", "", text)
    return text.replace("\\-", "-").replace("\\ ", " ").replace("\\e", "\\")

"""Builds the docs as a site: `make docs`, into build/docs/site.

How it works. The pages stay as a code host shows them. Here they are copied to build/docs/sources: README.md
becomes the first page, links to files that are no pages lead to the address of the project, and the reference
is written from the code. zensical makes the site. Then every link of the site is followed: one that leads
nowhere, and any file that a page would load from another host, is an error.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

from docs_site.navigation import DECISIONS, NAVIGATION
from docs_site.reference_pages import write_library, write_options
from release.make_release import read_home
from support.source_tree import ROOT

FOLDER = ROOT / "build/docs"
HERE = Path(__file__).parent
README, CHANGELOG = ROOT / "README.md", ROOT / "CHANGELOG.md"
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"^(```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)
# The site leaves these out: figures that programs read, and what a code host shows better.
_LEFT_OUT = ("*.json", "*.ipynb", "*.pyc")
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


def list_pages() -> dict[Path, str]:
    """Return the pages of the project with their places on the site."""
    pages = {path: str(path.relative_to(ROOT / "docs")) for path in sorted((ROOT / "docs").rglob("*.md"))}
    return {README: "index.md", CHANGELOG: "changelog.md", **pages}


def rewrite_page(page: Path, text: str, pages: dict[Path, str], home: str) -> str:
    """Return the text of a page with links for the site, except in blocks of code."""

    def rewrite(found: re.Match[str]) -> str:
        return f"{found[1]}{rewrite_link(page, found[2], pages, home)}{found[3]}"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(rewrite, part) for part in parts)


def rewrite_link(page: Path, link: str, pages: dict[Path, str], home: str) -> str:
    """Return a link of a page as it is on the site."""
    address, fragment = urldefrag(link)
    if not address or urlparse(address).scheme:
        return link
    target = (page.parent / unquote(address)).resolve()
    here = pages[page]
    if target in pages:
        place = pages[target]
    elif target.is_relative_to(ROOT / "docs") and target.is_file() and not any(map(target.match, _LEFT_OUT)):
        place = str(target.relative_to(ROOT / "docs"))
    else:
        return f"{home}{target.relative_to(ROOT)}"
    up = "../" * here.count("/")
    return f"{up}{place}{f'#{fragment}' if fragment else ''}"


def title_of(text: str) -> str:
    """Return the first heading of a page. Raises `ValueError` if there is none."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError("a page has no heading")
    return found[1].replace("`", "")


def list_navigation(places: list[str]) -> dict[str, list[str]]:
    """Return the pages of each section. Raises `ValueError` for a page that is in none."""
    decisions = [place for place in places if place.startswith("decisions/")]
    sections = {**{name: list(found) for name, found in NAVIGATION.items()}, DECISIONS: decisions}
    listed = {place for found in sections.values() for place in found}
    if listed != set(places):
        raise ValueError(f"navigation.py and the pages differ: {', '.join(sorted(listed ^ set(places)))}")
    return sections


def write_settings(sources: Path, places: list[str]) -> str:
    """Return the settings of zensical, with the navigation."""
    lines = []
    for section, found in list_navigation(places).items():
        entries = ", ".join(
            f'{{"{title_of((sources / place).read_text("utf-8"))}" = "{place}"}}' for place in found
        )
        lines.append(f'    {{"{section}" = [{entries}]}},')
    head, _, tail = (HERE / "site.toml").read_text("utf-8").partition("\n[project.theme]\n")
    return "\n".join((head, "nav = [", *lines, "]", "", "[project.theme]", tail))


def write_sources(sources: Path) -> None:
    """Write all pages, pictures and the reference into a new folder."""
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ROOT / "docs", sources, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    pages, home = list_pages(), read_home()
    for page, place in pages.items():
        text = rewrite_page(page, page.read_text("utf-8"), pages, home)
        (sources / place).write_text(text, "utf-8")
    (sources / "reference").mkdir()
    (sources / "reference/library.md").write_text(write_library(), "utf-8")
    (sources / "reference/options.md").write_text(write_options(), "utf-8")
    shutil.copy(HERE / "site.css", sources)


class PageReader(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        found = dict(attrs)
        self.anchors |= {str(found[name]) for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if tag in _LOADED and found.get(_LOADED[tag]):
            self.loaded.append(str(found[_LOADED[tag]]))
        if tag == "link" and found.get("rel") not in ("canonical", "edit", "next", "prev"):
            self.loaded.append(str(found.get("href") or ""))


def find_faults(site: Path) -> Iterator[str]:
    """Yield every link that leads nowhere, and every file that is loaded from another host."""
    readers = {path: PageReader(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    base = "http://site/"
    for path, reader in readers.items():
        place = str(path.relative_to(site))
        if place == "404.html":  # is shown at any address, so its links begin at the root
            continue
        own = urljoin(base, place.removesuffix("index.html"))
        for loaded in reader.loaded:
            if urlparse(urljoin(own, loaded)).netloc != "site" and not loaded.startswith("data:"):
                yield f"{place} loads {loaded}"
        for link in reader.links:
            address, fragment = urldefrag(urljoin(own, link))
            parsed = urlparse(address)
            if parsed.netloc != "site":
                continue
            target = site / unquote(parsed.path).lstrip("/")
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{place} links to {link}, which is not there"
            elif fragment and target in readers and unquote(fragment) not in readers[target].anchors:
                yield f"{place} links to {link}, whose heading is not there"


def main() -> None:
    """Build the site and check it. Ends the process with a message if something is wrong."""
    zensical, mermaid = (Path(argument).resolve() for argument in sys.argv[1:3])
    sources = FOLDER / "sources"
    write_sources(sources)
    shutil.copy(mermaid, sources)
    places = [str(path.relative_to(sources)) for path in sorted(sources.rglob("*.md"))]
    settings = FOLDER / "zensical.toml"
    settings.write_text(write_settings(sources, places), "utf-8")
    shutil.rmtree(FOLDER / "site", ignore_errors=True)
    subprocess.run([zensical, "build", "--clean", "--config-file", settings], cwd=FOLDER, check=True)
    faults = list(find_faults(FOLDER / "site"))
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(places)} pages, all links checked: {FOLDER / 'site'}")


if __name__ == "__main__":
    main()

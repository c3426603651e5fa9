"""The site has every page, and a link that leads nowhere is found before a reader finds it."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

import vecmill
from docs_site.build_site import (
    PageReader,
    find_faults,
    list_navigation,
    list_pages,
    rewrite_link,
    rewrite_page,
    title_of,
    write_settings,
    write_sources,
)
from docs_site.reference_pages import write_library, write_options
from support.source_tree import ROOT

HOME = "https://home.test/"
DOCS = ROOT / "docs"
# A link to another file of the site: it has no scheme, and no placeholder of a text in it.
FILE_LINK = re.compile(r"\]\(([^)\s#:<{]+)(?:#[^)\s]*)?\)")


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    write_sources(sources)
    places = [str(path.relative_to(sources)) for path in sources.rglob("*.md")]
    sections = list_navigation(places)
    assert sorted(place for found in sections.values() for place in found) == sorted(places)
    settings = write_settings(sources, places)
    assert '{"The console" = "console.md"}' in settings
    assert settings.index("nav = [") < settings.index("[project.theme]")
    with pytest.raises(ValueError, match=r"differ: new\.md"):
        list_navigation([*places, "new.md"])
    with pytest.raises(ValueError, match=r"differ: metrics\.md"):
        list_navigation([place for place in places if place != "metrics.md"])


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("README.md", "docs/api.md", "api.md"),
        ("README.md", "docs/limits.md#priorities", "limits.md#priorities"),
        ("README.md", "CHANGELOG.md", "changelog.md"),
        ("README.md", "LICENSE", "https://home.test/LICENSE"),
        ("README.md", "docs/contributing", "https://home.test/docs/contributing"),
        ("docs/api.md", "limits.md", "limits.md"),
        ("docs/api.md", "../README.md#start", "index.md#start"),
        ("docs/api.md", "#here", "#here"),
        ("docs/api.md", "https://other.test/a.md", "https://other.test/a.md"),
        ("docs/api.md", "../docker/vecmill.toml", "https://home.test/docker/vecmill.toml"),
        (
            "docs/benchmarks/quality.md",
            "quality/figures.json",
            "https://home.test/docs/benchmarks/quality/figures.json",
        ),
        ("docs/contributing/promises.md", "../api.md", "../api.md"),
        (
            "docs/contributing/promises.md",
            "../../tests/http/test_fields.py",
            "https://home.test/tests/http/test_fields.py",
        ),
    ],
)
def test_a_link_leads_to_the_same_page_on_the_site(page: str, link: str, expected: str) -> None:
    assert rewrite_link(ROOT / page, link, list_pages(), HOME) == expected


def test_every_link_to_a_file_leads_to_one_that_the_site_has(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    write_sources(sources)
    pages = list(sources.rglob("*.md"))
    links = [(page, link) for page in pages for link in FILE_LINK.findall(page.read_text("utf-8"))]
    assert len(links) > 500
    assert [(str(page), link) for page, link in links if not (page.parent / unquote(link)).exists()] == []


def test_links_in_blocks_of_code_stay_as_they_are() -> None:
    text = "[a](../README.md)\n\n```md\n[a](../README.md)\n```\n\n[b](limits.md)\n"
    expected = text.replace("[a](../README.md)", "[a](index.md)", 1)
    assert rewrite_page(DOCS / "api.md", text, list_pages(), HOME) == expected


def test_a_title_is_the_first_heading() -> None:
    assert title_of("text\n# The `vecmill` command\n## Other\n") == "The vecmill command"
    with pytest.raises(ValueError, match="no heading"):
        title_of("text")


def test_the_reference_has_every_public_name_and_option() -> None:
    library, options = write_library(), write_options()
    for name in vecmill.__all__:
        assert f"\n## {name}\n" in library
    assert "### SyncMill.embed" in library
    for command in ("serve", "embed", "optimize", "bench", "deploy render"):
        assert f"\n## vecmill {command}\n" in options
    port = "| `--port` | The port to listen on; 0 selects a free port. Default: `7997`. | `VECMILL_PORT` |"
    assert port in options
    assert "object at 0x" not in library + options
    assert not re.search(r"Sentinel|<class", library + options)


SITE = {
    "index.html": '<a href="a/">a</a><a href="a/#x">x</a><script src="app.js"></script><h1 id="top">',
    "a/index.html": '<a href="..#top">up</a><h2 id="x"><img src="data:image/png;base64,AA">',
    "404.html": '<a href="/nowhere/">n</a>',
}


def write_site(folder: Path, **changed: str) -> Path:
    pages = {f"{name.replace('_', '/', 1)}.html": text for name, text in changed.items()}
    for name, text in {**SITE, **pages}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def test_a_whole_site_has_no_faults(tmp_path: Path) -> None:
    assert list(find_faults(write_site(tmp_path))) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="../b/">', "a/index.html links to ../b/, which is not there"),
        ('<a href="../#y">', "a/index.html links to ../#y, whose heading is not there"),
        ('<script src="https://cdn.test/x.js">', "a/index.html loads https://cdn.test/x.js"),
        ('<link rel="stylesheet" href="//fonts.test/x">', "a/index.html loads //fonts.test/x"),
        ('<img src="http://other.test/x.png">', "a/index.html loads http://other.test/x.png"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, text: str, fault: str) -> None:
    assert fault in list(find_faults(write_site(tmp_path, a_index=text)))


def test_links_and_anchors_are_read() -> None:
    reader = PageReader('<a href="x" id="y"><link rel="canonical" href="https://home.test/">')
    assert (reader.links, reader.anchors, reader.loaded) == (["x"], {"y"}, [])

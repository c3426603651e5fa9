"""The examples that people copy: each runs, against the live server, as it stands in the document."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from docs.one_process import Run
from support.forked_process import run_process
from support.server import LiveServer
from support.source_tree import ROOT

WRITTEN_URL = "http://127.0.0.1:7997"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "libs/vecmill/README.md",
    ROOT / "services/vecmill_server/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/contributing").glob("*.md")),
]
# test_readme runs README.md. tests/clients runs the tutorial of docs/quickstart.md, with a cross-encoder too.
# test_library_page runs the web application of docs/library.md, test_pictures_page the command and the
# programs of docs/pictures.md, test_cookbook_page those of docs/cookbook.md. tests/stores runs
# docs/stores.md, where the packages of the stores are, and tests/clients docs/compatibility.md.
README, RUN_ELSEWHERE = (
    "README.md:",
    ("docs/pictures.md", "docs/stores.md", "docs/cookbook.md", "docs/compatibility.md"),
)
# Words of programs that other tests run: of the web application, and of the tutorial.
MARKS_ELSEWHERE = ("from fastapi import", "pydoc_data.topics", "enumerate(chunks)")
README_FILE = ROOT / "README.md"
# What the examples read.
FILES = {
    "corpus.jsonl": "".join(
        f'{{"id": {number}, "text": "{text}"}}\n'
        for number, text in enumerate(["Cats sleep anywhere.", "Dogs bark.", "Bread needs yeast."], 1)
    ),
    "queries.jsonl": '{"_id": "q1", "text": "Which animals sleep?"}\n',
    "qrels.tsv": "query-id\tcorpus-id\tscore\nq1\t1\t1\n",
}
# The list of modules, and the list of promises with their tests.
LOOKED_UP = {"docs/contributing/modules.md", "docs/contributing/promises.md"}


@dataclass(frozen=True, slots=True)
class Example:
    """One fenced block: where it is, its language, its text."""

    place: str
    language: str
    text: str


def examples() -> Iterator[Example]:
    for path in DOCUMENTS:
        document = path.read_text("utf-8")
        for block in re.finditer(r"^```(\w+)\n(.*?)^```", document, flags=re.MULTILINE | re.DOTALL):
            line = document.count("\n", 0, block.start()) + 1
            yield Example(f"{path.relative_to(ROOT)}:{line}", block[1], block[2])


def of_language(*languages: str) -> list[Example]:
    found = (example for example in examples() if not example.place.startswith(README))
    return [example for example in found if example.language in languages]


def curl_commands() -> list[Example]:
    """Each call of curl on its own; what else a shell example says is not run."""
    return [
        Example(f"{example.place}[{number}]", "sh", command)
        for example in of_language("sh", "bash", "shell")
        for number, command in enumerate(
            re.findall(r"^curl (?:.*\\\n)*.*$", example.text, flags=re.MULTILINE)
        )
    ]


def is_run_elsewhere(example: Example) -> bool:
    """Whether another test runs a program or a command."""
    return example.place.startswith(RUN_ELSEWHERE) or any(words in example.text for words in MARKS_ELSEWHERE)


def commands_of(name: str) -> list[Example]:
    """Each line of a shell example with this command of vecmill."""
    return [
        Example(f"{example.place}[{number}]", "sh", command)
        for example in of_language("sh")
        if not example.place.startswith(("docs/stores.md", "docs/cookbook.md"))
        for number, command in enumerate(
            re.findall(rf"^(?:[A-Z_]+=\S+ )?vecmill {name} .*$", example.text, flags=re.MULTILINE)
        )
    ]


class Runs:
    """Examples that are to be run, each in a folder of its own with a corpus, against a server."""

    def __init__(self, server: LiveServer, caches: Path, folder: Path) -> None:
        self._url = server.url
        self._caches = str(caches)
        self._folder = folder
        self._all: list[Run] = []

    def folder_of(self, example: Example) -> Path:
        return self._folder / re.sub(r"\W", "_", example.place)

    def add(self, example: Example, program: str, *arguments: str, environment: Mapping[str, str]) -> None:
        """A run for an example. Those of one example share its folder."""
        folder = self.folder_of(example)
        folder.mkdir(exist_ok=True)
        for name, text in FILES.items():
            (folder / name).write_text(text, "utf-8")
        self._all.append(
            Run(
                place=example.place,
                folder=str(folder),
                program=program,
                arguments=list(arguments),
                environment={"XDG_CACHE_HOME": self._caches, **environment},
            )
        )

    def add_program(self, example: Example) -> None:
        """A program, for which no other program is found."""
        script = self._folder / f"{self.folder_of(example).name}.py"
        script.write_text(self._asked(example.text), "utf-8")
        self.add(example, str(script), environment={"PATH": ""})

    def add_command(self, example: Example, line: str) -> None:
        """A line of a shell with a command of vecmill, which may begin with a variable."""
        *before, program = shlex.split(self._asked(line).partition("vecmill ")[0] + "vecmill")
        arguments = shlex.split(self._asked(line).partition("vecmill ")[2])
        variables = dict(each.split("=", 1) for each in before)
        self.add(example, program, *arguments, environment={**os.environ, **variables})

    def run(self) -> dict[str, str]:
        """What went wrong at each place, or nothing."""
        line = [sys.executable, str(Path(__file__).with_name("one_process.py"))]
        done = run_process(line, given=json.dumps(self._all), timeout_s=300)
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _asked(self, text: str) -> str:
        return text.replace(WRITTEN_URL, self._url)


def named(pattern: str, text: str) -> str:
    """The file that an example names."""
    found = re.search(pattern, text)
    assert found is not None
    return found[1]


def test_programs_and_commands_run(
    server: LiveServer, user_caches: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    programs = [each for each in of_language("python") if not is_run_elsewhere(each)]
    embeds = [each for each in commands_of("embed") if not is_run_elsewhere(each)]
    verifies = commands_of("space verify")
    judges = [*commands_of("evaluate"), *commands_of("compare")]
    runs = Runs(server, user_caches, tmp_path)
    for example in programs:
        runs.add_program(example)
    for example in (*embeds, *judges):
        runs.add_command(example, example.text)
    for example in verifies:  # of vectors that the model gave
        file = named(r"verify (\S+)", example.text)
        column = "" if file.endswith(".npy") else "--copy-column text"
        runs.add_command(example, f"vecmill embed corpus.jsonl -o {file} {column}")
        runs.add_command(example, example.text)
    found = runs.run()
    assert min(len(programs), len(embeds), len(verifies), len(judges)) >= 2
    for example in (*programs, *embeds, *verifies, *judges):
        with subtests.test(msg=example.place):
            assert not found[example.place], found[example.place]
            if example in embeds:
                assert (runs.folder_of(example) / named(r" -o (\S+)", example.text)).exists()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("example", curl_commands(), ids=lambda example: example.place)
def test_curl_example_is_answered(example: Example, server: LiveServer) -> None:
    command = example.text.replace(WRITTEN_URL, server.url).replace("curl ", "curl --silent --show-error ", 1)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if done.stdout.startswith("{"):
        assert "error" not in json.loads(done.stdout)


def test_every_make_command_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, flags=re.MULTILINE))
    named = {
        name
        for path in DOCUMENTS
        for name in re.findall(
            r"(?:`|^)(?:[A-Z_]+=\S+ )?make ([a-z0-9-]+)", path.read_text("utf-8"), re.MULTILINE
        )
    }
    assert {"serve", "test", "check"} <= named
    assert named - targets == set()


def needs_our_index(command: str) -> bool:
    """Whether a command looks for a package of vecmill in a package index.

    pip takes `vecmill[...]` and `vecmill-server[...]` as they are installed, and only the packages of the
    extra from an index. The extra minilm is a package of ours.
    """
    if "--find-links" in command or "dist/" in command:
        return False
    named = re.findall(r"(vecmill[a-z-]*)(\[[a-z0-9,]+\])?", command.partition(" ")[2])
    return any(
        not extras or "minilm" in extras or package not in ("vecmill", "vecmill-server")
        for package, extras in named
    )


def installations(document: str) -> list[str]:
    """Return the commands of a document that install or run packages from an index."""
    return re.findall(r"\b(?:pip install|pipx|uvx) [^`\n#]+", document)


def test_no_page_installs_a_package_that_no_index_has() -> None:
    commands = {
        str(path.relative_to(ROOT)): installations(path.read_text("utf-8"))
        for path in DOCUMENTS
        if path.name != "README.md" or path.parent == ROOT
    }
    assert sum(map(len, commands.values())) >= 6
    wrong = {place: [each for each in found if needs_our_index(each)] for place, found in commands.items()}
    assert {place: found for place, found in wrong.items() if found} == {}


def test_the_readme_of_each_package_says_how_to_install_before_a_release() -> None:
    pages = [*(ROOT / "libs").glob("*/README.md"), *(ROOT / "services").glob("*/README.md")]
    assert len(pages) == 4
    for page in pages:
        assert re.search(
            r"`make wheels`.*--find-links dist|--find-links dist.*`make wheels`", page.read_text()
        ), page


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("pip install 'vecmill-server[minilm]'", True),
        ("pip install vecmill-server", True),
        ("pip install 'vecmill-ray[serve]'", True),
        ("uvx vecmill-server BAAI/bge-small-en-v1.5", True),
        ("pip install --find-links dist 'vecmill-server[minilm]'", False),
        ("pip install 'vecmill-server[corpus,otel]'", False),
        ("pip install openai", False),
    ],
)
def test_what_needs_an_index_with_our_packages(command: str, needed: bool) -> None:
    assert needs_our_index(command) is needed


def test_links_inside_the_project_lead_somewhere() -> None:
    pages = [*DOCUMENTS, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs/decisions").glob("*.md"))]
    places = {page: places_of(page.read_text("utf-8")) for page in pages}
    dead = [
        f"{page.relative_to(ROOT)}: {target}#{place}"
        for page in pages
        for target, place in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8"))
        if not leads_somewhere((page.parent / target).resolve() if target else page, place, places)
    ]
    assert dead == []


def places_of(document: str) -> set[str]:
    """Return the names by which links reach the headings of a document."""
    prose = re.sub(r"^```.*?^```", "", document, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(file: Path, place: str, places: Mapping[Path, set[str]]) -> bool:
    """Whether a file exists, and has the heading that a link names."""
    return file.exists() and (not place or file not in places or place in places[file])


def test_a_link_to_a_heading_that_is_gone_is_found() -> None:
    page = ROOT / "page.md"
    places = {README_FILE: places_of("# A `b` c\n```sh\n# no heading\n```\n")}
    assert places[README_FILE] == {"a-b-c"}
    assert leads_somewhere(README_FILE, "a-b-c", places)
    assert not leads_somewhere(README_FILE, "no-heading", places)
    assert not leads_somewhere(page, "", places)


def test_pages_are_short_unless_they_are_tables() -> None:
    """A reader of a long page gives up. Lists that are written from declarations are looked up, not read."""
    long = {
        str(page.relative_to(ROOT)): lines
        for page in DOCUMENTS
        if (lines := sum(not line.startswith("|") for line in page.read_text("utf-8").splitlines())) > 200
    }
    assert set(long) <= LOOKED_UP


def test_folders_of_tests_that_are_named_exist() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCUMENTS)
    named = set(re.findall(r"`(tests/[\w/.-]+)`", text))
    assert "tests/parity" in named
    assert {name for name in named if not (ROOT / name).exists()} == set()

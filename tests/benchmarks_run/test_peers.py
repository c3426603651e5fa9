"""The comparison with other servers: its tables, its texts, its layouts, and the servers of tutorials."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as HubTokenizer

from bench.peers import page
from bench.peers.contest import Contest, choose_peers, name_command, name_model, read_earlier, run_rounds
from bench.peers.environments import find_python, find_reason
from bench.peers.loads import LEAST_REQUESTS, SEED, PeerLoad, TextFiles, list_loads, name_exact
from bench.peers.models import (
    GRAPH,
    LONG,
    LONG_TOKENS,
    MAX_TOKENS,
    MODEL,
    PreparedModels,
    name_encoder,
    prepare_models,
)
from bench.peers.plots import draw_ratios
from bench.peers.processes import Place, ServerPeer, run_peer, tree_memory_mb
from bench.peers.programs import in_process
from bench.peers.results import Comparison, LoadFigures, PeerResult, PeerRound, mean_ratio, speed_ratios
from bench.peers.roster import BASE, BY_URL, ENVIRONMENTS, OPTIMIZED, Peer, list_peers
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.requests import Embed
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill_server.bench.request_sets import read_texts

LOADS = list_loads()
SHORT, ONE_SHORT = LOADS[0], LOADS[5]
MACHINE = {
    "processor": "a processor",
    "cores": 2,
    "memory_gb": 25,
    "system": "Linux 6",
    "python": "3.11.7",
    "load_average": 0.1,
}
SETTINGS = {"rounds": 3, "seconds": 8, "seed": 1, "command": "make bench-peers ROUNDS=3"}
TEXTS = ["a short text", "another text with some more words in it"]


def result(name: str, rates: list[float], times_ms: list[float], cosine_min: float = 1.0) -> PeerResult:
    rounds = [
        PeerRound(
            2.0, 300.0, {SHORT.name: LoadFigures(rate, 9.0, 20.0), ONE_SHORT.name: LoadFigures(5.0, ms)}
        )
        for rate, ms in zip(rates, times_ms, strict=True)
    ]
    return PeerResult(name, "HTTP", {"package": "1.2"}, "serve {port}", None, cosine_min, 1.0, rounds)


def comparison() -> Comparison:
    ended = PeerResult("broken", "HTTP", reason="ended: a | b")
    return Comparison(
        "2026-01-01T00:00:00Z",
        MACHINE,
        SETTINGS,
        [
            result(BASE, [100.0, 80.0, 120.0], [10.0, 10.0, 12.0]),
            result("slow", [50.0, 20.0, 30.0], [5.0, 20.0, 8.0]),
            result("wrong", [500.0, 500.0, 500.0], [1.0, 1.0, 1.0], cosine_min=0.4),
            ended,
        ],
    )


def test_ratios_are_those_of_each_round_and_more_is_faster() -> None:
    base, slow, *_ = comparison().peers
    assert speed_ratios(slow, base, SHORT) == [0.5, 0.25, 0.25]
    assert speed_ratios(slow, base, ONE_SHORT) == [2.0, 0.5, 1.5]
    ratio, loads = mean_ratio(slow, base, LOADS) or (0.0, 0)
    assert ratio == pytest.approx((0.25 * 1.5) ** 0.5)
    assert loads == 2


def test_a_round_that_failed_is_not_paired_with_another() -> None:
    base, slow, *_ = comparison().peers
    slow.rounds[1] = PeerRound()
    assert speed_ratios(slow, base, SHORT) == [0.5, 0.25]


def test_the_tables_name_what_is_wrong_what_failed_and_where_a_peer_is_better() -> None:
    found = page.write_report(comparison())
    assert "| wrong (wrong embeddings) | 500 |" in found
    assert "- wrong: wrong embeddings. The cosine of the worst text is 0.400." in found
    assert "| broken | not measured |" in found
    assert "- broken: ended: a \\| b" in found
    assert "- slow, one client, short: 1.50 (0.50 to 2.00) times the speed." in found
    assert "- wrong, one client" not in found
    tables = [line for line in found.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables if "slow" in line} == {13, 11, 7, 6}
    # The mean is not over all loads.
    assert "| 0.61 (2 of 8 loads) |" in found


def test_the_tables_mark_few_requests_and_tell_first_starts_from_later_ones() -> None:
    slow = LoadFigures(5.0, 9.0, None, "vecmill", requests=12, encoding="float")
    rounds = [PeerRound(ready_s, 300.0, {SHORT.name: slow}) for ready_s in (92.0, 2.0, 3.0)]
    enough = [PeerRound(1.0, 300.0, {SHORT.name: replace(slow, requests=20)})]
    peers = [
        result(BASE, [9.0], [10.0]),
        PeerResult("slow", "HTTP", rounds=rounds),
        PeerResult("library", "in process", rounds=rounds),
        PeerResult("busy", "in process", rounds=enough),
    ]
    found = Comparison("2026-01-01T00:00:00Z", MACHINE, SETTINGS, peers)
    text = page.write_report(found)
    assert "| slow | 5.0 (12 requests) | - |" in text
    assert "| library (in process) | 5.0 (12 calls) | - |" in text
    assert "| busy (in process) | 5.0 | - |" in text
    assert "| 300 | 92.0, 2.5 |" in text
    assert "| slow | 9.0 / - | - |" in text
    assert "| slow | HTTP | float | - | started by hand |" in text


def test_the_published_command_repeats_the_run() -> None:
    options = argparse.Namespace(
        model=None,
        rounds=2,
        seconds=3,
        seed=7,
        peer=["infinity, torch"],
        url=["TEI 1.9=http://h:1"],
        optimized=Path("a"),
    )
    assert name_command(options) == (
        "make bench-peers ROUNDS=2 ARGS=\"--seconds 3 --seed 7 --peer 'infinity, torch' "
        "--url 'TEI 1.9=http://h:1' --optimized a\""
    )


def test_the_plot_is_a_picture_of_those_that_can_be_compared(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert draw_ratios(comparison(), tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")
    alone = Comparison("", MACHINE, SETTINGS, comparison().peers[:1])
    assert not draw_ratios(alone, tmp_path / "alone.png")


def test_results_are_read_as_they_were_saved(tmp_path: Path) -> None:
    comparison().save(tmp_path / "peers.json")
    assert Comparison.read(tmp_path / "peers.json") == comparison()


def test_the_section_of_the_page_is_that_of_the_published_results() -> None:
    published, text = page.read_published(), page.PAGE.read_text("utf-8")
    assert page.replace_section(text, page.write_section(published)) == text, "run `make bench-peers-page`"
    for found in published:
        assert (page.PUBLISHED / f"{page.name_files(found)}.png").exists()


def test_a_section_is_replaced_as_a_whole() -> None:
    old, new = page.write_section([]), page.write_section([comparison(), comparison()])
    assert page.replace_section(f"before\n{old}\nafter", new) == f"before\n{new}\nafter"


def test_a_graph_for_peers_has_no_head() -> None:
    assert name_encoder({"architectures": ["MPNetForMaskedLM"]}) == "MPNetModel"
    assert name_encoder({"architectures": ["BertModel"]}) == "BertModel"


def test_each_environment_is_one_that_make_can_install() -> None:
    named = {peer.environment for peer in list_peers()} - {None}
    assert named == {file.stem for file in ENVIRONMENTS.glob("*.in")}
    assert named == {file.stem for file in ENVIRONMENTS.glob("*.txt")}


def test_a_server_is_measured_by_its_url_or_says_that_it_was_not_named() -> None:
    peers = {peer.name: peer for peer in list_peers(["TEI=http://127.0.0.1:8080", "mine=http://host/v1"])}
    assert peers["TEI"].url == "http://127.0.0.1:8080"
    assert peers["mine"].url == "http://host/v1"
    assert {name for name in BY_URL if peers[name].url is None} == set(BY_URL) - {"TEI"}
    assert "TEI" not in {peer.name for peer in list_peers(["TEI 1.9.3=http://127.0.0.1:8080"])}
    with pytest.raises(ValueError, match="not NAME=URL"):
        list_peers(["http://127.0.0.1:8080"])


def test_the_reason_is_the_last_error_that_was_printed() -> None:
    output = "collecting\nERROR: no such package\nsee the log\nmake: *** [Makefile:1: x] Error 1\n"
    assert find_reason(output) == "ERROR: no such package"
    assert find_reason("") == "no output"
    assert find_reason("ImportError: no numpy\n\nERROR: startup failed. Exiting.") == "ImportError: no numpy"


def test_no_text_of_a_load_is_longer_than_the_model_reads(tmp_path: Path) -> None:
    files = TextFiles(tmp_path, EmbeddedModel(tmp_path))
    tokenizer = HubTokenizer.from_file(str(locate_model().directory / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = [files.cut(text) for text in [*mixed_texts(3, 40), "word " * 1_000]]
    assert max(len(tokenizer.encode(text)) for text in texts) < MAX_TOKENS
    exact = files.read(name_exact(MAX_TOKENS))[:10]
    assert {len(tokenizer.encode(text)) for text in exact} == {MAX_TOKENS}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("peers")
    models = prepare_models(folder / "models")
    return Place(models, TextFiles(folder, models), folder, 1)


@pytest.fixture(scope="module")
def reference() -> FloatArray:
    from support.reference import load_library_model

    return np.asarray(
        load_library_model(locate_model().directory, "SentenceTransformer", {}).encode(TEXTS), np.float32
    )


@pytest.mark.full
def test_the_layouts_have_the_weights_and_a_tokenizer_that_truncates(place: Place) -> None:
    models: PreparedModels = place.models
    assert (models.directory / "onnx/model.onnx").stat().st_size > 80e6
    described = Tokenizer.load(describe_model(locate_model(models.directory)))
    assert len(described.encode(["word " * 1_000])[0]) == MAX_TOKENS
    repository = models.hub_home / "hub" / f"models--{models.hub_name.replace('/', '--')}"
    revision = (repository / "refs/main").read_text("utf-8")
    assert (repository / "snapshots" / revision / "config.json").exists()


@pytest.mark.full
def test_a_library_in_its_own_process_answers_the_embeddings_and_a_load(
    place: Place, reference: FloatArray
) -> None:
    (listed,) = [peer for peer in list_peers() if peer.name == "sentence-transformers"]
    with run_peer(Peer(listed.name, None, (), listed.command, transport=listed.transport), place) as peer:
        assert np.allclose(peer.embed(TEXTS), reference, atol=1e-5)
        found = peer.measure(ONE_SHORT)
        assert found.p50_ms
        assert found.requests
        assert found.requests >= LEAST_REQUESTS
        assert (found.p99_ms is None) == (found.requests < in_process.CALLS_FOR_P99)
        assert (found.p99_ms or found.p50_ms) >= found.p50_ms > 0
        assert peer.ready_s
        assert (peer.memory_mb() or 0) > 50


@pytest.mark.full
@pytest.mark.parametrize("name", ["FastAPI and transformers", "FastAPI and ONNX Runtime"])
def test_the_servers_of_tutorials_answer_the_embeddings(
    name: str, place: Place, reference: FloatArray
) -> None:
    (peer,) = [peer for peer in list_peers() if peer.name == name]
    if not find_python(peer).exists():
        pytest.skip(f"{name} is not installed; `make .venv/peer-{peer.environment}/ready` installs it")
    with run_peer(peer, place) as running:
        assert np.allclose(running.embed(TEXTS), reference, atol=1e-5)


class OtherVocabulary(PreparedModels):
    """A model whose tokenizer has few words."""

    @property
    def source(self) -> Path:
        return self.folder


def test_a_model_whose_texts_would_be_longer_than_said_is_refused(tmp_path: Path) -> None:
    models = OtherVocabulary(save_tiny_bert(tmp_path / "tiny", TinyBert(max_seq_length=48)), "tiny", 48)
    with pytest.raises(ValueError, match="texts of 24 tokens have"):
        TextFiles(tmp_path, models).read(name_exact(48))


class EmbeddedModel(PreparedModels):
    """The embedded model where it is installed, without layouts for peers."""

    @property
    def source(self) -> Path:
        return locate_model().directory


@pytest.mark.full
def test_the_model_with_repeated_positions_reads_long_texts_in_every_layout(tmp_path: Path) -> None:
    models = prepare_models(tmp_path / "models", Path(LONG))
    texts = TextFiles(tmp_path, models).read(name_exact(LONG_TOKENS))[:1]
    assert [load.name for load in list_loads(LONG_TOKENS)][3] == name_exact(LONG_TOKENS)
    with SyncMill(models.source) as mill, SyncMill(models.directory / GRAPH) as exported:
        embeddings = mill.embed(texts)
        assert mill.run(Embed(tuple(texts))).token_count == LONG_TOKENS
        assert np.allclose(embeddings, exported.embed(texts), atol=1e-4)


def place_in(folder: Path, seconds: int = 1) -> Place:
    """A place without models."""
    models = EmbeddedModel(folder)
    return Place(models, TextFiles(folder, models), folder, seconds)


def test_a_peer_that_does_not_start_is_a_row_with_the_reason(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    command = ("{python}", "-c", "raise SystemExit('error: no such model')")
    contest = Contest([Peer("broken", command=command), Peer("TEI")], place, [], np.zeros((1, 1), np.float32))
    contest.run_round(["TEI", "broken"])
    assert contest.results["broken"].reason == "does not start: error: no such model"
    assert contest.results["TEI"].reason == "no server was named: --url TEI=URL"
    assert contest.results["broken"].rounds == [PeerRound()]


class CountedContest(Contest):
    """A comparison that measures nothing, and notes in which order."""

    def __init__(self, folder: Path, names: Sequence[str] = ("a", "b", "c")) -> None:
        super().__init__([Peer(name) for name in names], place_in(folder), [], np.zeros((1, 1), np.float32))
        self.measured: list[str] = []

    def _measure(self, peer: Peer, result: PeerResult) -> PeerRound:
        self.measured.append(peer.name)
        return PeerRound(1.0)


def test_an_interrupted_run_goes_on_in_the_same_order(tmp_path: Path) -> None:
    whole, first, rest = (CountedContest(tmp_path) for _ in range(3))
    options = argparse.Namespace(rounds=3, seed=5)
    run_rounds(whole, options, lambda: None)

    def stop_in_the_second_round() -> None:
        if len(first.measured) == 4:
            first.results["b"].reason = "ended"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_rounds(first, options, stop_in_the_second_round)
    saved = tmp_path / "peers.json"
    Comparison("now", MACHINE, SETTINGS, list(first.results.values())).save(saved)
    rest.take_up(Comparison.read(saved))
    run_rounds(rest, options, lambda: None)
    assert first.measured + rest.measured == whole.measured
    assert {len(found.rounds) for found in rest.results.values()} == {3}
    assert rest.results["b"].reason is None


def test_a_model_is_named_by_its_directory_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my-model").mkdir()
    monkeypatch.chdir(tmp_path / "my-model")
    assert {name_model(Path(text)) for text in (".", "../my-model", "./")} == {"my-model"}
    assert name_model(Path(LONG)) == LONG
    assert name_model(None) == MODEL


def test_a_directory_of_optimize_is_measured_beside_chosen_peers() -> None:
    options = argparse.Namespace(url=[], peer=["fastembed"], optimized=Path("tuned"))
    assert [peer.name for peer in choose_peers(options)] == [BASE, OPTIMIZED, "fastembed"]
    options.optimized = None
    assert [peer.name for peer in choose_peers(options)] == [BASE, "fastembed"]


def test_a_run_that_goes_on_with_some_peers_keeps_the_results_of_the_others(tmp_path: Path) -> None:
    whole = CountedContest(tmp_path)
    run_rounds(whole, argparse.Namespace(rounds=1, seed=5), lambda: None)
    some = CountedContest(tmp_path, ["a"])
    some.take_up(Comparison("now", MACHINE, SETTINGS, whole.all_results))
    run_rounds(some, argparse.Namespace(rounds=2, seed=5), lambda: None)
    assert {found.name: len(found.rounds) for found in some.all_results} == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("machine", "options", "message"),
    [
        ({"cores": 4}, {}, "cores was 2 in the saved run, and is 4 now"),
        ({}, {"seconds": 5}, "continue with --seconds 8"),
    ],
)
def test_a_run_goes_on_only_where_and_as_it_began(
    machine: dict[str, int],
    options: dict[str, int],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = tmp_path / "peers.json"
    monkeypatch.setattr("bench.peers.contest.RESULTS", saved)
    monkeypatch.setattr("bench.peers.contest.ROOT", tmp_path)
    chosen = argparse.Namespace(**{"model": None, "seconds": 8, "seed": 1, **options})
    with pytest.raises(SystemExit, match=r"peers\.json does not exist"):
        read_earlier(MACHINE, chosen)
    Comparison("now", MACHINE, SETTINGS, []).save(saved)
    with pytest.raises(SystemExit, match=message):
        read_earlier({**MACHINE, **machine}, chosen)
    assert read_earlier(MACHINE, argparse.Namespace(model=None, seconds=8, seed=1)).machine == MACHINE


class SlowPeer(ServerPeer):
    """A server that answers two requests a second."""

    def _run_bench(self, load: PeerLoad, seconds: int) -> LoadFigures:
        return LoadFigures(2.0, 500.0, requests=2 * seconds)


def test_a_slow_server_is_measured_for_longer(tmp_path: Path) -> None:
    peer = SlowPeer("http://127.0.0.1:1", place_in(tmp_path, seconds=4), None)
    assert peer.measure(ONE_SHORT).requests == 24  # 4 s have 8 of 20, so the second time takes 12 s
    assert peer.measure(SHORT).requests == 64  # after 32 s it ends, with too few for 32 clients


def test_a_library_is_called_often_enough() -> None:
    calls = 0

    def embed(_texts: Sequence[str]) -> list[list[float]]:
        nonlocal calls
        calls += 1
        return []

    found = in_process.measure(embed, TEXTS, 2, 0.0, least_calls=3, most_s=20.0)
    assert calls == found["calls"] == 3
    assert found["p99_ms"] is None


def test_a_library_gets_the_texts_in_the_order_of_the_servers(tmp_path: Path) -> None:
    files = TextFiles(tmp_path, EmbeddedModel(tmp_path))
    (tmp_path / "few.txt").write_text("\n".join(f"{'word ' * size}{size}" for size in range(40)), "utf-8")
    assert files.read_in_order("few")[:64] == read_texts(str(tmp_path / "few.txt"), 64, SEED)
    assert files.read_in_order("few")[:40] != files.read("few")


class Ends:
    """A peer that ends under its second load."""

    ready_s = 1.5

    def __init__(self) -> None:
        self._loads = 0

    def embed(self, texts: Sequence[str]) -> FloatArray:
        return np.ones((len(texts), 1), np.float32)

    def measure(self, load: PeerLoad) -> LoadFigures:
        self._loads += 1
        if self._loads > 1:
            raise subprocess.TimeoutExpired("peer", 1.0)
        return LoadFigures(5.0)

    def memory_mb(self) -> float:
        raise AssertionError


def test_a_peer_that_fails_keeps_the_loads_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.contest.run_peer", lambda *_: nullcontext(Ends()))
    one = Peer("one", command=("one",))
    contest = Contest([one], place_in(tmp_path), ["a"], np.ones((1, 1), np.float32))
    contest.run_round(["one"])
    assert contest.results["one"].rounds == [PeerRound(1.5, None, {SHORT.name: LoadFigures(5.0)})]
    assert "timed out" in (contest.results["one"].reason or "")


@pytest.mark.linux
def test_memory_is_that_of_the_whole_tree() -> None:
    alone = tree_memory_mb(os.getpid())
    assert alone
    assert tree_memory_mb(2**22 + 1) is None  # above the largest process id
    child = subprocess.Popen(
        [sys.executable, "-c", "held = bytearray(80_000_000); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    try:
        assert (tree_memory_mb(os.getpid()) or 0) > alone + 60
    finally:
        child.communicate(b"\n")

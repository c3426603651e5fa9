"""What the page computes: similarities, maps and loads are those of numpy and of the metrics."""

import ast
import base64
import csv
import io
import json as json_module
import shlex
import subprocess
from typing import Any

import httpx
import numpy as np
import pytest

from console.page_modules import ASSETS, call
from support.client_packages import NODE
from support.http_server import MODEL, serve_in_thread
from vecmill.evaluation.significance import estimate_mean, find_p_value
from vecmill_server.app import list_routes

SEED = 20_261_125
HOSTILE = 'it\'s "quoted" $(id) `id` \\ é 漢 🎉 </script>\ttab'


@pytest.mark.parametrize("rows", [2, 3, 12])
def test_similarities_and_the_map_are_those_of_numpy(rows: int) -> None:
    values = np.random.default_rng(SEED).normal(size=(rows, 24)).astype("<f4")
    found = call("here", "decodeAndCompare", [base64.b64encode(row.tobytes()).decode() for row in values])
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    np.testing.assert_allclose(found["matrix"], unit @ unit.T, atol=1e-6)
    pairs = [(pair["one"], pair["other"]) for pair in found["pairs"]]
    assert pairs == sorted(pairs, key=lambda pair: -(unit @ unit.T)[pair])
    assert len(pairs) == rows * (rows - 1) // 2
    centred = values - values.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    expected = (u * s)[:, :2]
    points = np.array(found["points"])
    np.testing.assert_allclose(np.abs(points[:, 0]), np.abs(expected[:, 0]), atol=1e-2)
    # The map keeps the distances of the two components, whichever way its axes point.
    np.testing.assert_allclose(
        np.linalg.norm(points[:, None] - points[None], axis=-1),
        np.linalg.norm(expected[:, None] - expected[None], axis=-1),
        atol=0.05,
    )


def test_equal_texts_have_a_map_too() -> None:
    row = base64.b64encode(np.ones(8, "<f4").tobytes()).decode()
    found = call("here", "decodeAndCompare", [row, row, row])
    assert found["points"] == [[0, 0]] * 3


@pytest.mark.parametrize("count", [2, 5, 12])
def test_groups_are_those_of_average_linkage(count: int) -> None:
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    values = np.random.default_rng(SEED + count).normal(size=(40, 12))
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    matrix = unit @ unit.T
    np.fill_diagonal(matrix, 1)
    distances = squareform(1 - matrix, checks=False)
    labels = fcluster(linkage(distances, "average"), count, "maxclust")
    expected = {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels)}
    found = call("vectors.js", "findGroups", matrix.tolist(), count)
    assert {frozenset(group) for group in found} == expected
    assert [len(group) for group in found] == sorted((len(group) for group in found), reverse=True)
    for group in found:
        assert group[0] == max(group, key=lambda row: matrix[row, group].sum())


@pytest.mark.parametrize("count", [2, 5, 12])
def test_the_members_of_every_group_follow_each_other_in_the_heat_map(count: int) -> None:
    values = np.random.default_rng(SEED).normal(size=(40, 12))
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    matrix = (unit @ unit.T).tolist()
    order = call("vectors.js", "orderByGroups", 40, call("vectors.js", "joinByAverage", matrix))
    assert sorted(order) == list(range(40))
    for group in call("vectors.js", "findGroups", matrix, count):
        places = sorted(order.index(row) for row in group)
        assert places == list(range(places[0], places[0] + len(group)))


def test_the_first_pairs_are_the_nearest_of_all() -> None:
    matrix = np.random.default_rng(SEED).uniform(-1, 1, size=(30, 30))
    matrix = (matrix + matrix.T) / 2
    every = call("vectors.js", "nearestPairs", matrix.tolist())
    assert call("vectors.js", "topPairs", matrix.tolist(), 7) == every[:7]
    assert call("vectors.js", "topPairs", matrix[:2, :2].tolist(), 7) == every[:0] + call(
        "vectors.js", "nearestPairs", matrix[:2, :2].tolist()
    )


def test_points_of_a_map_do_not_cover_each_other() -> None:
    points = np.random.default_rng(SEED).uniform(40, 60, size=(30, 2)).tolist() + [[50.0, 50.0]] * 3
    found = np.array(call("point_layout.js", "moveApart", points, 11, 400, 300))
    gaps = np.linalg.norm(found[:, None] - found[None], axis=-1)[~np.eye(len(points), dtype=bool)]
    assert gaps.min() > 9
    assert found.min() >= 0
    assert (found.max(axis=0) <= (400, 300)).all()


FILES = {
    "a.txt": ("one\n two \r\nthree\n", ["one", "two", "three"], None),
    "b.txt": ("one\nmore\n\ntwo\n \nthree", ["one\nmore", "two", "three"], None),
    "c.md": ("# Title\n\nA paragraph\nof two lines.", ["# Title", "A paragraph\nof two lines."], None),
    "d.csv": ('id,Text\r\n1,"a, ""b""\nc"\r\n2,d\r\n', ['a, "b"\nc', "d"], "column Text"),
    "e.csv": ("1,first text\n2,second text\n", ["first text", "second text"], "column 2"),
    "e2.csv": ("Frage;Text\nx;eins, zwei\n", ["eins, zwei"], "column Text"),
    "e3.csv": ("title\tcontent\nx\tyes, no\n", ["yes, no"], "column content"),
    "f.tsv": ("title\tcontent\nx\tyes\n", ["yes"], "column content"),
    "g.jsonl": ('{"id": 1, "text": "one"}\n{"text": "two"}\n', ["one", "two"], "key text"),
    "h.json": ('["one", "two"]', ["one", "two"], None),
    "i.JSON": ('{"data": [{"body": "one"}]}', ["one"], "key body"),
    "j.txt": ("\ufeffone", ["one"], None),
}


@pytest.mark.parametrize("name", FILES)
def test_texts_are_read_from_files(name: str) -> None:
    content, texts, source = FILES[name]
    assert call("text_files.js", "readTexts", name, content) == {"texts": texts, "source": source}


@pytest.mark.parametrize(("name", "content"), [("a.pdf", "%PDF"), ("a.csv", ""), ("noending", "x")])
def test_files_that_are_not_read_are_refused_by_name(name: str, content: str) -> None:
    with pytest.raises(AssertionError, match=f"Error: {name} (is not read here|has no texts)"):
        call("text_files.js", "readTexts", name, content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n\n{"text": ', "Line 3 is not JSON: "),
        ("a.json", "[1,", "The file is not JSON: "),
    ],
)
def test_what_is_no_json_is_told_with_its_line(name: str, content: str, message: str) -> None:
    with pytest.raises(AssertionError, match=f"Error: {message}"):
        call("text_files.js", "readTexts", name, content)


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.1234, 2, "0.12"),
        (-0.1234, 2, "\u22120.12"),
        (-0.0001, 2, "0.00"),
        (0.0, 2, "0.00"),
        (-1234.5, 1, "\u22121,234.5"),
    ],
)
def test_numbers_have_a_minus_sign_and_zero_has_none(value: float, digits: int, expected: str) -> None:
    assert call("numbers.js", "fixed", value, digits) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0.00974, "0.01"), (1.996, "2"), (0.5, "0.5"), (None, "\u2013")]
)
def test_cores_are_written_to_hundredths(value: float | None, expected: str) -> None:
    assert call("numbers.js", "hundredths", value) == expected


# A tab is in files, and => can be typed.
LABELLED = "q1\tright one\nq2 => right two\nq2\talso right\na further document\n"


def test_labelled_queries_are_read_and_measured() -> None:
    found = call("here", "readLabels", LABELLED)
    assert found["queries"] == ["q1", "q2"]
    assert found["documents"] == ["right one", "right two", "also right", "a further document"]
    assert found["right"] == [[0], [1, 2]]
    # q1 finds its answer at the second place, q2 its two at the first and third.
    measured = call("here", "measure", [[3, 0, 1, 2], [1, 3, 2, 0]], found["right"])
    assert measured["recall1"] == [0, 1 / 2]
    assert measured["recall5"] == measured["recall10"] == [1, 1]
    assert measured["reciprocal"] == [1 / 2, 1]
    ideal = 1 + 1 / np.log2(3)
    assert measured["ndcg10"] == pytest.approx([1 / np.log2(3), (1 + 1 / np.log2(4)) / ideal])


def test_intervals_and_p_values_are_those_of_the_library() -> None:
    """Of other random numbers, so they agree to what thousands of draws differ by."""
    random = np.random.default_rng(SEED)
    values = random.beta(2, 1, 120)
    others = {
        "hardly better": values + random.normal(0.01, 0.1, 120),
        "better": values + random.normal(0.03, 0.1, 120),
        "much better": values + random.normal(0.1, 0.1, 120),
        "equal": values,
    }
    expected = estimate_mean(values)
    found = call("retrieval.js", "estimateMean", values.tolist())
    assert found["mean"] == pytest.approx(expected.mean)
    assert [found["low"], found["high"]] == pytest.approx([expected.low, expected.high], abs=0.004)
    p_values = {}
    for name, other in others.items():
        p_values[name] = call("retrieval.js", "findPValue", values.tolist(), other.tolist())
        assert p_values[name] == pytest.approx(find_p_value(values, other), abs=0.03), name
    assert p_values["hardly better"] > 0.05 > p_values["better"] > p_values["much better"]
    assert p_values["equal"] == 1


def test_documents_are_ranked_by_cosine() -> None:
    random = np.random.default_rng(SEED)
    queries, documents = (
        random.normal(size=(3, 8)),
        random.normal(size=(20, 8)) * random.uniform(1, 9, (20, 1)),
    )
    unit = documents / np.linalg.norm(documents, axis=1, keepdims=True)
    expected = np.argsort(-(queries @ unit.T), axis=1).tolist()
    assert call("retrieval.js", "rankDocuments", queries.tolist(), documents.tolist()) == expected


@pytest.mark.linux
def test_the_load_is_what_happened_between_two_readings_of_the_metrics() -> None:
    with serve_in_thread() as server:
        before = server.client.get("/metrics").text
        for number in range(10):
            answer = server.client.post("/v1/embeddings", json={"input": [f"text {number}", "other"]})
            assert answer.status_code == 200
        assert server.client.post("/v1/embeddings", json={"input": 5}).status_code == 400
        after = server.client.get("/metrics").text
    (route,) = call("here", "readRoutes", before, after)
    assert (route["route"], route["requests"]) == ("embeddings", 11)
    assert route["statuses"] == {"200": 10, "400": 1}
    assert 0 < route["latencies"][0] <= route["latencies"][1] < 5
    assert call("here", "readRoutes", after, after) == []
    load = call("here", "readLoad", before, after, 2.0)
    assert load["statuses"] == {"200": 5.0, "400": 0.5}
    assert (load["answered"], load["refused"], load["failed"]) == (5.0, 0.0, 0.5)
    assert 0 < load["texts"] <= 10
    assert load["queueTexts"] == 0
    assert load["lanes"] >= 1
    assert load["memory"] > 1e6
    assert 0 < load["latencies"][0] <= load["latencies"][2] < 5
    assert load["sentence"].startswith("Nothing is at its limit: engine calls run ")
    assert call("here", "readLoad", after, after, 2.0)["sentence"].startswith("Nothing to do")


def test_what_the_page_itself_asks_for_is_no_load() -> None:
    with serve_in_thread() as server:
        paths = [route.path for route in list_routes(server.service)]
        own = [path for path in paths if path.startswith(("/console", "/docs", "/openapi", "/metrics"))]
        before = server.client.get("/metrics").text
        for path in own:
            server.client.get(path)
        server.client.get("/v1/embedings")
        (found,) = call("here", "readRoutes", before, server.client.get("/metrics").text)
    assert len(own) >= 6
    assert (found["route"], found["statuses"]) == ("none", {"404": 1})


READING = """\
process_start_time_seconds{{process="a"}} {0}
process_start_time_seconds{{process="b"}} 1
vecmill_http_requests_total{{process="a",route="embeddings",status="200"}} {1}
vecmill_http_requests_total{{process="b",route="embeddings",status="200"}} {2}
vecmill_http_request_duration_seconds_bucket{{process="a",route="embeddings",le="0.01"}} {1}
vecmill_http_request_duration_seconds_bucket{{process="a",route="embeddings",le="+Inf"}} {1}
"""


def test_a_process_that_is_missing_in_a_reading_was_not_idle_before() -> None:
    both, later = READING.format(1, 1_000_000, 2_000_000), READING.format(1, 1_000_010, 2_000_020)
    first = "".join(line for line in both.splitlines(keepends=True) if 'process="b"' not in line)
    assert call("here", "readLoad", both, later, 10.0)["answered"] == 3
    assert call("here", "readLoad", first, later, 10.0)["answered"] == 1
    assert call("here", "readLoad", later, first, 10.0)["answered"] == 100_000  # it fell, so it began again
    assert call("here", "wasRestarted", both, later) is call("here", "wasRestarted", first, later) is False
    replaced = READING.format(9, 5, 2_000_000)
    assert call("here", "wasRestarted", both, replaced) is True
    assert call("here", "readLoad", both, replaced, 1.0)["answered"] == 5
    assert call("here", "readLoad", both, replaced, 1.0)["latencies"][0] == pytest.approx(0.005)


def test_the_load_of_one_model_is_that_of_its_engine() -> None:
    lines = (
        'vecmill_batch_texts_sum{{model="a"}} {0}',
        'vecmill_batch_texts_sum{{model="b"}} {1}',
        'vecmill_queue_texts{{model="a"}} 3',
        'vecmill_queue_texts{{model="b"}} 4',
        'vecmill_queue_seconds{{model="a"}} 0.5',
        'vecmill_queue_seconds{{model="b"}} 0.25',
        'vecmill_queue_wait_seconds_sum{{model="a"}} {0}',
        'vecmill_queue_wait_seconds_sum{{model="b"}} {1}',
        'vecmill_queue_wait_seconds_count{{model="a"}} {1}',
        'vecmill_queue_wait_seconds_count{{model="b"}} {1}',
        'vecmill_queue_wait_seconds_bucket{{model="a",le="0.01"}} {0}',
        'vecmill_queue_wait_seconds_bucket{{model="b",le="0.01"}} 0',
        'vecmill_queue_wait_seconds_bucket{{model="b",le="0.1"}} {1}',
        'vecmill_lane_state{{model="a",lane="0",state="idle"}} 1',
        'vecmill_lane_state{{model="b",lane="0",state="idle"}} 1',
        'vecmill_lane_state{{model="b",lane="1",state="idle"}} 1',
        'vecmill_http_requests_total{{route="embeddings",status="200"}} {0}',
    )
    before, after = ("\n".join(lines).format(*counts) for counts in ((0, 0), (10, 30)))
    whole, one = (call("here", "readLoad", before, after, 10.0, model) for model in (None, "b"))
    assert (whole["texts"], whole["queueTexts"], whole["lanes"]) == (4, 7, 2)
    assert (one["texts"], one["queueTexts"], one["lanes"]) == (3, 4, 2)
    assert whole["answered"] == one["answered"] == 1
    # The parts of the models add up, and the measured wait is that of all texts.
    assert (whole["queueSeconds"], one["queueSeconds"]) == (0.75, 0.25)
    assert (whole["meanWait"], one["meanWait"]) == (pytest.approx(40 / 60), 1)
    assert one["waits"][0] == pytest.approx(0.055)
    assert whole["waits"][0] < one["waits"][0]


def test_processes_compute_side_by_side() -> None:
    lines = (f'vecmill_queue_seconds{{model="{m}",process="{p}"}} {s}' for m, p, s in QUEUES)
    page = "\n".join(lines)
    assert call("here", "readLoad", page, page, 10.0)["queueSeconds"] == pytest.approx(1.5)
    assert call("here", "readLoad", page, page, 10.0, "a")["queueSeconds"] == pytest.approx(1.0)


QUEUES = (("a", 0, 0.5), ("a", 1, 1.5), ("b", 0, 0.25), ("b", 1, 0.75))


def test_a_history_is_read_as_the_readings_that_it_was_made_of() -> None:
    first, later = 'a{x="1"} 5\nb 6', 'a{x="1"} 7'
    history = [{"age_s": 10, "metrics": first}, {"age_s": 5, "metrics": later}, {"age_s": 1, "metrics": ""}]
    found = call("here", "readPast", history)
    assert [each["ageS"] for each in found] == [10, 5, 1]
    assert [each["values"] for each in found] == [{"a": 5, "b": 6}, {"a": 7, "b": 6}, {"a": 7, "b": 6}]
    # A model that was unloaded has no series any more.
    unloaded = [*history, {"age_s": 0, "metrics": 'a{x="1"} gone'}]
    assert call("here", "readPast", unloaded)[-1]["values"] == {"b": 6}


def test_the_sentence_names_the_limit() -> None:
    load: dict[str, Any] = {
        "cores": 1.9,
        "isOnProcessor": True,
        "answered": 90,
        "refused": 0,
        "failed": 0,
        "running": 1.95,
        "lanes": 2,
        "queueTexts": 12,
        "queueSeconds": 0.04,
        "rejections": [],
    }
    assert call("load.js", "explainLimit", load) == (
        "The engine is the limit: engine calls run 1.95 at a time, of at most 2; "
        "12 texts wait, for about 40 ms."
    )
    assert call("load.js", "explainLimit", {**load, "running": 0, "lanes": 0}).startswith("Nothing is at")
    beside = {**load, "cores": 0.65}
    assert call("load.js", "explainLimit", beside).startswith(
        "Other processes use the machine: calls run at a third of a core; engine calls run 1.95 at a time"
    )
    # A GPU computes without the processor.
    assert call("load.js", "explainLimit", {**beside, "isOnProcessor": False}).startswith("The engine is")
    refusing = {**load, "refused": 10, "rejections": [["queue_full", 10]]}
    assert call("load.js", "explainLimit", refusing).startswith(
        "The server refuses 10% of the requests (queue full): engine calls run 1.95 at a time"
    )


def test_a_server_that_computes_has_something_to_do() -> None:
    """A long request, or the lines of a batch: no request has ended, but engine calls run."""
    load: dict[str, Any] = {
        "answered": 0,
        "refused": 0,
        "failed": 0,
        "running": 0,
        "lanes": 2,
        "queueTexts": 0,
        "cores": 0,
    }
    load |= {"queueSeconds": 0, "rejections": [], "isOnProcessor": True}
    assert call("load.js", "explainLimit", load).startswith("Nothing to do")
    for busy in ({"running": 1.9, "cores": 1.9}, {"queueTexts": 3, "queueSeconds": 1}):
        assert "Nothing to do" not in call("load.js", "explainLimit", {**load, **busy})


def test_the_parts_of_the_models_are_named_beside_the_sentence() -> None:
    server = {"running": 2, "queueTexts": 5}
    loads = [
        ["a", {"running": 0.5, "queueTexts": 4, "queueSeconds": 0.3}],
        ["b", {"running": 1.5, "queueTexts": 1, "queueSeconds": 1.5}],
        ["c", {"running": 0, "queueTexts": 0, "queueSeconds": 0}],
    ]
    assert call("load.js", "explainParts", server, loads, "") == (
        "Engine time by model: b 75% (1 text, 1.5 s of the wait), a 25% (4 texts, 300 ms of the wait), c 0%."
    )
    assert call("load.js", "explainParts", server, loads, "c").startswith("Engine time by model: c 0%, b 75%")
    assert call("load.js", "explainParts", server, loads[:1], "") == ""
    many = [[f"model-{number}", loads[0][1]] for number in range(30)]
    assert call("load.js", "explainParts", server, many, "").endswith(
        "model-3 3.33% (4 texts, 300 ms of the wait), …."
    )


def test_saved_tables_are_read_back_and_are_no_formulas() -> None:
    rows = [["text", "score"], [HOSTILE, 0.5], ["=1+1", -2], ['a,"b"\nc', 1e-7]]
    text = call("take_away.js", "writeCsv", rows)
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert found[1] == [HOSTILE, "0.5"]
    assert found[2] == ["'=1+1", "-2"]
    assert found[3] == ['a,"b"\nc', "1e-7"]


def test_the_snippets_are_answered() -> None:
    json = {"model": MODEL, "input": [HOSTILE, "plain"], "input_type": "query", "dimensions": 8}
    with serve_in_thread() as server:
        base = f"http://127.0.0.1:{server.port}/"
        snippets = call("snippets.js", "writeSnippets", "embed", "v1/embeddings", json, base)
        expected = httpx.post(f"{base}v1/embeddings", json=json).json()["data"]
        shell = subprocess.run(["sh", "-c", snippets["curl"]], capture_output=True, check=True, timeout=30)
        script = subprocess.run(
            [str(NODE), "--input-type=module", "-e", snippets["JavaScript"]],
            capture_output=True,
            check=True,
            timeout=30,
        )
    assert json_module.loads(shell.stdout)["data"] == expected
    assert b"embedding" in script.stdout


@pytest.mark.parametrize("kind", ["embed", "rerank", "classify", "entities"])
def test_the_programs_are_valid_python(kind: str) -> None:
    json = {
        "model": "m",
        "input": [HOSTILE],
        "query": HOSTILE,
        "documents": [HOSTILE, "b"],
        "normalize": False,
    }
    for needs_key in (False, True):
        snippets = call("snippets.js", "writeSnippets", kind, "x", json, "http://h/", needs_key=needs_key)
        for language in ("Python (openai)", "LangChain"):
            if language in snippets:
                tree = ast.parse(snippets[language])
                texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
                assert HOSTILE in texts
        assert shlex.split(snippets["curl"])[0] == "curl"
        assert all(("YOUR_KEY" in text) is needs_key for text in snippets.values())


def test_the_page_writes_no_markup_and_asks_no_other_host() -> None:
    for file in ASSETS.rglob("*"):
        if file.is_file() and "uplot" not in file.parts:
            text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
            for word in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "http:",
                "https:",
            ):
                assert word not in text, f"{file.name} has {word}"

"""What the pictures of results compute: scales of colours, the map, words of entities, files of batches."""

import json
import re
from typing import Any

import numpy as np
import pytest

from console.page_modules import ASSETS, call

SEED = 20_261_128
STEPS = 11
HEX = re.compile(r"\.(heat|difference)-(\d+) \{ --cell: (#\w{6}); --cell-ink: (#\w{6}); \}")
COLOUR = re.compile(r"--([\w-]+): (#\w{6});")


def read_scales() -> list[dict[str, list[tuple[str, str]]]]:
    """The cells and inks of each scale, in the light scheme and in the dark one."""
    css = (ASSETS / "results.css").read_text("utf-8")
    found = HEX.findall(css)
    scales: list[dict[str, list[tuple[str, str]]]] = [{}, {}]
    for place, (name, step, cell, ink) in enumerate(found):
        scheme = scales[place >= 2 * STEPS]
        scheme.setdefault(name, []).append((cell, ink))
        assert len(scheme[name]) == int(step) + 1
    assert len(found) == 4 * STEPS
    return scales


def linear(colour: str) -> np.ndarray:
    """The linear red, green and blue of a colour, from 0 to 1."""
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lightness(colour: str) -> float:
    """The lightness of OKLab, from 0 to 1 (Ottosson, 2020)."""
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    cones = np.cbrt(np.array(to_cones) @ linear(colour))
    return float(cones @ [0.2104542553, 0.7936177850, -0.0040720468])


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2 defines it."""
    low, high = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_equal_steps_of_a_scale_look_equal_and_are_readable(scheme: int) -> None:
    scales = read_scales()[scheme]
    for name, cells in scales.items():
        for cell, ink in cells:
            assert contrast(cell, ink) >= 4.5, f"{name} {cell}"
    steps = np.diff([lightness(cell) for cell, _ in scales["heat"]])
    assert len(set(np.sign(steps))) == 1
    assert np.abs(steps).min() > 0.8 * np.abs(steps).mean()
    # The most similar is far from the page, whose colour is light in one scheme and dark in the other.
    assert (steps[0] < 0) == (scheme == 0)
    both = [lightness(cell) for cell, _ in scales["difference"]]
    np.testing.assert_allclose(both, both[::-1], atol=0.02)
    assert both.index(max(both) if scheme == 0 else min(both)) == STEPS // 2


def test_every_text_has_a_contrast_with_its_background_in_both_schemes() -> None:
    css = (ASSETS / "console.css").read_text("utf-8")
    light, dark = css.split("@media (prefers-color-scheme: dark)")[:2]
    for block in (light, dark.split("\n}\n")[0]):
        colours = dict(COLOUR.findall(block))
        grounds = [colours[name] for name in ("ground", "paper", "panel")]
        inks = ["ink", "faint", "accent", "problem", *[name for name in colours if "series" in name]]
        for ink in inks:
            for ground in grounds:
                assert contrast(colours[ink], ground) >= 4.5, f"{ink} on {ground}"
        for ink, ground in (
            ("on-accent", "accent"),
            ("accent", "accent-pale"),
            ("problem", "problem-pale"),
            ("wait", "wait-pale"),
            ("ink", "mark"),
            ("ink", "accent-pale"),
        ):
            assert contrast(colours[ink], colours[ground]) >= 4.5, f"{ink} on {ground}"
        # What is no text has at least 3: points, borders of fields.
        for ink in [name for name in colours if "group" in name] + ["faint"]:
            assert contrast(colours[ink], colours["panel"]) >= 3, ink


def test_two_matrices_share_a_scale_and_zero_is_the_middle_of_a_difference() -> None:
    one, other = [[9.0, 0.2], [0.2, 9.0]], [[-9.0, -0.1], [0.6, -9.0]]
    assert call("heat_map.js", "rangeOf", one, other) == [-0.1, 0.6]
    steps = [call("heat_map.js", "stepOf", value, [-0.4, 0.4]) for value in (-0.4, -0.01, 0, 0.01, 0.4, 9)]
    assert steps == [0, 5, 5, 5, 10, 10]
    assert call("heat_map.js", "stepOf", 0.5, [0.5, 0.5]) == 0  # equal texts have no range


WHOLE = {"x": 0, "y": 0, "zoom": 1}


def test_a_zoom_keeps_the_point_under_the_pointer_and_stays_on_the_map() -> None:
    view = call("map_view.js", "zoomAt", WHOLE, 4, 140, 90)
    assert view == {"x": 105, "y": 67.5, "zoom": 4}
    # The share of the window that is left of the point is the same as before.
    assert (140 - view["x"]) / (560 / 4) == 140 / 560
    assert call("map_view.js", "zoomAt", view, 0.01) == WHOLE
    assert call("map_view.js", "zoomAt", WHOLE, 1e9)["zoom"] == 40
    assert call("map_view.js", "moveBy", view, 1e9, -1e9) == {"x": 420, "y": 0, "zoom": 4}
    assert call("map_view.js", "moveTo", view, [110, 80]) == {"x": 40, "y": 67.5, "zoom": 4}


def test_the_arrow_keys_lead_to_the_nearest_point_of_a_direction() -> None:
    places = [[100, 100], [140, 105], [120, 190], [20, 100], [101, 30]]
    found = [call("map_view.js", "nextPoint", places, 0, way) for way in ([1, 0], [0, 1], [-1, 0], [0, -1])]
    assert found == [1, 2, 3, 4]
    assert call("map_view.js", "nextPoint", places, 3, [-1, 0]) is None


def boxes(labels: list[dict[str, Any]], places: list[list[float]], texts: list[str]) -> np.ndarray:
    """Left, top, right and bottom of labels beside their points, narrower than the page takes them to be."""
    found = []
    for label in labels:
        x, y = places[label["place"]]
        width, gap = 6 * len(texts[label["place"]]), 5 + 4
        left, top = {
            "right": (x + gap, y - 6),
            "left": (x - gap - width, y - 6),
            "above": (x - width / 2, y - gap - 12),
            "below": (x - width / 2, y + gap),
        }[label["side"]]
        found.append((left, top, left + width, top + 12))
    return np.array(found)


def test_labels_of_a_map_cover_neither_each_other_nor_a_point() -> None:
    random = np.random.default_rng(SEED)
    places = random.uniform((20, 20), (540, 340), size=(60, 2)).tolist()
    texts = [f"label {number}" for number in range(60)]
    labels = call("map_view.js", "placeLabels", places, list(range(60)), texts, WHOLE, 1, 5, 0)
    assert 5 < len(labels) <= 24
    found = boxes(labels, places, texts)
    for place, box in enumerate(found):
        others = np.delete(found, place, axis=0)
        is_apart = (others[:, 2] <= box[0]) | (others[:, 0] >= box[2]) | (others[:, 3] <= box[1])
        assert (is_apart | (others[:, 1] >= box[3])).all()
        points = np.array(places)
        inside = (points > box[:2]).all(axis=1) & (points < box[2:]).all(axis=1)
        assert not inside.any()
    # A closer look has room for others.
    view = call("map_view.js", "zoomAt", WHOLE, 8, *places[0])
    closer = call("map_view.js", "placeLabels", places, list(range(60)), texts, view, 1 / 8, 5 / 8, 0)
    assert 0 in [each["place"] for each in closer]
    # One that must be there may cover points.
    crowd = [[200 + 6 * (n % 20), 100 + 6 * (n // 20)] for n in range(300)]
    names = ["a label"] * 300
    assert call("map_view.js", "placeLabels", crowd, [150], names, WHOLE, 1, 5, 0) == []
    assert len(call("map_view.js", "placeLabels", crowd, [150], names, WHOLE, 1, 5, 1)) == 1


def tokens(*parts: tuple[str, int, int, float]) -> list[dict[str, Any]]:
    return [
        {"entity": label, "start": start, "end": end, "score": score} for label, start, end, score in parts
    ]


MICROSOFT = "Microsoft company"


@pytest.mark.parametrize(
    ("text", "labelled", "strategy", "expected"),
    [
        # Of transformers' own example: micro|soft| com|pany| B-ENT I-NAME I-ENT I-ENT.
        (
            MICROSOFT,
            tokens(
                ("B-ENT", 0, 5, 0.9), ("I-NAME", 5, 9, 0.95), ("I-ENT", 10, 13, 0.7), ("I-ENT", 13, 17, 0.8)
            ),
            "first",
            [("ENT", 0, 17, 0.8)],
        ),
        (
            MICROSOFT,
            tokens(
                ("B-ENT", 0, 5, 0.9), ("I-NAME", 5, 9, 0.95), ("I-ENT", 10, 13, 0.7), ("I-ENT", 13, 17, 0.8)
            ),
            "max",
            [("NAME", 0, 9, 0.95), ("ENT", 10, 17, 0.8)],
        ),
        # The first token of the word has no label.
        ("unhappy", tokens(("I-LOC", 2, 7, 0.6)), "first", []),
        ("unhappy", tokens(("I-LOC", 2, 7, 0.6)), "max", [("LOC", 0, 7, 0.6)]),
        # A label that begins an entity ends the one before, and so does a word without a label.
        (
            "A B",
            tokens(("B-PER", 0, 1, 1), ("B-PER", 2, 3, 1)),
            "first",
            [("PER", 0, 1, 1), ("PER", 2, 3, 1)],
        ),
        (
            "A x B",
            tokens(("I-PER", 0, 1, 1), ("I-PER", 4, 5, 1)),
            "first",
            [("PER", 0, 1, 1), ("PER", 4, 5, 1)],
        ),
        # Places count characters, of which an emoji is one. Signs are words.
        (
            "🎉🎉 Zoë, 漢",
            tokens(("LOC", 3, 5, 0.5), ("LOC", 8, 9, 0.7)),
            "first",
            [("LOC", 3, 6, 0.5), ("LOC", 8, 9, 0.7)],
        ),
        (
            "سارة في لندن",
            tokens(("PER", 0, 2, 1), ("LOC", 8, 12, 1)),
            "first",
            [("PER", 0, 4, 1), ("LOC", 8, 12, 1)],
        ),
        # A token of sentencepiece begins with the space before its word.
        ("in Rome", tokens(("LOC", 2, 7, 1)), "first", [("LOC", 3, 7, 1)]),
    ],
)
def test_labels_of_tokens_become_entities_of_words(
    text: str, labelled: list[dict[str, Any]], strategy: str, expected: list[tuple[str, int, int, float]]
) -> None:
    found = call("words.js", "joinWords", text, labelled, strategy)
    assert [(each["entity_group"], each["start"], each["end"]) for each in found] == [
        each[:3] for each in expected
    ]
    assert [each["score"] for each in found] == pytest.approx([each[3] for each in expected])
    assert [each["word"] for each in found] == [text[each["start"] : each["end"]] for each in found]


def test_texts_become_requests_of_the_batch_api() -> None:
    lines = call("batch_file.js", "writeRequests", ['a "text"\n', "漢 🎉"], ["x", "y"], "m").splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "custom_id": "x",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "m", "input": 'a "text"\n'},
        },
        {
            "custom_id": "y",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "m", "input": "漢 🎉"},
        },
    ]


@pytest.mark.parametrize(
    ("name", "content", "texts", "ids"),
    [
        ("a.csv", "id,text\n7,one\n8,\n9,two\n", ["one", "two"], ["7", "9"]),
        ("b.csv", "id;text\n7;one\n7;two\n", ["one", "two"], ["1", "2"]),  # none twice
        ("c.txt", "\ufeffone\r\n\r\ntwo\r\n", ["one", "two"], ["1", "2"]),
        ("d.jsonl", '{"_id": 5, "text": "one"}\n{"_id": 6, "text": "two"}\n', ["one", "two"], ["5", "6"]),
        ("e.csv", f"id,text\n{'x' * 513},one\n", ["one"], ["1"]),  # longer than the API takes
    ],
)
def test_a_file_of_texts_is_read_for_a_batch(
    name: str, content: str, texts: list[str], ids: list[str]
) -> None:
    found = call("here", "readForBatch", name, content)
    assert (found["texts"], found["ids"]) == (texts, ids)
    assert found["note"].startswith(f"{len(texts)} text{'' if len(texts) == 1 else 's'}")


@pytest.mark.parametrize(
    "content",
    ['{"custom_id": "a", "method": "POST"}\n', "{}", "no json", '{"body": {"input": "a"}, "text": "b"}'],
)
def test_a_file_of_requests_is_sent_as_it_is(content: str) -> None:
    assert call("here", "readForBatch", "a.jsonl", content) == {"file": "a.jsonl", "note": None}


def test_a_file_that_a_batch_cannot_take_is_refused_before_it_is_read() -> None:
    for name, size, message in (
        ("a.csv", 2**26 + 1, "larger than 64 MB"),
        ("a.pdf", 5, "is not read here"),
    ):
        with pytest.raises(AssertionError, match=message):
            call("here", "readForBatch", name, "x" * 5, size)
    with pytest.raises(AssertionError, match="has 50,001 texts, and a batch at most 50,000 requests"):
        call("here", "readForBatch", "a.txt", "x\n" * 50_001)


def test_equal_errors_of_a_batch_are_one() -> None:
    def line(custom_id: str, message: str) -> str:
        response = {"status_code": 400, "body": {"error": {"message": message}}}
        return json.dumps({"custom_id": custom_id, "response": response, "error": None})

    dropped = {"custom_id": "z", "response": None, "error": {"code": "c", "message": "It was cancelled."}}
    content = "\n".join(
        [
            line("a", "<b>too long</b>"),
            json.dumps(dropped),
            *[line(str(n), "wrong") for n in range(9)],
            '{"cut',
        ]
    )
    assert call("batch_file.js", "sumUpErrors", content) == [
        {"message": "wrong", "status": 400, "total": 9, "ids": ["0", "1", "2", "3", "4"]},
        {"message": "<b>too long</b>", "status": 400, "total": 1, "ids": ["a"]},
        {"message": "It was cancelled.", "status": None, "total": 1, "ids": ["z"]},
    ]
    assert call("batch_file.js", "sumUpErrors", "\n\nnull\n5\n") == []


def test_the_state_of_a_server_that_loads_is_no_problem() -> None:
    def describe(status: str, *states: str) -> tuple[str, str]:
        models = [{"name": f"m{number}", "state": state} for number, state in enumerate(states)]
        found = call("server_state.js", "describeState", {"status": status, "models": models})
        return found["kind"], found["text"]

    assert describe("loading", "ready", "loading", "loading") == ("loading", "1 of 3 models ready")
    assert describe("ready", "ready", "not_loaded") == ("ready", "ready")
    assert describe("ready", "ready", "failed") == ("problem", "ready, without m1")
    assert describe("lost", "lost") == ("problem", "the server is lost, without m0")
    assert call("server_state.js", "describeState", None)["kind"] == "problem"

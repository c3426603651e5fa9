"""Zero-shot classification over HTTP: at `/classify`, as Jina's API, and as Hugging Face's clients ask."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.http_server import post
from support.picture_server import CLIP, FILES, TEXT, TEXTS_ALONE, URIS, near, serve_pictures
from vecmill import ClassifyByLabels, MillConfig, Picture, SyncMill
from vecmill.values.aliases import FloatArray


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    with serve_pictures(tmp_path_factory.mktemp("pictures")) as found:
        yield found


@pytest.fixture
def client(server: tuple[httpx.Client, Path]) -> httpx.Client:
    return server[0]


LABELS = ["cat", "dog", "the"]


@pytest.fixture(scope="module")
def scores(server: tuple[httpx.Client, Path], tmp_path_factory: pytest.TempPathFactory) -> FloatArray:
    """The scores of `LABELS` for `FILES` and then `TEXT`, by the library."""
    inputs: tuple[Picture | str, ...] = (*map(Picture, FILES), TEXT)
    with SyncMill(server[1], MillConfig(cache_dir=tmp_path_factory.mktemp("cache"))) as mill:
        return mill.run(ClassifyByLabels(inputs, tuple(LABELS), "a {}")).scores


def test_candidate_labels_at_classify(client: httpx.Client, scores: FloatArray) -> None:
    inputs = [*({"image": each} for each in URIS), TEXT]
    asked: dict[str, Any] = {
        "model": CLIP,
        "input": inputs,
        "candidate_labels": LABELS,
        "hypothesis_template": "a {}",
    }
    for path in ("/classify", "/v1/classify", "/invocations"):
        answer = post(client, path, **asked)
        assert near([each["probs"] for each in answer["data"]], scores)
        best = [LABELS[index] for index in scores.argmax(axis=1)]
        assert [each["label"] for each in answer["data"]] == best
    assert near(
        [
            each["probs"]
            for each in post(client, "/classify", **{**asked, "input": list(URIS)}, modality="image")["data"]
        ],
        scores[:3],
    )


def test_jina_s_labels(client: httpx.Client, scores: FloatArray) -> None:
    asked: dict[str, Any] = {"model": CLIP, "input": [{"image": URIS[0]}, {"text": "cat"}], "labels": LABELS}
    first, second = post(client, "/v1/classify", **asked)["data"]
    assert first["prediction"] == first["predictions"][0]["label"]
    assert first["score"] == first["predictions"][0]["score"]
    assert {each["label"] for each in second["predictions"]} == set(LABELS)
    error = post(client, "/v1/classify", status=400, **{**asked, "labels": ["a" * 9_000] * 400})["error"]
    assert error["param"] == "labels"


@pytest.mark.parametrize("path", ["/", "/classify", "/invocations"])
def test_hugging_face_s_zero_shot_classification(client: httpx.Client, scores: FloatArray, path: str) -> None:
    parameters = {"candidate_labels": LABELS, "hypothesis_template": "a {}"}
    for place, value in ((0, base64.b64encode(FILES[0]).decode()), (1, URIS[1]), (3, TEXT)):
        answer = client.post(path, json={"model": CLIP, "inputs": value, "parameters": parameters}).json()
        found = {each["label"]: each["score"] for each in answer}
        assert near([found[label] for label in LABELS], scores[place])
        assert [each["score"] for each in answer] == sorted(found.values(), reverse=True)
    answer = client.post(path, json={"model": CLIP, "inputs": {"image": URIS[2]}, "parameters": parameters})
    assert near({each["label"]: each["score"] for each in answer.json()}["cat"], scores[2, 0])


def test_vertex_has_it_too(client: httpx.Client, scores: FloatArray) -> None:
    instances = [{"inputs": each} for each in URIS]
    parameters = {"candidate_labels": LABELS, "hypothesis_template": "a {}"}
    answer = post(client, "/vertex", model=CLIP, instances=instances, parameters=parameters)
    found = [{each["label"]: each["score"] for each in one} for one in answer["predictions"]]
    assert near([[one[label] for label in LABELS] for one in found], scores[:3])


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/classify", {"input": "a", "candidate_labels": []}, "`candidate_labels`"),
        ("/classify", {"input": "a", "candidate_labels": ["a", 7]}, "`candidate_labels[1]`"),
        (
            "/classify",
            {"input": "a", "candidate_labels": ["a"], "hypothesis_template": "b"},
            "`hypothesis_template` must have {}",
        ),
        ("/classify", {"input": [[1, 2]], "candidate_labels": ["a"]}, "input"),
        ("/classify", {"input": [{"image": "%"}], "candidate_labels": ["a"]}, "`input[0].image`"),
        ("/", {"inputs": "a", "parameters": {"candidate_labels": "a"}}, "`candidate_labels`"),
        ("/", {"inputs": ["a"], "parameters": {"candidate_labels": ["a"]}}, "Send one in each request"),
        (
            "/",
            {"inputs": "a", "parameters": {"candidate_labels": ["a"], "multi_label": True}},
            "`multi_label`",
        ),
        (
            "/",
            {"inputs": "https://example.org/a.png", "parameters": {"candidate_labels": ["a"]}},
            "`inputs` is a URL",
        ),
        ("/classify", {"inputs": "a"}, "`candidate_labels` is required"),
    ],
    ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else value,
)
def test_labels_that_are_wrong_are_named(
    client: httpx.Client, path: str, body: dict[str, Any], message: str
) -> None:
    answer = client.post(path, json={"model": CLIP, **body})
    assert answer.status_code in (400, 422)
    assert message in answer.text


def test_a_text_model_judges_texts_by_labels(client: httpx.Client) -> None:
    answer = post(client, "/classify", model=TEXTS_ALONE, input=["a", "b"], candidate_labels=["a", "b"])
    assert [each["num_classes"] for each in answer["data"]] == [2, 2]
    error = post(client, "/classify", status=400, model=TEXTS_ALONE, input="a")["error"]
    assert "cannot classify texts" in error["message"]

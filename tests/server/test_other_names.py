"""A field that has several names: the first one counts, and a mistake in any of them is refused."""

from typing import Any

import pytest

from vecmill.errors import RequestError
from vecmill.models import Task
from vecmill_server.dialects.cohere import CohereEmbedRequest, CohereEmbedV1Request
from vecmill_server.dialects.dialect import InferenceBody
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.hugging_face import VertexRequest
from vecmill_server.dialects.predict_body import PredictRequest
from vecmill_server.dialects.score_and_classify_bodies import ScoreRequest
from vecmill_server.dialects.tei_bodies import EmbedAllRequest
from vecmill_server.dialects.token_ids import refuse_ids

OPTIONS = DialectOptions(refuse_ids, lambda _name, _tasks=(), /: Task.EMBED)
TEXT = {"input": "a"}
SCORE = {"queries": "a", "documents": "b"}


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (EmbeddingsRequest, {**TEXT, "truncate": True, "truncation": "sometimes"}, "truncation"),
        (
            EmbeddingsRequest,
            {**TEXT, "truncation_direction": "left", "truncation_side": 1},
            "truncation_side",
        ),
        (EmbeddingsRequest, {**TEXT, "normalize": True, "normalized": "maybe"}, "normalized"),
        (EmbeddingsRequest, {**TEXT, "dimensions": 8, "output_dimension": -1}, "output_dimension"),
        (EmbeddingsRequest, {**TEXT, "output_dtype": "int8", "embedding_type": "int4"}, "embedding_type"),
        (EmbeddingsRequest, {**TEXT, "embedding_type": "int8", "encoding_type": []}, "encoding_type"),
        (EmbeddingsRequest, {**TEXT, "task": "query", "input_type": "nothing"}, "input_type"),
        (CohereEmbedRequest, {"texts": ["a"], "inputs": [{"content": []}]}, "inputs[0]"),
        (CohereEmbedV1Request, {"texts": ["a"], "inputs": []}, "inputs"),
        (ScoreRequest, {**SCORE, "text_1": 1}, "text_1"),
        (ScoreRequest, {**SCORE, "data_2": []}, "data_2"),
        (ScoreRequest, {**SCORE, "raw_scores": True, "use_activation": 1}, "use_activation"),
        (EmbedAllRequest, {"inputs": "a", "prompt_name": "query", "prompt": 1}, "prompt"),
        (PredictRequest, {"inputs": "a", "truncate": True, "parameters": {"truncate": 1}}, "truncate"),
        (PredictRequest, {"inputs": "a", "parameters": "none"}, "parameters"),
        (
            VertexRequest,
            {"instances": [{"inputs": "a"}], "parameters": []},
            "parameters",
        ),
    ],
)
def test_a_mistake_is_refused_though_another_name_goes_before(
    kind: type[InferenceBody], body: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError) as caught:
        kind.parse(body, OPTIONS)
    assert caught.value.field == field


def read(kind: type[InferenceBody], body: dict[str, Any]) -> Any:
    return kind.parse(body, OPTIONS).request


def test_the_first_name_counts() -> None:
    names = {
        "truncate": False,
        "truncation": True,
        "truncation_direction": "left",
        "truncation_side": "right",
    }
    request: Any = EmbeddingsRequest.parse(
        {**TEXT, **names, "normalize": True, "normalized": False}, OPTIONS
    ).request
    assert request.options.truncation.is_refused
    assert request.options.truncation.keeps_end
    assert request.normalize is True


def test_null_leaves_the_word_to_the_next_name() -> None:
    names = {"truncate": None, "truncation": False, "dimensions": 0, "output_dimension": 8, "task": None}
    request: Any = read(EmbeddingsRequest, {**TEXT, **names, "input_type": "query"})
    assert request.options.truncation.is_refused
    assert request.dimensions == 8
    assert request.options.purpose == "query"


def test_what_the_body_says_goes_before_its_parameters_and_null_says_nothing() -> None:
    parameters = {"raw_scores": True, "truncate": False}
    request: Any = PredictRequest.parse(
        {"inputs": "a", "raw_scores": False, "parameters": parameters}, OPTIONS
    ).request
    assert not request.raw_scores
    request = PredictRequest.parse(
        {"inputs": "a", "raw_scores": None, "parameters": parameters}, OPTIONS
    ).request
    assert request.raw_scores
    assert request.options.truncation.is_refused

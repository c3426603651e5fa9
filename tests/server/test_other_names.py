"""A field that has several names: the first one counts, and a mistake in any of them is refused."""

from typing import Any

import pytest

from vecmill.errors import RequestError
from vecmill.models import Task
from vecmill_server.dialects import Dialect, DialectOptions, cohere, tei, vllm
from vecmill_server.dialects.hugging_face import vertex_dialect
from vecmill_server.dialects.openai import EMBEDDINGS
from vecmill_server.dialects.predict import PREDICT
from vecmill_server.token_ids import refuse_ids

OPTIONS = DialectOptions(refuse_ids)
TEXT = {"input": "a"}
SCORE = {"queries": "a", "documents": "b"}


@pytest.mark.parametrize(
    ("dialect", "body", "field"),
    [
        (EMBEDDINGS, {**TEXT, "truncate": True, "truncation": "sometimes"}, "truncation"),
        (
            EMBEDDINGS,
            {**TEXT, "truncation_direction": "left", "truncation_side": 1},
            "truncation_side",
        ),
        (EMBEDDINGS, {**TEXT, "normalize": True, "normalized": "maybe"}, "normalized"),
        (EMBEDDINGS, {**TEXT, "dimensions": 8, "output_dimension": -1}, "output_dimension"),
        (EMBEDDINGS, {**TEXT, "output_dtype": "int8", "embedding_type": "int4"}, "embedding_type"),
        (EMBEDDINGS, {**TEXT, "embedding_type": "int8", "encoding_type": []}, "encoding_type"),
        (EMBEDDINGS, {**TEXT, "task": "query", "input_type": "nothing"}, "input_type"),
        (cohere.EMBED_V2, {"texts": ["a"], "inputs": [{"content": []}]}, "inputs[0]"),
        (cohere.EMBED_V1, {"texts": ["a"], "inputs": []}, "inputs"),
        (vllm.SCORE, {**SCORE, "text_1": 1}, "text_1"),
        (vllm.SCORE, {**SCORE, "data_2": []}, "data_2"),
        (vllm.SCORE, {**SCORE, "raw_scores": True, "use_activation": 1}, "use_activation"),
        (tei.TEI_EMBED_ALL, {"inputs": "a", "prompt_name": "query", "prompt": 1}, "prompt"),
        (PREDICT, {"inputs": "a", "truncate": True, "parameters": {"truncate": 1}}, "truncate"),
        (PREDICT, {"inputs": "a", "parameters": "none"}, "parameters"),
        (
            vertex_dialect(lambda _: Task.EMBED),
            {"instances": [{"inputs": "a"}], "parameters": []},
            "parameters",
        ),
    ],
)
def test_a_mistake_is_refused_though_another_name_goes_before(
    dialect: Dialect, body: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError) as caught:
        dialect.read(body, OPTIONS)
    assert caught.value.field == field


def test_the_first_name_counts() -> None:
    names = {
        "truncate": False,
        "truncation": True,
        "truncation_direction": "left",
        "truncation_side": "right",
    }
    call: Any = EMBEDDINGS.read({**TEXT, **names, "normalize": True, "normalized": False}, OPTIONS).call
    assert not call.reading.truncation.is_allowed
    assert call.reading.truncation.keeps_end
    assert call.normalize is True


def test_null_leaves_the_word_to_the_next_name() -> None:
    names = {"truncate": None, "truncation": False, "dimensions": 0, "output_dimension": 8, "task": None}
    call: Any = EMBEDDINGS.read({**TEXT, **names, "input_type": "query"}, OPTIONS).call
    assert not call.reading.truncation.is_allowed
    assert call.dimensions == 8
    assert call.reading.purpose == "query"


def test_what_the_body_says_goes_before_its_parameters_and_null_says_nothing() -> None:
    parameters = {"raw_scores": True, "truncate": False}
    call: Any = PREDICT.read({"inputs": "a", "raw_scores": False, "parameters": parameters}, OPTIONS).call
    assert not call.raw_scores
    call = PREDICT.read({"inputs": "a", "raw_scores": None, "parameters": parameters}, OPTIONS).call
    assert call.raw_scores
    assert not call.reading.truncation.is_allowed

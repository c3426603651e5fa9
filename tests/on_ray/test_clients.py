"""The clients' packages get the same rows, scores and errors from Ray Serve as from `vecmill serve`."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from clients.test_openai_python import (
    client,
    floats,
    test_default_base64_gives_the_plain_floats,
    test_floats_give_the_plain_floats,
    test_one_string_is_one_row,
)
from clients.test_packages import (
    test_errors_are_the_clients_own_with_our_words,
    test_huggingface_hub_gets_rows_before_the_model_normalises_them,
    test_rows_are_the_plain_ones,
    test_rows_of_single_texts_are_the_plain_ones,
    test_scores_are_the_plain_ones,
    test_short_rows_are_the_plain_ones,
    test_the_best_alone,
    test_usage_is_the_tokens_that_were_read,
)

pytestmark = pytest.mark.full

__all__ = [
    "client",
    "floats",
    "test_default_base64_gives_the_plain_floats",
    "test_errors_are_the_clients_own_with_our_words",
    "test_floats_give_the_plain_floats",
    "test_huggingface_hub_gets_rows_before_the_model_normalises_them",
    "test_one_string_is_one_row",
    "test_rows_are_the_plain_ones",
    "test_rows_of_single_texts_are_the_plain_ones",
    "test_scores_are_the_plain_ones",
    "test_short_rows_are_the_plain_ones",
    "test_the_best_alone",
    "test_usage_is_the_tokens_that_were_read",
]


@pytest.fixture(scope="module", autouse=True)
def stop_after_these_tests(serving: ExitStack) -> Iterator[None]:
    """Leave the ports of Serve to the servers of other modules."""
    yield
    serving.close()

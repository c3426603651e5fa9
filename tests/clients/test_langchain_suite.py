"""The tests that LangChain has for every embedding class (langchain-tests) pass with this server."""

import pytest

from support.client_packages import Ask

CLASSES = (
    "CohereEmbeddings",
    "InfinityEmbeddings",
    "JinaEmbeddings",
    "MistralAIEmbeddings",
    "OllamaEmbeddings",
    "OpenAIEmbeddings",
    "VoyageAIEmbeddings",
)
# Each suite also tests that none of its tests was replaced.
SUITES = {
    "Integration": ("test_aembed_documents", "test_aembed_query", "test_embed_documents", "test_embed_query"),
    "Unit": ("test_init", "test_init_from_env"),
}


@pytest.mark.full
def test_langchains_standard_tests_pass(ask: Ask) -> None:
    outcomes = ask("langchain_providers", "standard tests").unwrap()
    expected = {
        f"Test{suite}{kind}::{test}" for suite, tests in SUITES.items() for kind in CLASSES for test in tests
    }
    assert {name for name in outcomes if not name.endswith("DO_NOT_OVERRIDE")} == expected
    assert set(outcomes.values()) == {"passed"}, outcomes

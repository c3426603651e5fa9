"""The tests that LangChain has for every embedding class (langchain-tests). pytest collects this module."""

from typing import Any

from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from clients.drivers.langchain_embeddings import ARGUMENTS
from clients.inputs import EMBEDDER

SUITES: dict[str, Any] = {"Integration": EmbeddingsIntegrationTests, "Unit": EmbeddingsUnitTests}

for _kind, _arguments in ARGUMENTS.items():
    for _suite, _tests in SUITES.items():
        _name = f"Test{_suite}{_kind.__name__}"
        _members = {"embeddings_class": _kind, "embedding_model_params": _arguments(EMBEDDER)}
        globals()[_name] = type(_name, (_tests,), _members)

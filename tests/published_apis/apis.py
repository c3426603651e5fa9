"""The APIs whose documents are published, with the requests of their clients."""

from collections.abc import Mapping

from published_apis.cases import ApiCases
from published_apis.infinity_cases import INFINITY
from published_apis.openai_cases import OPENAI
from published_apis.tei_cases import TEI

APIS: Mapping[str, ApiCases] = {"tei": TEI, "infinity": INFINITY, "openai": OPENAI}
# The part of the paths that is in the base URL of clients, and not in the document.
PREFIXES: Mapping[str, str] = {"openai": "/v1"}

"""Secrets are looked up by their digests only, and only probes and the description are open without a key."""

import ast
from collections.abc import Iterator

import pytest

from support.source_tree import Module, modules
from vecmill_server.service.api_keys import PUBLIC_PATHS, PUBLIC_PREFIXES

KEYS = "vecmill_server.service.api_keys"
# Names of values that a client could guess byte by byte if they were compared with `==`.
SECRET_NAMES = ("key", "digest", "known", "sent", "secret", "token", "credentials")


def plain_comparisons(module: Module) -> Iterator[str]:
    """Comparisons of secrets whose time depends on the first byte that differs."""
    if not module.within(KEYS):
        return
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Compare):
            continue
        if not any(isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for operator in node.ops):
            continue
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if names & set(SECRET_NAMES):
            yield f"{module.name}:{node.lineno} compares {ast.unparse(node)}"


def test_no_secret_is_compared_with_an_operator() -> None:
    assert [found for module in modules() for found in plain_comparisons(module)] == []


@pytest.mark.promise("keys-checked")
def test_keys_are_looked_up_by_their_digests_alone() -> None:
    (module,) = [module for module in modules() if module.name == KEYS]
    (find,) = [
        node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef) and node.name == "_find"
    ]
    statements = [ast.unparse(statement) for statement in find.body]
    assert statements[:2] == ["digest = _digest(key)", "found = self._known.get(digest)"]
    # The key itself is read by the hash alone.
    assert [node.id for node in ast.walk(find) if isinstance(node, ast.Name)].count("key") == 1


def test_a_planted_comparison_is_found() -> None:
    planted = Module.parse(KEYS, "def find(digest, known):\n    return digest == known\n")
    assert list(plain_comparisons(planted))


@pytest.mark.promise("keys-checked")
def test_the_open_paths_are_the_probes_the_metrics_and_the_description() -> None:
    probes = {
        *("/", "/health", "/v1/health", "/livez", "/readyz", "/ping"),
        *("/.well-known/live", "/.well-known/ready", "/v1/health/live", "/v1/health/ready", "/meta"),
    }
    # The pages of alerts are part of the package, for people who have the link of an alert and no key.
    described = {"/docs", "/openapi.json", "/alerts", "/v1/cluster/auth"}
    # The answer of /readyz, and what /metrics answered in the last minutes.
    console = {"/console", "/console/state.json", "/console/history.json"}
    assert {*probes, "/metrics", *described, *console} == PUBLIC_PATHS
    assert PUBLIC_PREFIXES == ("/docs/", "/console/assets/", "/alerts/")

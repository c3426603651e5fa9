"""The counters of texts and tokens by API key, for operators who bill or limit the use.

The label `key` has the name of the key's owner, never the key. Keys of `--api-key` have no name, so `key` is
empty. Work counts when it is complete: an answer is written, or the result of a batch line is stored. Refused
and failed requests, and requests that no engine computes, such as `/tokenize`, do not count. A text that
shares the computation of an identical text counts in full, like `usage` in the response.
"""

from prometheus_client import CollectorRegistry, Counter

from vecmill_server.metrics import definitions


class KeyUse:
    """The texts and tokens of each owner and model."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._texts = definitions.KEY_TEXTS.create(registry)
        self._tokens = definitions.KEY_TOKENS.create(registry)
        self._children: dict[tuple[str, str], tuple[Counter, Counter]] = {}

    def add(self, owner: str, model: str, texts: int, tokens: int) -> None:
        """Count complete work of the owner of a key."""
        counters = self._children.get((owner, model))
        if counters is None:
            counters = self._texts.labels(owner, model), self._tokens.labels(owner, model)
            self._children[owner, model] = counters
        counters[0].inc(texts)
        counters[1].inc(tokens)

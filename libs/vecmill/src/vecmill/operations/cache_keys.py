"""The keys of cached embeddings: a digest of each input, and of everything that its embedding depends on.

A key covers, in this order: the format of the key, the identity of the vectors, the owner of the request, the
side of an asymmetric model, the prompt and its adapter, the limits of truncation, the kind of the input, and
the input. That of a picture covers the content of its file, and no prompt or limit. What is made of a
finished embedding is left out: `dimensions`, `normalize`, the data type of the answer. Whether truncation is
allowed is left out too, and is checked on what was found.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from vecmill.requests import Purpose, TextOrIds, Truncation
from vecmill.tokenization.prompts import Prompt
from vecmill.values.clock import Clock
from vecmill.values.embedding_cache import EmbeddingCache
from vecmill.values.observer import Observer
from vecmill.values.picture import Picture

# Increment when the parts of a key change.
KEY_FORMAT = 1
KEY_BYTES = 32
_TEXT, _IDS, _PICTURE = b"text:", b"ids:", b"picture:"


@dataclass(frozen=True, slots=True)
class KeyedCache:
    """The embedding cache for one loaded model. `identity` names all that its vectors depend on."""

    cache: EmbeddingCache
    identity: str
    observer: Observer
    clock: Clock

    def keys(
        self,
        inputs: Sequence[TextOrIds],
        prompt: Prompt,
        route: Purpose,
        truncation: Truncation,
        owner: str | None,
    ) -> list[bytes]:
        """Return the key of each input. Inputs of different owners have different keys."""
        shared = json.dumps(
            [
                *(KEY_FORMAT, self.identity, owner, route, prompt.text, prompt.adapter),
                *(truncation.keeps_end, truncation.max_tokens),
            ]
        )
        begun, keys = _begin(shared), []
        for each in inputs:
            digest = begun.copy()
            if isinstance(each, str):
                digest.update(_TEXT)
                digest.update(each.encode("utf-8", "surrogatepass"))
            else:
                digest.update(_IDS)
                # Text, since a client may send a number of any size.
                digest.update(",".join(map(str, each)).encode())
            keys.append(digest.digest())
        return keys

    def picture_keys(self, pictures: Sequence[Picture], owner: str | None) -> list[bytes]:
        """Return the key of each picture. Pictures of different owners have different keys."""
        begun, keys = _begin(json.dumps([KEY_FORMAT, self.identity, owner])), []
        for each in pictures:
            digest = begun.copy()
            digest.update(_PICTURE)
            digest.update(each.data)
            keys.append(digest.digest())
        return keys


def _begin(shared: str) -> hashlib.blake2b:
    # JSON has no newline of its own, so what follows is apart from it.
    return hashlib.blake2b(shared.encode() + b"\n", digest_size=KEY_BYTES)

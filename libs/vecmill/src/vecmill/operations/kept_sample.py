"""The embeddings of sample texts, kept in the cache folder so that the next start need not compute them.

    cache_dir/samples/<name>      CRC-32 (4 bytes, little-endian), then float32 values (rows, dim)

The name is a digest of everything that the values depend on: the model, engine, precision, device, prompt and
texts. A file of another size or checksum, or with a value that is not finite, is ignored and written again.
Files are written under a temporary name and renamed, so that processes never read a part of one.
"""

import hashlib
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vecmill.errors import SetupError
from vecmill.models import ModelDescription, fingerprint_model
from vecmill.requests import Embed, TextOrIds
from vecmill.tokenization.prompts import find_prompt
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_info import EngineInfo

FOLDER = "samples"
CHECKSUM_BYTES = 4
_VALUE = np.dtype("<f4")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """The kept samples of one loaded model. All methods may be slow."""

    cache_dir: Path
    description: ModelDescription
    info: EngineInfo

    def name(self, request: Embed, texts: Sequence[TextOrIds]) -> str | None:
        """Return the name of the file for `texts`, embedded as `request` says; `None` without a fingerprint.

        Reads the weights, unless they were read to load the model.
        """
        description, info = self.description, self.info
        try:
            fingerprint = fingerprint_model(description)
            prompt = find_prompt(description.prompts, description.default_prompt, request.options)
        except (SetupError, OSError):  # the files of the model have gone
            return None
        parts = (
            *(fingerprint, info.name, info.precision, info.device, prompt, request.normalize is False),
            *(request.options.truncation.max_tokens, texts),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def read(self, name: str, rows: int) -> FloatArray | None:
        """Return the kept embeddings, (rows, dim); `None` if there are none, or the file is damaged."""
        path = self.cache_dir / FOLDER / name
        size = CHECKSUM_BYTES + rows * self.description.dim * _VALUE.itemsize
        try:
            if path.stat().st_size != size:
                return None
            data = path.read_bytes()
        except OSError:
            return None
        checksum, values = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        if len(data) != size or checksum != _checksum(values):
            return None
        sample = np.frombuffer(values, _VALUE).astype(np.float32).reshape(rows, -1)
        return sample if bool(np.isfinite(sample).all()) else None

    def write(self, name: str, sample: FloatArray) -> None:
        """Keep the embeddings. A folder that cannot be written only costs the next start its time."""
        folder, values = self.cache_dir / FOLDER, sample.astype(_VALUE).tobytes()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            number, unfinished = tempfile.mkstemp(prefix=".unfinished-", dir=folder)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(_checksum(values) + values)
                os.replace(unfinished, folder / name)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished)
                raise
        except OSError as error:
            logger.info("The ranges of int8 embeddings cannot be kept in %s: %s.", folder, error.strerror)


def _checksum(values: bytes) -> bytes:
    return zlib.crc32(values).to_bytes(CHECKSUM_BYTES, "little")

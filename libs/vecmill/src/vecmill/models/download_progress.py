"""The progress of a download: one bar on a terminal, else a line in the log for every tenth."""

import logging
import sys
import threading
from typing import Any, Self

logger = logging.getLogger(__name__)

_PARTS = 10  # lines in the log


class DownloadProgress:
    """The number of bytes that have arrived, of `total` bytes in `files` files. Safe to use from threads."""

    def __init__(self, name: str, files: int, total: int) -> None:
        # The hub's bar can be switched off with HF_HUB_DISABLE_PROGRESS_BARS.
        from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

        self._name = name
        self._total = total
        self._arrived = self._told = 0
        self._lock = threading.Lock()
        self._bar: Any = tqdm(  # type: ignore[no-untyped-call]
            total=total,
            desc=name,
            unit="B",
            unit_scale=True,
            file=sys.stderr,
            disable=None,  # if standard error is not a terminal
            dynamic_ncols=True,
        )
        if self._bar.disable:
            counted = "1 file" if files == 1 else f"{files} files"
            logger.info("downloading %s: %s, %.1f MB", name, counted, total / 1e6)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def add(self, nbytes: int) -> None:
        """Count bytes that have arrived; a negative number for bytes that have to arrive again."""
        with self._lock:
            self._arrived += nbytes
            self._bar.update(nbytes)
            part = _PARTS * self._arrived // self._total if self._total else _PARTS
            if self._bar.disable and part > self._told:
                self._told = part
                logger.info("downloading %s: %d%%", self._name, 100 * part // _PARTS)

"""sentence-transformers, the reference for every row."""

import warnings
from pathlib import Path
from typing import Any


def load_reference(directory: Path) -> Any:
    """The model at `directory` as a `SentenceTransformer` on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        return SentenceTransformer(str(directory), device="cpu")

"""The environment variables of the process. Only this module reads them, and click, for `VECMILL_*`."""

import os
from collections.abc import Mapping


def read_environment() -> Mapping[str, str]:
    """Return a copy of the environment variables."""
    return dict(os.environ)

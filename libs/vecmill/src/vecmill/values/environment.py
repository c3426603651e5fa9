"""The environment variables of this process. No other module reads them; click reads those of options."""

import os
from collections.abc import Mapping


def environment_variables() -> Mapping[str, str]:
    """Return the variables by name. Values may be secrets, so print names only."""
    return os.environ

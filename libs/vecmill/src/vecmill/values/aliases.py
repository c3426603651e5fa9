"""Names for types that are used everywhere: arrays, and JSON."""

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
JsonValue = Any  # whatever a JSON document can hold

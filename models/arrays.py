"""Arrays by the kind of their numbers; their shapes are in the docstrings of what takes them."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Records = NDArray[np.void]  # of fields by name

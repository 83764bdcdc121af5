"""Array types by dtype; the docstrings of functions document the shapes."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Records = NDArray[np.void]  # of fields by name

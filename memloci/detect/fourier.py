"""SciPy's Fourier transforms, whose own type hints describe its dispatcher and not the arrays that it returns."""

from typing import Any

import scipy.fft

fft: Any = scipy.fft

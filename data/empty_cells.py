"""Empty cells: what a data frame holds where a row lacks a value."""

from __future__ import annotations

import numpy as np


def is_empty_cell(value: object) -> bool:
    """Return whether a value is None, NaN, or one of pandas' `NaT` and `NA`."""
    if value is None:
        return True
    # NaN and NaT differ from themselves.
    differs = value != value
    if isinstance(differs, bool | np.bool_):
        return bool(differs)
    # NA answers every comparison with itself. An array answers with another array.
    return differs is value


def is_blank(value: object) -> bool:
    """Return whether a value is an empty cell or an empty text."""
    return is_empty_cell(value) or (isinstance(value, str) and not value)

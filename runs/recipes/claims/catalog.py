"""The claims by recipe."""

from __future__ import annotations

from .claim import Claims
from .h2memory import H2MEMORY
from .memory_r2 import MEMORY_R2
from .pgr import PGR
from .pramem import PRAMEM
from .rgmem import RGMEM

CLAIMS: dict[str, Claims] = {
    "h2memory": H2MEMORY,
    "memory-r2": MEMORY_R2,
    "pgr": PGR,
    "pramem": PRAMEM,
    "rgmem": RGMEM,
}

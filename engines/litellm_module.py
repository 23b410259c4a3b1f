"""litellm, imported without the network."""

from __future__ import annotations

import os
from typing import Any


def litellm_module() -> Any:
    """Litellm itself, which otherwise fetches a price list over the network when it is imported."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    return litellm

"""How far an item of a user got on its way into the memory."""

from __future__ import annotations

from typing import Literal

State = Literal["queued", "remembered", "partial", "failed"]
"""How far an item got.

`queued`: not in the memory yet. `remembered`: in the memory. `partial`: in the memory but for turns
that could not be written, which it keeps as `Memory.failed_items`. `failed`: given up.
"""

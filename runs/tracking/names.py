"""Names and digests in MLflow's registries of prompts and datasets."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any


def registry_name(*parts: str) -> str:
    """Return a name that MLflow's registries take: the parts, without special characters.

    The parts are joined by dots; other characters than letters, digits, "_" and "-" become "-".
    """
    plain_parts: list[str] = []
    for part in parts:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", part.replace(".", "-")).strip("-")
        plain_parts.append(plain or "-")
    return ".".join(plain_parts)


def short_digest(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a value's JSON."""
    text = json.dumps(value, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""Write what an adapter declares of its package into a file, as JSON.

    python -I declaration.py FILE OUT     FILE is the adapter, OUT the file to write

    {"texts": {"instructions": "..."}, "numbers": {"limit": {...}}, "export": "..."}

`texts` are the texts that the package lets one set (`TEXTS` of the adapter), with their defaults.
`numbers` are its numbers (`NUMBERS`): each has a `default`, and `low` and `high`, between which an
optimizer searches. `export` is Python code that sets both (`EXPORT`), in which `$instructions` and
`$limit` mark where the text and the number are inserted.

The defaults are read from the package, so the adapter is imported in the package's environment. The
result is written into a file, since a package may print something while it is imported.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Import the adapter, and write what it declares."""
    adapter = load_adapter(sys.argv[1])
    declaration = {
        "texts": getattr(adapter, "TEXTS", {}),
        "numbers": getattr(adapter, "NUMBERS", {}),
        "export": getattr(adapter, "EXPORT", ""),
    }
    Path(sys.argv[2]).write_text(json.dumps(declaration), encoding="utf-8")


def load_adapter(path: str) -> Any:
    """Import an adapter under a name that no package has: mem0.py imports mem0."""
    spec: Any = importlib.util.spec_from_file_location("system_inside", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["system_inside"] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()

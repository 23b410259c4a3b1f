from typing import Any

CommonParams: Any
Server: Any

"""What Mempiler uses of DSPy's custom types."""

from pydantic import BaseModel

CUSTOM_TYPE_START_IDENTIFIER: str

class Type(BaseModel): ...

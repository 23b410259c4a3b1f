from typing import Any, dataclass_transform

from dspy.signatures.field import InputField, OutputField
from pydantic import BaseModel
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.fields import FieldInfo

@dataclass_transform(kw_only_default=True, field_specifiers=(InputField, OutputField))
class SignatureMeta(ModelMetaclass):
    instructions: str
    @property
    def input_fields(cls) -> dict[str, FieldInfo]: ...
    @property
    def output_fields(cls) -> dict[str, FieldInfo]: ...
    @property
    def fields(cls) -> dict[str, FieldInfo]: ...

class Signature(BaseModel, metaclass=SignatureMeta):
    @classmethod
    def with_instructions(cls, instructions: str) -> type[Signature]: ...
    @classmethod
    def with_updated_fields(cls, name: str, type_: type | None = None, **kwargs: Any) -> type[Signature]: ...
    @classmethod
    def equals(cls, other: object) -> bool: ...

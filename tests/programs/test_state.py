"""The state of a prompt's fields, by which a saved program and the code are compared."""

from typing import Annotated

import dspy
from mempiler.programs.state import field_states


class NumberOrText(dspy.Signature):
    """Answer with a number or a text."""

    answer: int | str = dspy.OutputField()


class TextOrNumber(dspy.Signature):
    """Answer with a text or a number."""

    answer: str | int = dspy.OutputField()


class AnnotatedByAList(dspy.Signature):
    """Answer with texts, whose type cannot be the key of a dict."""

    answer: list[Annotated[str, ["no hash"]]] = dspy.OutputField()


class Texts(dspy.Signature):
    """Answer with texts."""

    answer: list[str] = dspy.OutputField()


def shape_of_answer(signature: type[dspy.Signature]) -> str:
    """Return the digest of the type of the only field."""
    (field,) = field_states(signature)
    return field.shape


def test_the_order_of_the_types_of_a_field_is_part_of_its_shape() -> None:
    """A model is shown the types in their order, although Python says that the two are equal."""
    assert (int | str) == (str | int)
    assert shape_of_answer(NumberOrText) != shape_of_answer(TextOrNumber)


def test_a_field_whose_type_has_no_hash_has_a_shape() -> None:
    """The type is annotated with a list, so that it cannot be the key of a dict.

    The annotation says nothing to a model, so the shape is that of the type without it.
    """
    assert shape_of_answer(AnnotatedByAList) == shape_of_answer(Texts)

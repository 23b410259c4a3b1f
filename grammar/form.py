"""A sentence form: a template that says a frozen value, and finds it again in any text.

Example:
    >>> from dataclasses import dataclass
    >>> from mempiler.grammar.form import Form, Forms
    >>> @dataclass(frozen=True)
    ... class State:
    ...     thing: str
    ...     how: str
    >>> forms = Forms(Form(State, "The {thing} is {how}."))
    >>> forms.say(State("stove", "rusty"))
    'The stove is rusty.'
    >>> forms.read("[f1] (8 May 2025) The stove is rusty. The tent is torn.")
    (State(thing='stove', how='rusty'), State(thing='tent', how='torn'))

Limits: a field is a word or, where its pattern says so, several; fields are texts and whole numbers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

WORD = r"\w+"
WORDS = r"\w[\w ]*?"
"""A pattern for a field of several words."""


class Form:
    """One form.

    Args:
        kind: A frozen dataclass whose fields are texts or whole numbers.
        template: The sentence, with the names of its fields in braces.
        **patterns: What a field looks like; a single word unless said.
    """

    def __init__(self, kind: type[Any], template: str, **patterns: str) -> None:
        self.kind, self.template = kind, template
        fields = dataclasses.fields(kind)
        self._numbers = {field.name for field in fields if field.type in (int, "int")}
        pattern = re.escape(template)
        for field in fields:
            pattern = pattern.replace(
                re.escape(f"{{{field.name}}}"), f"(?P<{field.name}>{patterns.get(field.name, WORD)})", 1
            )
            # A field that stands in the sentence again is the same word there.
            pattern = pattern.replace(re.escape(f"{{{field.name}}}"), f"(?P={field.name})")
        self._pattern = re.compile(rf"(?<!\w){pattern}")

    def say(self, value: Any) -> str:
        """The sentence of a value."""
        return self.template.format(**{field.name: getattr(value, field.name) for field in dataclasses.fields(value)})

    def find(self, text: str) -> Iterator[tuple[int, Any]]:
        """Every value that a text says in this form, with where its sentence begins."""
        for match in self._pattern.finditer(text):
            fields = {name: int(part) if name in self._numbers else part for name, part in match.groupdict().items()}
            yield match.start(), self.kind(**fields)


class Forms:
    """The forms of a world, one for each kind of value."""

    def __init__(self, *forms: Form) -> None:
        self._forms = {form.kind: form for form in forms}

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """What can be said."""
        return tuple(self._forms)

    def say(self, value: Any) -> str:
        """The sentence of a value of any of the kinds."""
        return self._forms[type(value)].say(value)

    def read(self, text: str) -> tuple[Any, ...]:
        """Everything that a text says in one of the forms, in the order of the text."""
        found = [pair for form in self._forms.values() for pair in form.find(text)]
        return tuple(value for _, value in sorted(found, key=lambda pair: pair[0]))

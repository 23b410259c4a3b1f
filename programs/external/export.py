"""Write the texts and numbers of a memory system as Python code that sets them without Mempiler.

Example:
    result = mempiler.compile("mine:Notes", stage="write", optimizer="gepa", ...)
    print(export_system(result.program))

    from mine import Notes

    texts = {
        "rules": "Keep every name and every date.",
    }
    store = Notes(texts=texts)
"""

from __future__ import annotations

from collections.abc import Mapping
from pprint import pformat
from string import Template

from ...errors import UserError
from ..program import MemoryProgram
from ._method import External
from .numbers import NUMBERS_PARAMETER, Number
from .texts import TEXTS_PARAMETER

_LINE_WIDTH = 92

Value = str | Number
"""A text or a number of a memory system."""


def export_system(program: MemoryProgram) -> str:
    """Return Python code that gives a memory system the texts and numbers of a program.

    A system may declare the code as `EXPORT`, with `$NAME` where each is inserted. Otherwise the
    code makes a store with them.

    Raises:
        UserError: The program has neither, or `EXPORT` names other ones.
    """
    method = program.method
    texts: Mapping[str, str] = {}
    numbers: Mapping[str, Number] = {}
    template = ""
    if isinstance(method, External):
        texts = method.present_texts()
        numbers = method.system.numbers
        template = method.system.export_template

    if not texts and not numbers:
        raise UserError(
            f"{program.name} has no texts or numbers of a memory system to export; "
            "save the program instead: result.save(folder)"
        )
    if template:
        return _filled_template(template, {**texts, **numbers}, program.name)

    arguments: dict[str, Mapping[str, Value]] = {}
    if texts:
        arguments[TEXTS_PARAMETER] = texts
    if numbers:
        arguments[NUMBERS_PARAMETER] = numbers
    return _code_for_store(program.name, arguments)


def _filled_template(template: str, values: Mapping[str, Value], name: str) -> str:
    """Return the code that a system declares, with its texts and numbers."""
    literals = {value_name: _literal(value) for value_name, value in values.items()}
    try:
        code = Template(template).substitute(literals)
    except (KeyError, ValueError) as error:
        known = ", ".join(f"${value_name}" for value_name in values)
        raise UserError(
            f"{name}: EXPORT cannot be filled in ({error}); it may name {known}"
        ) from error
    return code.strip() + "\n"


def _code_for_store(name: str, arguments: Mapping[str, Mapping[str, Value]]) -> str:
    """Return code that makes a store of the user's with its texts and numbers.

    Args:
        name: The `module:name` of its class, or of the function that makes it.
        arguments: The values by name, by the argument that takes them: `texts` or `numbers`.
    """
    lines: list[str] = []
    for argument, values in arguments.items():
        lines.append(f"{argument} = {{")
        for value_name, value in values.items():
            lines.append(f"    {value_name!r}: {_literal(value)},")
        lines.append("}")
    passed = ", ".join(f"{argument}={argument}" for argument in arguments)

    module, _, attribute = name.partition(":")
    # A class inside of a function, or of a notebook, cannot be imported.
    is_importable = attribute.isidentifier() and module != "__main__"
    if not is_importable:
        return "\n".join([f"# Make your store as before, with {passed}.", *lines, ""])

    import_lines = [f"from {module} import {attribute}", ""]
    store_lines = ["# Further arguments stay as before.", f"store = {attribute}({passed})", ""]
    return "\n".join([*import_lines, *lines, *store_lines])


def _literal(value: Value) -> str:
    """Return a value as Python code. A long text takes several lines, in brackets."""
    # Whatever a model wrote, this is one literal: quotes, backslashes and line breaks are escaped.
    return pformat(value, width=_LINE_WIDTH)

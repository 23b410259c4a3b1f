"""Write the texts of a memory system as Python code that sets them without Mempiler.

Example:
    result = mempiler.compile("mine:Notes", stage="write", optimizer="gepa", ...)
    print(export_texts(result.program))

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

_LINE_WIDTH = 92


def export_texts(program: MemoryProgram) -> str:
    """Return Python code that gives a memory system the texts of a program.

    A system may declare the code as `EXPORT`, with `$NAME` in the place of each text. Otherwise the
    code makes a store with its texts.

    Raises:
        UserError: The program has no texts of a memory system, or `EXPORT` names other ones.
    """
    method = program.method
    texts = method.present_texts() if isinstance(method, External) else {}
    if not texts:
        raise UserError(
            f"{program.name} has no texts of a memory system to export; "
            "save the program instead: result.save(folder)"
        )

    assert isinstance(method, External)
    template = method.export_template
    if template:
        return _filled_template(template, texts, program.name)
    return _code_for_store(program.name, texts)


def _filled_template(template: str, texts: Mapping[str, str], name: str) -> str:
    """Return the code that a system declares, with its texts."""
    literals = {text_name: _literal(text) for text_name, text in texts.items()}
    try:
        code = Template(template).substitute(literals)
    except (KeyError, ValueError) as error:
        known = ", ".join(f"${text_name}" for text_name in texts)
        raise UserError(
            f"{name}: EXPORT cannot be filled in ({error}); it may name {known}"
        ) from error
    return code.strip() + "\n"


def _code_for_store(name: str, texts: Mapping[str, str]) -> str:
    """Return code that makes a store of the user's with its texts.

    Args:
        name: The `module:name` of its class, or of the function that makes it.
        texts: The texts by name.
    """
    lines = ["texts = {"]
    for text_name, text in texts.items():
        lines.append(f"    {text_name!r}: {_literal(text)},")
    lines.append("}")

    module, _, attribute = name.partition(":")
    # A class inside of a function, or of a notebook, cannot be imported.
    is_importable = attribute.isidentifier() and module != "__main__"
    if not is_importable:
        return "\n".join(["# Make your store as before, with texts=texts.", *lines, ""])

    import_lines = [f"from {module} import {attribute}", ""]
    store_lines = ["# Further arguments stay as before.", f"store = {attribute}(texts=texts)", ""]
    return "\n".join([*import_lines, *lines, *store_lines])


def _literal(text: str) -> str:
    """Return a text as Python code; a long one stands on several lines, in brackets."""
    # Whatever a model wrote, this is one literal: quotes, backslashes and line breaks are escaped.
    return pformat(text, width=_LINE_WIDTH)

"""What type an output must have, as a JSON schema, from the words in which a prompt says it.

DSPy's adapters state types three ways: a note ("must adhere to the JSON schema: ...", "must be True or False"), the
annotation in the list of fields (`Literal['a', 'b']`, `list[str]`), and, in XML prompts, a skeleton of tags. The note
is exact, so it wins, except that the options of a Literal are read from the annotation, where they are quoted.

Example:
    >>> read_type("Literal['yes', 'no']", note="")
    {'enum': ['yes', 'no']}

Honest limit: an XML skeleton names nested tags but not their types; they are then taken to be text.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

Schema = dict[str, Any]

_PLAIN: dict[str, Schema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "NoneType": {"type": "null"},
    "None": {"type": "null"},
}
_TAG = re.compile(r"<(/?)([^<>\s/]+)>")


def read_type(annotation: str, note: str, skeleton: str = "") -> Schema:
    """The JSON schema of one output field.

    Args:
        annotation: Its type as the field list prints it.
        note: What follows "note: the value you produce", or "".
        skeleton: Its XML skeleton, or "".

    Returns:
        A JSON schema with `$ref`s into its own `$defs`; `{"type": "string"}` where nothing says more.
    """
    if "JSON schema: " in note:
        try:
            schema = json.loads(note.split("JSON schema: ", 1)[1])
            return schema if isinstance(schema, dict) else {"type": "string"}
        except ValueError:
            pass
    known = _from_annotation(annotation)
    if known is not None:
        return known
    if "one of: " in note:
        return {"enum": note.split("one of: ", 1)[1].split("; ")}
    return _from_skeleton(skeleton) if skeleton else {"type": "string"}


def expand(schema: Any, root: Schema) -> Schema:
    """Follows `$ref`, single `allOf` and bare `oneOf` until the schema says itself what it is."""
    for _ in range(10):
        if not isinstance(schema, dict):
            return {}
        if "$ref" in schema:
            schema = root.get("$defs", {}).get(str(schema["$ref"]).rsplit("/", 1)[-1], {})
        elif len(schema.get("allOf", ())) == 1:
            schema = schema["allOf"][0]
        elif "oneOf" in schema:
            schema = {**schema, "anyOf": schema["oneOf"]}
            del schema["oneOf"]
        else:
            break
    return schema


def is_text(schema: Schema) -> bool:
    """Whether a schema asks for free text."""
    return schema.get("type") == "string" and "enum" not in schema and schema.get("format") is None


def _from_annotation(annotation: str) -> Schema | None:
    try:
        return _from_tree(ast.parse(annotation.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return None


def _from_tree(tree: ast.AST) -> Schema | None:
    if isinstance(tree, ast.Constant) and tree.value is None:
        return {"type": "null"}
    if isinstance(tree, (ast.Name, ast.Attribute)):
        return _PLAIN.get(tree.id if isinstance(tree, ast.Name) else tree.attr)
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        return None
    inside = list(tree.slice.elts) if isinstance(tree.slice, ast.Tuple) else [tree.slice]
    kind = tree.value.id
    if kind == "Literal":
        return {"enum": [ast.literal_eval(option) for option in inside]}
    parts = [_from_tree(part) for part in inside]
    if kind == "dict":
        return {"type": "object", "additionalProperties": parts[-1] or {}}
    if any(part is None for part in parts):
        return None
    if kind == "list":
        return {"type": "array", "items": parts[0]}
    return {"anyOf": parts} if kind in ("Union", "Optional") else None


def _from_skeleton(skeleton: str) -> Schema:
    root: Schema = {}
    path = [root]
    for closing, tag in _TAG.findall(skeleton):
        if closing:
            path.pop()
            continue
        child: Schema = {}
        path[-1].setdefault("properties", {})[tag] = child
        path.append(child)
        if len(path) == 1:
            break
    return _typed(next(iter(root.get("properties", {}).values()), {}))


def _typed(node: Schema) -> Schema:
    inside = node.get("properties")
    if not inside:
        return {"type": "string"}
    if list(inside) == ["item"]:
        return {"type": "array", "items": _typed(inside["item"])}
    return {"type": "object", "properties": {name: _typed(child) for name, child in inside.items()}}

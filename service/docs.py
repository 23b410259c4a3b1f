"""The page `/docs`: every route with its parameters, bodies and answers, made of the OpenAPI document.

One page of plain HTML without scripts, which asks no other machine for anything; its headers allow nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_METHODS = ("get", "post", "put", "patch", "delete")
_STYLE = Path(__file__).with_name("docs.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""What the page is sent with: nothing but its own style is loaded, and no other page shows it within."""


def docs_page(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document."""
    from jinja2 import Environment
    from markupsafe import Markup

    groups: dict[str, list[dict[str, Any]]] = {}
    schemas = document.get("components", {}).get("schemas", {})
    for path, operations in document["paths"].items():
        for method in filter(operations.__contains__, _METHODS):
            route = _route(path, method, operations[method], schemas)
            groups.setdefault(route["tag"], []).append(route)
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        Path(__file__).with_name("docs.html").read_text(encoding="utf-8")
    )
    shown = [_schema(name, schema) for name, schema in sorted(schemas.items()) if "properties" in schema]
    return page.render(info=document["info"], style=Markup(_STYLE), groups=groups.items(), schemas=shown)


def _route(path: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    body = _named(operation.get("requestBody"))
    return {
        "id": operation["operationId"],
        "tag": (operation.get("tags") or ["other"])[0],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "parameters": [_parameter(found) for found in operation.get("parameters", ())],
        "body": body,
        "example": _example(path, method, operation.get("requestBody"), schemas.get(body, {})),
        "answers": [(status, _named(found)) for status, found in operation["responses"].items()],
    }


def _parameter(found: Mapping[str, Any]) -> dict[str, str]:
    about = found.get("description", "") or found["schema"].get("description", "")
    return {"name": found["name"], "place": found["in"], "type": _type(found["schema"]), "about": about}


def _named(found: Mapping[str, Any] | None) -> str:
    """The name of the schema of a body or an answer; "" if it has none."""
    for content in (found or {}).get("content", {}).values():
        if reference := content.get("schema", {}).get("$ref"):
            return reference.rpartition("/")[2]
    return ""


def _example(path: str, method: str, body: Mapping[str, Any] | None, schema: Mapping[str, Any]) -> str:
    lines = [content["example"] for content in (body or {}).get("content", {}).values() if "example" in content]
    lines += [json.dumps(example, indent=2) for example in schema.get("examples", ())]
    return f"{method.upper()} {path}\n\n{lines[0]}" if lines else ""


def _schema(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    needed = schema.get("required", ())
    fields = [
        {"name": field, "type": _type(about), "about": about.get("description", ""), "needed": field in needed}
        for field, about in schema["properties"].items()
    ]
    return {"name": name, "about": schema.get("description", ""), "fields": fields}


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words: "list of Source", "string or null"."""
    return " or ".join(dict.fromkeys(_types(schema)))


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        for choice in choices:
            yield from _types(choice)
    elif "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2]
    elif "enum" in schema or "const" in schema:
        yield from (json.dumps(value) for value in schema.get("enum", (schema.get("const"),)))
    elif schema.get("type") == "array":
        yield f"list of {_type(schema.get('items', {}))}"
    else:
        yield str(schema.get("format") or schema.get("type", "any"))

"""Dockerfile and compose.yaml, held against the commands that they start; no container is built here."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import yaml
from mempiler.cli import app

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


SERVE: Any = app.get_command(click.Context(app), "serve")


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of a kind, lines joined."""
    joined = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    return [line.partition(" ")[2] for line in joined.splitlines() if line.startswith(f"{name} ")]


def test_every_variable_is_one_that_serve_reads():
    pairs = [pair for line in instructions("ENV") for pair in shlex.split(line)]
    image = {pair.partition("=")[0] for pair in pairs}
    asked = {name for name in image | set(SERVICES["mempiler"]["environment"]) if name.startswith("MEMPILER_")}
    assert asked - {"MEMPILER_HOME"} <= {parameter.envvar for parameter in SERVE.params}
    assert {"MEMPILER_PROGRAM", "MEMPILER_STORE", "MEMPILER_TOKEN_FILE"} <= asked


def test_no_secret_is_written_down_and_ports_are_of_this_machine():
    held = json.dumps(SERVICES) + DOCKERFILE
    assert not re.search(r"(?i)(password|key|token)\w*[\"']?\s*[:=]\s*[\"']?(?!\$\{|/run/secrets|null)[\w-]{6,}", held)
    for service in SERVICES.values():
        assert all("healthcheck" in SERVICES[other] for other in service.get("depends_on", {}))
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        for name, value in service["environment"].items():
            if "PASSWORD" in name:
                assert str(value).startswith("${POSTGRES_PASSWORD:?")


def test_the_image_runs_as_a_user_of_its_own_and_tells_its_health():
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER mempiler$", last, re.MULTILINE)
    assert "/health" in instructions("HEALTHCHECK")[0]
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["mempiler"]
    assert json.loads(instructions("CMD")[-1]) == ["serve"]


def test_the_builder_sees_every_room_and_nothing_else():
    """`.dockerignore` lists what is let in; a room that it forgets is missing from the image."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert rooms <= let_in
    assert {"README.md", "LICENSE", "pyproject.toml", "constraints.txt", "py.typed", "*.py"} <= let_in
    assert not {"tests", ".git", ".env", "tokens.txt"} & let_in
    assert "runs/local" in lines


def test_the_proxy_has_the_limits_of_the_service():
    default = {parameter.name: parameter.default for parameter in SERVE.params}
    content = COMPOSE["configs"]["proxy"]["content"]
    found = dict(re.findall(r"(read_header|read_body|idle|max_size|reverse_proxy) (\S+)", content))
    assert found == {
        "read_header": "10s",
        "read_body": f"{default['timeout']:g}s",
        "idle": f"{default['keep_alive']:g}s",
        "max_size": f"{default['max_body'] // 1_000_000}MB",
        "reverse_proxy": "mempiler:8000",
    }
    assert SERVICES["proxy"]["profiles"] == ["proxy"]
    # Compose takes one $ for itself.
    assert "{$$SITE}" in content
    assert "SITE" in SERVICES["proxy"]["environment"]

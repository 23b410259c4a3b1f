"""The options of `mempiler serve`: what the page says of them, and what is refused at the start."""

import re
import socket
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
from mempiler.cli import app
from mempiler.serving.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "production" / "http.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Limits and timeouts")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (`--.+?) \| (.+?) \|", SECTION, re.MULTILINE)


def test_the_page_has_the_defaults_of_all_settings() -> None:
    serve = app.get_command(click.Context(app), "serve")
    assert serve is not None
    known = {str(parameter.name): parameter.default for parameter in serve.params}
    assert {name: known[name] for name in Settings.model_fields} == Settings().model_dump()
    told = set[str]()
    for names, said in ROWS:
        options = [name.replace("-", "_") for name in re.findall(r"`--([\w-]+)`", names)]
        numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*(?<!,)", said)]
        assert numbers == [known[name] for name in options], names
        told.update(options)
    assert Settings.model_fields.keys() - told <= {"session_gap", "mcp"}


def test_what_cannot_work_is_refused_at_the_start(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")
    command = ["serve", tmp_path / "program", "--store", tmp_path / "memories.sqlite"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, said in (
            (["--port", port], "cannot listen at 127.0.0.1"),
            (["--port", "0", "--lm", "openai/gpt-4.1-mini"], "set OPENAI_API_KEY"),
        ):
            code, out, err = cli(*command, *words)
            assert (code, out, said in err.splitlines()[-1], "Traceback" in err) == (2, "", True, False)

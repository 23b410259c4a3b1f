"""The options of `mempiler serve`: what the page says of them, and what is refused at the start."""

import re
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
from mempiler.cli import app, main
from mempiler.serving.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE, STORE = ((ROOT / "docs" / "production" / name).read_text(encoding="utf-8") for name in ("http.md", "store.md"))
SECTION = PAGE.partition("## Limits and timeouts")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (`--.+?) \| (.+?) \|", SECTION, re.MULTILINE)


def defaults() -> dict[str, Any]:
    serve = app.get_command(click.Context(app), "serve")
    assert serve is not None
    return {str(parameter.name): parameter.default for parameter in serve.params}


@pytest.mark.parametrize(("names", "said"), ROWS, ids=[names for names, _ in ROWS])
def test_the_page_has_the_defaults(names: str, said: str) -> None:
    values = [defaults()[name.replace("-", "_")] for name in re.findall(r"`--([\w-]+)`", names)]
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*(?<!,)", said)]
    assert numbers == values


def test_every_setting_is_an_option() -> None:
    known = defaults()
    assert {name: known[name] for name in Settings.model_fields} == Settings().model_dump()
    named = {name.replace("-", "_") for names, _ in ROWS for name in re.findall(r"`--([\w-]+)`", names)}
    assert Settings.model_fields.keys() - named <= {"session_gap", "mcp"}


@pytest.fixture
def serve(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts the command and returns its exit code and what it printed."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    mempiler.save(mempiler.build("turn-rag"), tmp_path / "program")

    def started(*words: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as ended:
            main(["serve", str(tmp_path / "program"), "--store", str(tmp_path / "m.sqlite"), *words])
        printed = capsys.readouterr()
        assert printed.out == ""
        return ended.value.code, printed.err

    return started


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lm", "nosuch"], "language model 'nosuch': no provider is known"),
        (["--lm", "openai/gpt-4.1-mini"], "set OPENAI_API_KEY"),
        (["--lm-deadline", "60"], "--lm-deadline 60 must be less than --timeout 60"),
    ],
    ids=["model", "key", "deadline"],
)
def test_what_cannot_work_is_refused_at_the_start(serve: Any, words: list[str], said: str) -> None:
    code, printed = serve(*words)
    # The lines before it are about the program.
    assert (code, said in printed.splitlines()[-1], "Traceback" in printed) == (2, True, False)

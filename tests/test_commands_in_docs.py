"""What the documentation shows runs: every command is known, the README's story, the examples of docstrings."""

import ast
import doctest
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
from mempiler.cli import app
from mempiler.engines.models import language_model

from .conftest import package_files

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")
(LOAD, AGENT) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
CITIES = ["Lisbon", "Porto", "Faro", "Braga", "Evora", "Tomar", "Sintra", "Lagos", "Elvas", "Beja", "Guarda", "Viseu"]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of Mempiler that stands as code, without comments."""
    lines = re.findall(r"^(?:    |\$ )?((?:pip|mempiler) .*)$", re.sub(r"\\\n\s+", "", text), re.MULTILINE)
    for part in re.split(r" && |\n", "\n".join(lines)):
        if part.startswith("mempiler "):
            yield shlex.split(part, comments=True)[1:]


def known(words: list[str]) -> None:
    """Parses a command line as click would, and runs nothing.

    Raises:
        click.UsageError: There is no such command or option, or an option lacks its value.
    """
    command: click.Command | None = app
    context = click.Context(app, info_name="mempiler")
    while isinstance(command, click.Group):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"no command {name}"
        context = click.Context(command, info_name=name, parent=context)
    assert command is not None
    command.make_parser(context).parse_args(list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_is_known(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        known(words)


def test_commands_are_found_and_wrong_ones_noticed() -> None:
    assert len(list(commands(README))) > 20
    with pytest.raises(click.UsageError, match="--onn"):
        known(["compile", "turn-rag", "--onn", "locomo"])


def under(heading: str) -> list[list[str]]:
    """The commands of a section of the README."""
    return list(commands(README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]))


@pytest.mark.slow
def test_the_readme_from_own_questions_to_an_answer(cli, stub, tmp_path, monkeypatch) -> None:
    server = stub()
    monkeypatch.chdir(tmp_path)
    for name, value in {"MEMPILER_API_BASE": server.url, "OPENAI_API_KEY": "a key", "MEMPILER_HOME": "runs"}.items():
        monkeypatch.setenv(name, value)
    row = json.loads(re.findall(r"^```json\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)[0])
    rows = [json.dumps({**row, "user": f"ada-{n}"}).replace("Lisbon", city) for n, city in enumerate(CITIES)]
    Path("questions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    Path("agent.py").write_text(AGENT, encoding="utf-8")

    own, module = under("Your own data"), under("Your own module and metric")
    assert [words[0] for words in own] == ["evaluate", "compile", "compile", "show", "serve"]
    for words in [*own[:-1], *module]:
        code, out, err = cli(*words)
        assert (code, bool(out)) == (0, True), (words, err)

    lm = language_model(server.model, api_base=server.url, cache=False)
    found: dict[str, Any] = {"lm": lm}
    exec(compile(LOAD.replace('dspy.LM("openai/gpt-4.1-mini")', "lm"), "README.md", "exec"), found)
    assert "Lisbon" in found["found"].answer
    assert found["found"].context.sources

    _, ask, _, publish = under("In production")
    code, out, _ = cli(*ask, "--lm", server.model)
    assert (code, out.splitlines()[0]) == (0, found["found"].answer)
    assert cli(*publish)[0] == 0
    assert mempiler.load("models:/memory@prod").memory


@pytest.mark.slow
def test_the_figures_of_the_smoke_test_are_those_of_its_command(cli):
    told = " ".join(README.partition("\nWithout `--lm`")[2].split())
    _, out, _ = cli("compile", "turn-rag", "--on", "locomo", "--with", "knn", "--force", "--json")
    found = json.loads(out)
    change = found["difference"]
    figures = (found["before"]["score"], found["after"]["score"], change["mean"], *change["interval"])
    before, after, gain, low, high = (f"{figure:+.3f}".replace("0.", ".") for figure in figures)
    said = f"gives {before[1:]} -> {after[1:]} on the bundled sample, {gain} [{low}, {high}], n = {change['n']}."
    assert said in told


PACKAGE = Path(mempiler.__file__).parent
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def examples(file: Path) -> Iterator[doctest.DocTest]:
    """The docstrings of a file that have examples; read from the source, so that no optional package is needed."""
    where, text = file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if ">>> " in text else ():
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            name = f"{where}:{getattr(node, 'name', '')}".rstrip(":")
            found = doctest.DocTestParser().get_doctest(docstring, {}, name, str(file), node.body[0].lineno - 1)
            if found.examples:
                yield found


EXAMPLES = [
    each for file in package_files() if file.parts[:2] != ("runs", "local") for each in examples(PACKAGE / file)
]


def test_examples_are_found() -> None:
    assert len(EXAMPLES) > 15


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    doctest.DocTestRunner().run(example, out=told.append, clear_globs=False)
    assert not told, "".join(told)

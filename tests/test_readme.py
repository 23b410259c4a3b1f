"""The commands and the code of README and pages: they are known, and those of the README run.

Commands that need a model get a stub server, or the offline engine, which answers by rules.
"""

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
from mempiler.cli import app
from mempiler.engines.lm import language_model

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPILE_CODE, LOAD_CODE = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
CITIES = [
    "Lisbon",
    "Porto",
    "Faro",
    "Braga",
    "Evora",
    "Tomar",
    "Sintra",
    "Lagos",
    "Elvas",
    "Beja",
    "Guarda",
    "Viseu",
]


def commands_of(text: str) -> list[list[str]]:
    """Return the words of each command of Mempiler that a text shows as code."""
    text_with_joined_lines = re.sub(r"\\\n\s+", "", text)
    # Code is indented, or stands behind "$ ". A line may hold several commands.
    lines = re.findall(
        r"^(?:    |\$ )?((?:pip|mempiler) .*)$", text_with_joined_lines, re.MULTILINE
    )
    commands: list[list[str]] = []
    for line in lines:
        for command in line.split(" && "):
            if command.startswith("mempiler "):
                commands.append(shlex.split(command, comments=True)[1:])
    return commands


def section_of_readme(heading: str) -> str:
    """Return the text of a section of the README."""
    after_heading = README.partition(f"\n## {heading}\n")[2]
    return after_heading.partition("\n## ")[0]


def parse_command(words: list[str]) -> None:
    """Parse a command line as click would, and run nothing.

    Raises:
        click.UsageError: There is no such option, or an option lacks its value.
    """
    command: click.Command | None = app
    context = click.Context(app, info_name="mempiler")
    remaining_words = list(words)
    while isinstance(command, click.Group):
        name = remaining_words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, f"no command {name}"
        context = click.Context(command, info_name=name, parent=context)
    assert command is not None
    command.make_parser(context).parse_args(remaining_words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_is_known(page: Path) -> None:
    """To parse a command with an unknown name or option is an error."""
    for words in commands_of(page.read_text(encoding="utf-8")):
        parse_command(words)


def test_commands_of_a_page_are_found() -> None:
    """If the search for commands found none, the test above would check nothing and pass."""
    assert len(commands_of(README)) > 20


def test_an_unknown_option_is_noticed() -> None:
    with pytest.raises(click.UsageError, match="--onn"):
        parse_command(["compile", "turn-rag", "--onn", "locomo"])


@pytest.mark.slow
def test_first_code_of_the_readme_compiles_and_saves_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code has sixty examples, of which twenty are for testing.

    They are scored before and after the compilation; `before.n` counts them.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    monkeypatch.syspath_prepend(tmp_path)
    Path("agent.py").write_text(COMPILE_CODE, encoding="utf-8")

    names = runpy.run_path("agent.py", run_name="__main__")

    saved_files = {path.name for path in Path("my-program").iterdir()}
    assert names["result"].before.n == 20
    assert saved_files == {"manifest.json", "state.json"}


def write_own_questions(path: Path) -> None:
    """Write the README's question about Ada, for a user in each of the cities."""
    examples = re.findall(r"^```json\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    example = json.loads(examples[0])
    lines: list[str] = []
    for number, city in enumerate(CITIES):
        line = json.dumps({**example, "user": f"ada-{number}"})
        lines.append(line.replace("Lisbon", city))
    path.write_text("\n".join(lines), encoding="utf-8")


def write_agent(path: Path) -> None:
    """Write the module and the metric of the README, without the call that compiles them."""
    code, _, _ = COMPILE_CODE.partition("# trainset")
    path.write_text(code, encoding="utf-8")


def run_command(cli: Any, words: list[str]) -> str:
    """Run a command, which must succeed; return what it prints."""
    exit_code, out, err = cli(*words)
    assert exit_code == 0, (words, err)
    return out


def memory_of_readme(server: Any) -> mempiler.UserMemory:
    """Run the code of the README that loads a compiled program; return the memory that it makes."""
    lm = language_model(server.model, api_base=server.url, cache=False)
    code = LOAD_CODE.replace('dspy.LM("openai/gpt-4.1-mini")', "lm")
    variables: dict[str, Any] = {"lm": lm, "mempiler": mempiler}
    exec(compile(code, "README.md", "exec"), variables)
    return variables["memory"]


@pytest.mark.slow
def test_readme_leads_from_own_questions_to_an_answer(
    cli: Any, stub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README shows a file of questions, commands that compile, and code that loads the result.

    It has one question: where Ada lives. The file gets twelve such users, one in each city, since a
    compilation needs several questions.
    """
    server = stub()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_API_BASE", server.url)
    monkeypatch.setenv("MEMPILER_HOME", "runs")
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    write_own_questions(Path("questions.jsonl"))
    write_agent(Path("agent.py"))

    for words in commands_of(section_of_readme("From the command line")):
        if words[0] != "serve":  # which does not end
            assert run_command(cli, words) != ""

    answer = memory_of_readme(server).ask("Where does Ada live?")
    assert "Lisbon" in answer.answer
    assert answer.context.sources

    _, ask, _, publish = commands_of(section_of_readme("In production"))
    assert run_command(cli, [*ask, "--lm", server.model]).startswith(answer.answer)
    run_command(cli, publish)
    assert mempiler.load("models:/memory@prod").memory


@pytest.mark.slow
def test_readme_prints_the_figures_that_its_smoke_test_gives(cli: Any) -> None:
    """The README prints the score that compiling `turn-rag` on the bundled sample gives.

    The command needs no model, so its figures are the same everywhere.
    """
    _, out, _ = cli(
        "compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "knn", "--force", "--json"
    )
    result = json.loads(out)
    difference = result["difference"]
    low, high = difference["interval"]

    before = _figure(result["before"]["score"])
    after = _figure(result["after"]["score"])
    sentence = (
        f"gives {before} -> {after} on the bundled sample, "
        f"{_signed_figure(difference['mean'])} "
        f"[{_signed_figure(low)}, {_signed_figure(high)}], n = {difference['n']}."
    )
    text_in_one_line = " ".join(README.partition("\nWithout `--lm`")[2].split())
    assert sentence in text_in_one_line


def _signed_figure(value: float) -> str:
    """Return a number as the README writes it, e.g. "+.123"."""
    return f"{value:+.3f}".replace("0.", ".")


def _figure(value: float) -> str:
    """Return a positive number as the README writes it, e.g. ".123"."""
    return _signed_figure(value).removeprefix("+")


@pytest.mark.slow
def test_compiled_prompt_of_the_page_is_what_the_command_makes(cli: Any, tmp_path: Path) -> None:
    """The page docs/optimizers.md shows parts of a prompt; `show --prompts` prints all of it."""
    page = (ROOT / "docs" / "optimizers.md").read_text(encoding="utf-8")
    section = page.partition("## A compiled prompt")[2].partition("\n## ")[0]
    shown_texts = re.findall(r"^```text\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    folder = str(tmp_path / "program")
    options = ("--benchmark", "locomo", "--optimizer", "knn", "--force", "--out", folder)

    cli("compile", "turn-rag", *options)
    _, prompts, _ = cli("show", folder, "--prompts")

    printed_lines = set(prompts.splitlines())
    assert shown_texts
    for text in shown_texts:
        assert set(text.splitlines()) - printed_lines == set()

"""The documentation: every page is reached, every link leads somewhere, what it shows runs, commands are known."""

import ast
import doctest
import importlib
import json
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import mempiler
import pytest
import yaml
from mempiler.cli import app
from mempiler.data.catalog import BENCHMARKS
from mempiler.engines.lm import language_model
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.programs.catalog import method_class
from mempiler.programs.names import METHODS, POLICIES
from mempiler.records.import_object import import_object

from tests.browser import CHROMIUM, Browser, serious_faults
from tests.conftest import suite

from .conftest import package_files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / ".site"
SITE_PAGES = sorted(path.relative_to(DOCS).as_posix() for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")])
SHOWN = ["index.html", "concepts.html", "methods/pgr.html", "notebooks/compile.html", "reference/methods.html"]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("hooks")


@pytest.fixture
def fill_pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("fill_pages")


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("drawings")


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(part)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    # A notebook is shown as a page of its name.
    assert sorted(_leaves(nav)) == sorted(str(Path(page).with_suffix(".md")) for page in SITE_PAGES)


def _anchors(page: Path) -> set[str]:
    """The headings of a page as mkdocs names them; the first of several that are alike has its plain name."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", each).strip().lower() for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[-\s]+", "-", each) for each in words}


@pytest.mark.parametrize("name", SITE_PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = DOCS / name
    text, broken = page.read_text(encoding="utf-8"), []
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.is_file() or not found.is_relative_to(DOCS) or (anchor and anchor not in _anchors(found)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("name", [page for page in SITE_PAGES if page.endswith(".md")])
def test_generated_tables_of_a_page_are_current(name: str, fill_pages: Any) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    is_current = fill_pages.fill(text) == text
    assert is_current, f"a generated table of docs/{name} is out of date; run: {fill_pages.COMMAND}"


@pytest.mark.parametrize("name", [page for page in SITE_PAGES if page.endswith(".md")])
def test_comments_of_a_page_are_those_around_tables(name: str, fill_pages: Any) -> None:
    """A misspelt comment would show as nothing, and no command would fill it."""
    lines = (DOCS / name).read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if "<!--" in line]
    unknown = [line for line in comments if line != fill_pages.END and not fill_pages.BEGIN.fullmatch(line)]
    assert unknown == []


def test_pictures_are_those_of_their_lines_of_words(drawings: Any) -> None:
    for name, diagram in drawings.DIAGRAMS.items():
        picture = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        is_current = picture == drawings.draw(diagram)
        assert is_current, f"docs/pictures/{name}.svg is out of date; run: make docs"


def test_table_of_records_shows_fields_and_marks_gains(fill_pages: Any) -> None:
    table = fill_pages.record_table("evidence.json, overview: method | adapter | n | labeled | mipro | copro")
    lines = table.splitlines()
    assert lines[0] == "| method | adapter | n | labeled | mipro | copro |"
    assert "| h2memory | chat | 12 | **.725** | = | - |" in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"mean": 0.5, "interval": [-0.25, 1]}, "+0.500 [-0.250, +1.000]"),
        ({"mean": 0.5, "interval": None}, "+0.500"),
        ({"score": 0.5, "interval": [0.25, 1]}, "0.500 [0.250, 1.000]"),
        ({"score": 0.5, "interval": None}, "0.500"),
    ],
)
def test_a_number_without_an_interval_stands_alone(fill_pages: Any, value: dict[str, Any], text: str) -> None:
    assert fill_pages.format_value(value) == text


def test_table_of_settings_shows_defaults_bounds_and_choices(fill_pages: Any) -> None:
    lines = fill_pages.settings_table("mempiler.programs.pgr.method:PGRSettings").splitlines()
    assert "| `every` | 3 | sessions per update; what is left is written at the end of the history; at least 1 |" in lines
    (strategy,) = [line for line in lines if line.startswith("| `strategy` |")]
    assert strategy.endswith("; tree or chain |")


def test_a_table_replaces_the_old_one_between_its_comments(fill_pages: Any) -> None:
    begin = "<!-- table: evidence.json, weights: rung -->"
    text = f"Before.\n\n{begin}\n\n| old |\n\n<!-- end -->\n\nAfter.\n"
    filled = fill_pages.fill(text)
    assert filled.startswith(f"Before.\n\n{begin}\n\n| rung |\n| --- |\n| zero-shot |\n")
    assert filled.endswith("|\n\n<!-- end -->\n\nAfter.\n")
    assert "old" not in filled
    assert fill_pages.fill(filled) == filled


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("<!-- table: evidence.json, overview: nothing -->\n<!-- end -->", LookupError, "no record has"),
        ("<!-- list: nothing -->\n<!-- end -->", LookupError, "there is no list 'nothing'"),
        ("<!-- list: methods -->", ValueError, "has no <!-- end -->"),
        ("<!-- list: methods -->\n<!-- list: methods -->\n<!-- end -->", ValueError, "has no <!-- end -->"),
        ("<!-- end -->", ValueError, "before a table has begun"),
    ],
)
def test_what_cannot_be_filled_is_an_error(text: str, error: type[Exception], message: str, fill_pages: Any) -> None:
    with pytest.raises(error, match=message):
        fill_pages.fill(text)


def test_methods_benchmarks_and_optimizers_are_all_on_their_pages() -> None:
    methods = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "methods").glob("*.md")}
    own = "\n".join(text for name, text in methods.items() if name != "index")
    assert [name for name in METHODS if f"`{name}`" not in own] == []
    assert [name for name in POLICIES if f"`{name}+METHOD`" not in own] == []
    for name, entry in {**METHODS, **POLICIES}.items():
        model = import_object("method", entry.path).Settings
        if model.model_fields:
            assert f"<!-- settings: {model.__module__}:{model.__name__} -->" in own, name
    for page, names in (("methods/index", METHODS), ("benchmarks", BENCHMARKS), ("optimizers", OPTIMIZERS)):
        shown = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert [name for name in names if f"| `{name}` |" not in shown] == []


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    named = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    errors = {name for name in vars(mempiler.errors) if name.endswith("Error")}
    assert set(mempiler.__all__) - named - errors == {"__version__", "optimizers"}
    assert {optimizer.__name__ for optimizer in OPTIMIZERS.values()} <= named


def test_pictures_are_small_and_all_shown() -> None:
    pages = [ROOT / "README.md", *(DOCS / page for page in SITE_PAGES)]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for picture in (DOCS / "pictures").iterdir():
        assert picture.stat().st_size < 150_000
        assert f"pictures/{picture.name})" in text


PIECES = [("stdout", "\x1b[1mstd\x1b"), ("stderr", "stderr\n"), ("stdout", "[0mout\n")]
"""What a cell prints, cut within a colour."""


def test_notebooks_are_kept_without_what_they_print_and_shown_with_it_and_no_progress(hooks: Any) -> None:
    for page in DOCS.rglob("*.ipynb"):
        notebook = json.loads(page.read_text(encoding="utf-8"))
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
        assert hooks.notebook_page(notebook).startswith("# ")
    told = [{"output_type": "stream", "name": name, "text": [text]} for name, text in PIECES]
    cells = [{"cell_type": "code", "source": ["f()"], "outputs": told}]
    assert hooks.notebook_page({"cells": cells}) == "```python\nf()\n```\n\n```text\nstdout\n```\n"


def test_tests_that_pages_name_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*DOCS.rglob("*.md"), ROOT / "README.md"])
    named = {Path(name).name for name in re.findall(r"`([\w/]*\btest_\w+\.py)`", text)}
    assert len(named) > 8
    assert named - {path.name for path in (ROOT / "tests").rglob("test_*.py")} == set()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built: make site")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with Browser() as found:
        yield found


@pytest.mark.parametrize("name", SHOWN)
def test_a_built_page_is_fit_for_everybody_and_fetches_nothing(browser: Browser, name: str) -> None:
    browser.open(SITE / name)
    for scheme in ("default", "slate"):
        browser.evaluate(f"document.body.setAttribute('data-md-color-scheme', '{scheme}')")
        # Colours change by and by.
        browser.evaluate("new Promise((done) => setTimeout(done, 400))")
        assert serious_faults(browser) == [], scheme
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
    assert browser.errors == []


PAGE = (Path(__file__).parents[1] / "docs" / "coverage.md").read_text(encoding="utf-8")
_SYMBOL = re.compile(r"`(mempiler(?:\.\w+)+)`")


def _exists(symbol: str) -> bool:
    """Whether a dotted name is a module, or an attribute or field that is reached through one."""
    parts = symbol.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            fields = getattr(found, "model_fields", {})
            if part not in fields and not hasattr(found, part):
                return False
            found = fields[part] if part in fields else getattr(found, part)
        return True
    return False


def test_the_page_names_symbols_that_exist_and_misses_no_signature_or_method() -> None:
    named = dict.fromkeys(_SYMBOL.findall(PAGE))
    assert [symbol for symbol in named if not _exists(symbol)] == []
    symbols = (f"{kind.__module__}.{kind.__qualname__}" for kind in (*suite(), *map(method_class, METHODS)))
    assert [symbol for symbol in symbols if symbol not in named] == []


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")
(COMPILE, LOAD) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
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


AGENT = COMPILE[: COMPILE.index("# trainset")]
"""The module and the metric of the README, which stand above the call that compiles them."""


@pytest.mark.slow
def test_the_first_code_of_the_readme_compiles_and_saves_a_module(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "runs"))
    Path("agent.py").write_text(COMPILE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    names = runpy.run_path("agent.py", run_name="__main__")
    assert names["result"].before.n == 20
    assert {path.name for path in Path("my-program").iterdir()} == {"manifest.json", "state.json"}


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

    own = under("From the command line")
    assert [words[0] for words in own] == ["evaluate", "compile", "compile", "show", "serve", "compile"]
    for words in [*own[:4], own[5]]:
        code, out, err = cli(*words)
        assert code == 0, (words, err)
        assert out, (words, err)

    lm = language_model(server.model, api_base=server.url, cache=False)
    found: dict[str, Any] = {"lm": lm, "mempiler": mempiler}
    exec(compile(LOAD.replace('dspy.LM("openai/gpt-4.1-mini")', "lm"), "README.md", "exec"), found)
    asked = found["memory"].ask("Where does Ada live?")
    assert "Lisbon" in asked.answer
    assert asked.context.sources

    _, ask, _, publish = under("In production")
    code, out, _ = cli(*ask, "--lm", server.model)
    assert code == 0
    assert out.splitlines()[0] == asked.answer
    assert cli(*publish)[0] == 0
    assert mempiler.load("models:/memory@prod").memory


@pytest.mark.slow
def test_the_figures_of_the_smoke_test_are_those_of_its_command(cli):
    told = " ".join(README.partition("\nWithout `--lm`")[2].split())
    _, out, _ = cli("compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "knn", "--force", "--json")
    found = json.loads(out)
    change = found["difference"]
    figures = (found["before"]["score"], found["after"]["score"], change["mean"], *change["interval"])
    before, after, gain, low, high = (f"{figure:+.3f}".replace("0.", ".") for figure in figures)
    said = f"gives {before[1:]} -> {after[1:]} on the bundled sample, {gain} [{low}, {high}], n = {change['n']}."
    assert said in told


@pytest.mark.slow
def test_the_compiled_prompt_of_the_page_is_what_the_command_makes(cli, tmp_path):
    page = (DOCS / "optimizers.md").read_text(encoding="utf-8")
    section = page.partition("## A compiled prompt")[2].partition("\n## ")[0]
    shown_texts = re.findall(r"^```text\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    folder = str(tmp_path / "program")
    cli("compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "knn", "--force", "--out", folder)
    _, prompts, _ = cli("show", folder, "--prompts")
    printed_lines = set(prompts.splitlines())
    for text in shown_texts:
        assert set(text.splitlines()) - printed_lines == set()


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
def test_an_example_of_a_docstring_runs(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    doctest.DocTestRunner().run(example, out=told.append, clear_globs=False)
    assert not told, "".join(told)

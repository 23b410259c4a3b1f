"""The documentation: its pages, links, tables, pictures and notebooks, and the built site.

A generated table stands in a page between two comments, of which the first says what is in it, such
as `<!-- list: methods -->`. The module `fill_pages` writes it there. The tables of results come
from records in `docs/data/evidence.json`.
"""

import importlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import mempiler
import pytest
import yaml
from mempiler.data.catalog import BENCHMARKS
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.programs.catalog import method_class
from mempiler.programs.names import METHODS, POLICIES
from mempiler.records.import_object import import_object

from tests.browser import CHROMIUM, Browser, serious_faults
from tests.conftest import suite

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / ".site"
MARKDOWN_PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
NOTEBOOKS = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.ipynb"))
SITE_PAGES = MARKDOWN_PAGES + NOTEBOOKS


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module by which mkdocs shows notebooks."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("hooks")


@pytest.fixture
def fill_pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that writes tables into pages."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("fill_pages")


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that draws the pictures."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("drawings")


def pages_of_navigation(navigation: Any) -> list[str]:
    """Return the pages of a part of the navigation, which is a page, a list or a named part."""
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    pages: list[str] = []
    for part in parts:
        pages.extend(pages_of_navigation(part))
    return pages


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    # A notebook is shown as a page of its name.
    shown_notebooks = [str(Path(notebook).with_suffix(".md")) for notebook in NOTEBOOKS]

    pages = pages_of_navigation(navigation)

    assert sorted(pages) == sorted(MARKDOWN_PAGES + shown_notebooks)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as mkdocs names them.

    Of several headings that are equal, the first has the plain name.
    """
    text = page.read_text(encoding="utf-8")
    text_without_code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text_without_code, re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        anchors.add(re.sub(r"[-\s]+", "-", words))
    return anchors


@pytest.mark.parametrize("name", SITE_PAGES)
def test_links_lead_to_pages_and_headings(name: str) -> None:
    page = DOCS / name
    links = re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text(encoding="utf-8"))

    broken_links: list[str] = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_page = target.is_file() and target.is_relative_to(DOCS)
        if not is_page or (anchor and anchor not in anchors_of(target)):
            broken_links.append(link)
    assert broken_links == []


@pytest.mark.parametrize("name", MARKDOWN_PAGES)
def test_generated_tables_of_a_page_are_current(name: str, fill_pages: Any) -> None:
    """`fill` returns the text of a page with its tables written anew."""
    text = (DOCS / name).read_text(encoding="utf-8")
    is_current = fill_pages.fill(text) == text

    assert is_current, f"a generated table of docs/{name} is out of date; run: {fill_pages.COMMAND}"


@pytest.mark.parametrize("name", MARKDOWN_PAGES)
def test_a_page_has_no_comments_but_those_around_tables(name: str, fill_pages: Any) -> None:
    """A comment with a spelling mistake would show as nothing, and no command would fill it."""
    lines = (DOCS / name).read_text(encoding="utf-8").splitlines()

    unknown_comments: list[str] = []
    for line in lines:
        is_known = line == fill_pages.END or fill_pages.BEGIN.fullmatch(line)
        if "<!--" in line and not is_known:
            unknown_comments.append(line)
    assert unknown_comments == []


def test_pictures_are_drawn_from_their_descriptions(drawings: Any) -> None:
    """`drawings.py` describes each diagram, and `make docs` draws it into an SVG file."""
    for name, diagram in drawings.DIAGRAMS.items():
        picture = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        is_current = picture == drawings.draw(diagram)
        assert is_current, f"docs/pictures/{name}.svg is out of date; run: make docs"


def test_table_of_records_shows_fields_and_marks_gains(fill_pages: Any) -> None:
    """A record of docs/data/evidence.json has the scores of a method after several optimizers.

    In the record of H2Memory, "labeled" gained more than by chance, which is shown as bold. The
    optimizer "mipro" changed nothing ("="), and "copro" was not measured ("-").
    """
    columns = "method | adapter | n | labeled | mipro | copro"
    lines = fill_pages.record_table(f"evidence.json, overview: {columns}").splitlines()

    assert lines[0] == "| method | adapter | n | labeled | mipro | copro |"
    assert "| h2memory | chat | 12 | **.725** | = | - |" in lines


def test_a_table_replaces_the_old_one_between_its_comments(fill_pages: Any) -> None:
    """The table shows the field `rung` of the records under "weights"; the first is "zero-shot"."""
    begin = "<!-- table: evidence.json, weights: rung -->"
    text = f"Before.\n\n{begin}\n\n| old |\n\n<!-- end -->\n\nAfter.\n"

    filled = fill_pages.fill(text)

    assert filled.startswith(f"Before.\n\n{begin}\n\n| rung |\n| --- |\n| zero-shot |\n")
    assert filled.endswith("|\n\n<!-- end -->\n\nAfter.\n")
    assert "old" not in filled


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        pytest.param(
            "<!-- table: evidence.json, overview: nothing -->\n<!-- end -->",
            LookupError,
            "no record has",
            id="unknown column",
        ),
        pytest.param(
            "<!-- list: nothing -->\n<!-- end -->",
            LookupError,
            "there is no list 'nothing'",
            id="unknown list",
        ),
        pytest.param(
            "<!-- list: methods -->",
            ValueError,
            "has no <!-- end -->",
            id="no end",
        ),
        pytest.param(
            "<!-- list: methods -->\n<!-- list: methods -->\n<!-- end -->",
            ValueError,
            "has no <!-- end -->",
            id="one end for two lists",
        ),
        pytest.param(
            "<!-- end -->",
            ValueError,
            "before a table has begun",
            id="no beginning",
        ),
    ],
)
def test_comments_that_cannot_be_filled_are_an_error(
    text: str, error: type[Exception], message: str, fill_pages: Any
) -> None:
    with pytest.raises(error, match=message):
        fill_pages.fill(text)


def test_every_method_and_policy_is_described_on_a_page() -> None:
    """A policy is put before the name of a method, as in `pgr+turn-rag`, and works on top of it."""
    text = text_of_method_pages()

    missing_methods = [name for name in METHODS if f"`{name}`" not in text]
    missing_policies = [name for name in POLICIES if f"`{name}+METHOD`" not in text]
    assert missing_methods == []
    assert missing_policies == []


def test_settings_of_every_method_are_on_its_page() -> None:
    text = text_of_method_pages()

    for name, entry in {**METHODS, **POLICIES}.items():
        settings = import_object("method", entry.path).Settings
        if settings.model_fields:
            comment = f"<!-- settings: {settings.__module__}:{settings.__name__} -->"
            assert comment in text, name


def text_of_method_pages() -> str:
    """Return the text of all pages of methods but their index."""
    pages = [page for page in (DOCS / "methods").glob("*.md") if page.stem != "index"]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("methods/index.md", METHODS),
        ("benchmarks.md", BENCHMARKS),
        ("optimizers.md", OPTIMIZERS),
    ],
)
def test_table_of_the_page_has_a_row_for_each_name(page: str, names: Iterable[str]) -> None:
    """A row of the table begins with the name, as in "| `turn-rag` | ..."."""
    text = (DOCS / page).read_text(encoding="utf-8")

    missing_names = [name for name in names if f"| `{name}` |" not in text]
    assert missing_names == []


def test_reference_has_every_public_name() -> None:
    """A line "::: mempiler.Store" in a page is replaced by the docstrings of that class."""
    pages = (DOCS / "reference").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    paths = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    names_in_reference = {path.rpartition(".")[2] for path in paths}

    # The page on errors shows their module as a whole.
    errors = {name for name in vars(mempiler.errors) if name.endswith("Error")}
    missing = set(mempiler.__all__) - names_in_reference - errors
    optimizer_classes = {optimizer.__name__ for optimizer in OPTIMIZERS.values()}

    assert missing == {"__version__", "optimizers"}
    assert optimizer_classes <= names_in_reference


def test_every_picture_is_small_and_shown() -> None:
    pages = [ROOT / "README.md", *(DOCS / page for page in SITE_PAGES)]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)

    for picture in (DOCS / "pictures").iterdir():
        assert picture.stat().st_size < 150_000
        assert f"pictures/{picture.name})" in text


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_stored_without_its_output(name: str) -> None:
    notebook = json.loads((DOCS / name).read_text(encoding="utf-8"))

    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_shown_as_a_page_with_a_title(name: str, hooks: Any) -> None:
    """The page is Markdown, in which "# " begins the title."""
    notebook = json.loads((DOCS / name).read_text(encoding="utf-8"))

    page = hooks.notebook_page(notebook)

    assert page.startswith("# ")


def test_output_of_a_notebook_is_shown_without_colours_and_progress(hooks: Any) -> None:
    """Jupyter stores a text in pieces, which may be cut within the code of a colour, \\x1b[1m."""
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["\x1b[1mHello \x1b"]},
        {"output_type": "stream", "name": "stderr", "text": ["50 % done\n"]},
        {"output_type": "stream", "name": "stdout", "text": ["[0mworld\n"]},
    ]
    cell = {"cell_type": "code", "source": ["f()"], "outputs": outputs}

    page = hooks.notebook_page({"cells": [cell]})

    assert page == "```python\nf()\n```\n\n```text\nHello world\n```\n"


def test_tests_that_pages_name_exist() -> None:
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named_paths = re.findall(r"`([\w/]*\btest_\w+\.py)`", text)
    named_files = {Path(path).name for path in named_paths}
    existing_files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}

    assert len(named_files) > 8
    assert named_files - existing_files == set()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser; tests that need it are skipped without it, or without a built site."""
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built: make site")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with Browser() as started_browser:
        yield started_browser


@pytest.mark.parametrize("color_scheme", ["default", "slate"])
@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "concepts.html",
        "methods/pgr.html",
        "notebooks/compile.html",
        "reference/methods.html",
    ],
)
def test_built_page_is_accessible_and_fetches_nothing(
    browser: Browser, name: str, color_scheme: str
) -> None:
    """`serious_faults` runs the checker axe-core, which finds what readers with disabilities lack.

    "default" and "slate" are the light and the dark colours of the site.
    """
    browser.open(SITE / name)
    browser.evaluate(f"document.body.setAttribute('data-md-color-scheme', '{color_scheme}')")
    # The page changes its colours in .25 seconds.
    browser.evaluate("new Promise((done) => setTimeout(done, 400))")

    remote_urls = [url for url in browser.requests if not url.startswith(("file:", "data:"))]
    assert serious_faults(browser) == []
    assert remote_urls == []
    assert browser.errors == []


COVERAGE_PAGE = (DOCS / "coverage.md").read_text(encoding="utf-8")


def test_page_on_coverage_names_symbols_that_exist() -> None:
    """The page names code such as `mempiler.programs.pgr.method.PGR`."""
    symbols = set(re.findall(r"`(mempiler(?:\.\w+)+)`", COVERAGE_PAGE))
    assert symbols

    missing_symbols = [symbol for symbol in symbols if not exists(symbol)]
    assert missing_symbols == []


def test_page_on_coverage_names_every_signature_and_method() -> None:
    """The page lists what the papers describe, each with the code that implements it."""
    classes = [*suite(), *(method_class(name) for name in METHODS)]
    symbols = [f"{member.__module__}.{member.__qualname__}" for member in classes]

    missing_symbols = [symbol for symbol in symbols if f"`{symbol}`" not in COVERAGE_PAGE]
    assert missing_symbols == []


def exists(symbol: str) -> bool:
    """Return whether a dotted name is a module, or an attribute or field of what is in one."""
    parts = symbol.split(".")
    for num_module_parts in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:num_module_parts]))
        except ModuleNotFoundError:
            continue
        return has_path(module, parts[num_module_parts:])
    return False


def has_path(root: Any, names: list[str]) -> bool:
    """Return whether an object has an attribute or field, that one has the next, and so on."""
    current = root
    for name in names:
        fields = getattr(current, "model_fields", {})
        if name in fields:
            current = fields[name]
        elif hasattr(current, name):
            current = getattr(current, name)
        else:
            return False
    return True

"""The documentation site: every page is reached, every link leads somewhere, what pages take from the code is there.

`make site` builds it; what it looks like is tried where it was built.
"""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mempiler
import pytest
import yaml
from mempiler.data.catalog import BENCHMARKS
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.programs.catalog import method_class
from mempiler.programs.names import METHODS, POLICIES
from mempiler.records.own_code import imported

from tests.browser import CHROMIUM, Browser, serious_faults
from tests.suite import suite

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / ".site"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")])
SHOWN = ["index.html", "concepts.html", "methods/pgr.html", "notebooks/compile.html", "reference/methods.html"]


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("hooks")


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _leaves(part)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    # A notebook is shown as a page of its name.
    assert sorted(_leaves(nav)) == sorted(str(Path(page).with_suffix(".md")) for page in PAGES)


def _anchors(page: Path) -> set[str]:
    """The headings of a page as mkdocs names them; the first of several that are alike has its plain name."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", each).strip().lower() for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[-\s]+", "-", each) for each in words}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere_and_what_a_page_takes_from_elsewhere_is_there(name: str, hooks: Any) -> None:
    page = DOCS / name
    text, broken = page.read_text(encoding="utf-8"), []
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.is_file() or not found.is_relative_to(DOCS) or (anchor and anchor not in _anchors(found)):
            broken.append(link)
    assert broken == []
    if name.endswith(".md"):
        filled = hooks.filled(text)
        assert "<!-- " not in filled
        assert (filled != text) == ("<!-- " in text)


def test_a_table_shows_columns_of_records_and_what_is_not_there_is_said(hooks: Any) -> None:
    shown = hooks.table("evidence.json, overview: method | adapter | n | labeled | mipro | copro").splitlines()
    assert shown[0] == "| method | adapter | n | labeled | mipro | copro |"
    assert "| h2memory | chat | 12 | **.725** | = | - |" in shown
    with pytest.raises(LookupError, match="no record has"):
        hooks.table("evidence.json, overview: method | nothing")
    with pytest.raises(LookupError, match="there is no heading 'Nothing'"):
        hooks.filled("<!-- section: coverage.md, PGR / Nothing -->")


def test_methods_benchmarks_and_optimizers_are_all_on_their_pages(hooks: Any) -> None:
    methods = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "methods").glob("*.md")}
    own = "\n".join(text for name, text in methods.items() if name != "index")
    assert [name for name in METHODS if f"`{name}`" not in own] == []
    assert [name for name in POLICIES if f"`{name}+METHOD`" not in own] == []
    for name, entry in {**METHODS, **POLICIES}.items():
        model = getattr(imported("method", entry.path), "Settings", None)
        settings = model and f"<!-- settings: {model.__module__}:{model.__name__} -->"
        assert (settings or f"::: {entry.path.replace(':', '.')}\n") in own, name
    for page, names in (("methods/index", METHODS), ("benchmarks", BENCHMARKS), ("optimizers", OPTIMIZERS)):
        shown = hooks.filled((DOCS / f"{page}.md").read_text(encoding="utf-8"))
        assert [name for name in names if f"| `{name}` |" not in shown] == []


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
    named = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    errors = {name for name in vars(mempiler.errors) if name.endswith("Error")}
    assert set(mempiler.__all__) - named - errors == {"__version__"}


def test_pictures_are_small_and_all_shown() -> None:
    pages = [ROOT / "README.md", *(DOCS / page for page in PAGES)]
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
        assert hooks.as_page(notebook).startswith("# ")
    told = [{"output_type": "stream", "name": name, "text": [text]} for name, text in PIECES]
    cells = [{"cell_type": "code", "source": ["f()"], "outputs": told}]
    assert hooks.as_page({"cells": cells}) == "```python\nf()\n```\n\n```text\nstdout\n```\n"


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


def test_the_page_is_right_and_complete() -> None:
    named = dict.fromkeys(_SYMBOL.findall(PAGE))
    assert [symbol for symbol in named if not _exists(symbol)] == []
    symbols = (f"{kind.__module__}.{kind.__qualname__}" for kind in (*suite(), *map(method_class, METHODS)))
    assert [symbol for symbol in symbols if symbol not in named] == []

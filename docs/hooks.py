"""What mkdocs calls while it builds the site: `hooks` in mkdocs.yml names this file.

The pages are built as they are; `fill_pages.py` wrote the generated tables into them. Three things
are left for the build:

- The reference is read from the sources under the name of the package, `mempiler`.
- Each notebook runs and becomes a page that shows what its cells print. A cell that fails ends the
  build.
- What the theme would fetch from another server is served from here.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent

CELL_TIMEOUT = 120
"""Most seconds that a cell of a notebook may take."""

LISTING_PAGES = ("reference/", "coverage", "evidence_", "testing")
"""Pages that list things. A search ranks them below the pages that teach."""

_COLOR_CODES = re.compile(r"\x1b\[[\d;]*m")
_SEARCH_WORKER_URL = "https://unpkg.com/iframe-worker/shim"
"""The script that the theme fetches so that the search works in a page opened from a file."""
_SEARCH_DIALOG = 'data-md-component="search" role="dialog"'


def on_startup(**_: Any) -> None:
    """Make the sources importable as `mempiler`, by a link of that name.

    mkdocstrings reads the sources without importing them, so it does not find a checkout that is
    installed in editable mode.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "mempiler").symlink_to(ROOT)
    sys.path.append(folder)


def on_files(files: Any, config: Any) -> Any:
    """Run every notebook, and add a page for it to the files of the site."""
    from mkdocs.structure.files import File

    notebooks = [file for file in files if file.src_uri.endswith(".ipynb")]
    with tempfile.TemporaryDirectory() as runs_folder:
        for notebook in notebooks:
            executed = run_notebook(DOCS / notebook.src_uri, runs_folder)
            page_path = Path(notebook.src_uri).with_suffix(".md")
            page = File.generated(config, str(page_path), content=notebook_page(executed))
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rank pages that list things low in searches; their text stays as it is."""
    if page.file.src_uri.startswith(LISTING_PAGES):
        page.meta["search"] = {"boost": 0.1}
    return markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Replace the worker that the theme would fetch, and name the search dialog."""
    from mkdocs.utils import get_relative_url

    worker_url = get_relative_url("theme/worker.js", page.url)
    output = output.replace(_SEARCH_WORKER_URL, worker_url)
    return output.replace(_SEARCH_DIALOG, f'{_SEARCH_DIALOG} aria-label="Search"')


def run_notebook(path: Path, runs_folder: str) -> dict[str, Any]:
    """Run a notebook in an empty folder, and return it with the outputs of its cells.

    Args:
        path: The notebook, which is not changed.
        runs_folder: Where Mempiler keeps the runs that the cells start.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails, or a command in it.
    """
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    notebook = nbformat.read(path, as_version=4)
    # Cells call the commands of the environment in which the site is built.
    commands = Path(sys.executable).parent
    environment = {
        **os.environ,
        "MEMPILER_HOME": runs_folder,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
    }

    with tempfile.TemporaryDirectory() as folder:
        # The kernel uses sockets in files: anyone on the machine could connect to a port.
        kernel_config = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/.kernel"}})
        client = NotebookClient(
            notebook,
            config=kernel_config,
            timeout=CELL_TIMEOUT,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=environment)
        text = nbformat.writes(notebook)

    # Readers see the folders that they would have, not the temporary ones.
    text = text.replace(runs_folder, "runs/local").replace(f"{folder}/", "")
    return json.loads(text)


def notebook_page(notebook: Mapping[str, Any]) -> str:
    """Return a notebook as Markdown: its texts, its code, and what the code prints.

    Standard error is left out; it holds nothing but progress.
    """
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue

        parts.append(_code_block(source, "python"))
        # The outputs are joined first: a color code may begin in one and end in the next.
        printed = "".join(_output_text(output) for output in cell["outputs"])
        printed = _COLOR_CODES.sub("", printed).strip("\n")
        if printed:
            parts.append(_code_block(printed, "text"))
    return "\n\n".join(parts) + "\n"


def _output_text(output: Mapping[str, Any]) -> str:
    """Return the text of one output of a cell; nothing for standard error and errors."""
    kind = output["output_type"]
    if kind == "stream" and output["name"] == "stdout":
        return "".join(output["text"])
    if kind in ("execute_result", "display_data"):
        return "".join(output["data"].get("text/plain", "")) + "\n"
    return ""


def _code_block(text: str, language: str) -> str:
    """Return a fenced block; its fence is longer than any run of backticks in the text."""
    longest_run = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest_run + 1)
    return f"{fence}{language}\n{text}\n{fence}"

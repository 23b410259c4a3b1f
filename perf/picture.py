"""The README's picture: the top of the page of a real run, compiled offline on the bundled sample, in a browser.

Usage:
    $ python perf/picture.py        # writes docs/pictures/report.png
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "report.png"
COMMAND = ("compile", "turn-rag", "--on", "locomo", "--with", "knn", "--force")
WIDTH, HEIGHT = 1000, 1000
SEEN = ("ran", "retrieval", "calls", "history", "prompts")
"""Sections that the picture leaves out, so that scores and questions are both in it."""
MOST = 150_000


def main() -> None:
    """Compiles, opens the page and takes the picture."""
    sys.path.insert(0, str(ROOT))
    from tests.browser import Browser

    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        own = {**os.environ, "MEMPILER_HOME": folder}
        subprocess.run([sys.executable, "-m", "mempiler", *COMMAND], env=own, cwd=runs, check=True)
        (page,) = runs.glob("*/report.html")
        with Browser(WIDTH, HEIGHT) as browser:
            browser.media(prefers_color_scheme="light")
            browser.open(page)
            hidden = ", ".join(f"#{name}" for name in SEEN)
            browser.evaluate(f"document.querySelectorAll('{hidden}, .toc').forEach((each) => each.remove())")
            browser.press("j")
            browser.evaluate("scrollTo(0, 0)")
            browser.screenshot(PICTURE, whole=False)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST:
        sys.exit(f"that is more than {MOST:,}")


if __name__ == "__main__":
    main()

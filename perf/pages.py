"""How large the page of a run is, and how long a browser takes to open it: LoCoMo's own shape, 1,986 questions.

A made-up file of ten conversations with as many turns and questions as the genuine one is evaluated twice by turn-rag
with the offline engine, with two depths of recall; the pages of a run and of both side by side are opened in the
system's Chromium.

Usage:
    $ python perf/pages.py [FOLDER]
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONVERSATIONS, SESSIONS, TURNS, QUESTIONS = 10, 27, 22, 1986
"""LoCoMo's ten conversations have 272 sessions, 5,882 turns and 1,986 questions."""
WORDS = 4000


def locomo(seed: int = 0) -> list[dict[str, Any]]:
    """The made-up conversations, as LoCoMo's file has them."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("aeioulnrst", k=chance.randint(3, 9))) for _ in range(WORDS)]
    each, rest = divmod(QUESTIONS, CONVERSATIONS)
    return [_conversation(n, each + (n < rest), chance, words) for n in range(CONVERSATIONS)]


def _conversation(n: int, questions: int, chance: random.Random, words: list[str]) -> dict[str, Any]:
    talk: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Bob"}
    said: dict[str, str] = {}
    for s in range(1, SESSIONS + 1):
        talk[f"session_{s}_date_time"] = f"1:56 pm on {1 + s % 28} May, 2023"
        talk[f"session_{s}"] = []
        for t in range(1, TURNS + 1):
            text = " ".join(chance.choices(words, k=chance.randint(8, 40)))
            said[f"D{s}:{t}"] = text
            talk[f"session_{s}"].append({"speaker": ("Ann", "Bob")[t % 2], "dia_id": f"D{s}:{t}", "text": text})
    asked = []
    for q in range(questions):
        evidence = chance.sample(sorted(said), chance.randint(1, 3))
        found = said[evidence[0]].split()
        question = f"What did Ann say of {' '.join(chance.sample(found, min(5, len(found))))}?"
        asked.append({"question": question, "answer": " ".join(found[:4]), "evidence": evidence, "category": 1 + q % 4})
    return {"sample_id": f"conv-{n}", "conversation": talk, "qa": asked}


def main() -> None:
    """Prints the sizes and times."""
    folder = Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp(prefix="mempiler-pages-"))
    folder.mkdir(exist_ok=True)
    os.environ["MEMPILER_HOME"] = str(folder / "runs")
    from mempiler.runs.compare import recorded
    from mempiler.runs.experiment import run_evaluate
    from mempiler.runs.pages.keep import HTML, as_html, keep_page
    from mempiler.runs.pages.open import open_page, side_by_side
    from mempiler.runs.setup import Setup

    data = folder / "locomo.json"
    data.write_text(json.dumps(locomo()))
    for k in (5, 20):
        run_evaluate("turn-rag", Setup(benchmark="locomo", data=str(data), embedder="offline"), config={"k": k})
    runs = sorted((folder / "runs").glob("*-evaluate-*"))
    pages = [open_page(str(run)) for run in runs]
    (folder / "both.html").write_text(as_html(side_by_side([recorded(str(run)) for run in runs])), encoding="utf-8")
    started = time.process_time()
    keep_page(runs[1], pages[1])
    print(f"written in {time.process_time() - started:.2f} s of CPU")
    spec = importlib.util.spec_from_file_location("browser", Path(__file__).parents[1] / "tests" / "browser.py")
    assert spec is not None
    assert spec.loader is not None
    browser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(browser)
    for file in (*(run / HTML for run in runs), folder / "both.html"):
        size = file.stat().st_size / 1e6
        if browser.CHROMIUM is None:
            print(f"{file.name}: {size:.1f} MB; no Chromium here to open it")
            continue
        with browser.Browser() as window:
            took = window.open(file)
            shown = window.evaluate("document.getElementById('count').textContent")
            filtered = window.evaluate(FILTER)
        print(f"{file.name}: {size:.1f} MB, opened in {took:.2f} s with {shown}; filtered in {filtered:.0f} ms")


FILTER = """(() => {
  const started = performance.now(), field = document.getElementById("f-words");
  field.value = "what";
  field.dispatchEvent(new Event("input"));
  return performance.now() - started;
})()"""


if __name__ == "__main__":
    main()

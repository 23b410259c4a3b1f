"""LongMemEval_S and MovieLens-1M at their genuine size, made by chance, and answered offline from end to end.

The released files may not be passed on, and what a small sample takes says nothing of them. Files of the same form and
size are drawn from a seed: the same seed gives the same bytes.

    longmemeval   500 questions, each about a history of its own: 50 sessions, 480 turns, some 116,000 tokens
    movielens     6,040 users, 3,883 films, 1,000,209 ratings: as many by one user as in the release, 20 to 2,314

`mempiler evaluate` answers them in a process of its own, with turn-rag and the offline engine; the wall time is that of
the process, the memory its highest resident set, the disk what the run's folder holds. Of MovieLens all users that
count are read and split, and a few questions are asked.

Limits: every session is said once, where the release shares many among its questions: here there is more to hold. Words
are drawn by Zipf's law, English stop words first; who searches them well is not measured here.

Usage:
    $ python perf/longmemeval_scale.py
    $ python perf/longmemeval_scale.py --questions 50 --users 600
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cost_row import Row, main
from mempiler.data.longmemeval.reader import TYPES

QUESTIONS, SESSIONS, TURNS = 500, 50, 480
USER_WORDS, ASSISTANT_WORDS = 30, 220
"""Mean words of a turn: with four characters a token, 116,000 tokens a history."""
WORDS = 60_000
USERS, FILMS, RATINGS = 6_040, 3_883, 1_000_209
FEWEST, MOST = 20, 2_314
"""Ratings of one user."""
MINUTE, GIB = 60.0, float(1 << 30)
_STOP = "the of and to a in that it is was i for on you he be with as by at have are this not but had his they from she"
_SYLLABLES = "ba cor dun fel gar hol jun ka lor mi nor pa quin ras sel tor ul ve wen yor zan dri mo stel an er is ton"
_START = datetime(2023, 1, 2, 9, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Ran:
    """What a command took."""

    seconds: float
    gib: float
    """Highest resident set."""
    disk: float
    """GiB in its results folder."""
    found: dict[str, Any]
    """What it printed."""


class Language:
    """Words drawn by Zipf's law.

    Args:
        seed: Draws them.
    """

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        syllables, made = _SYLLABLES.split(), dict[str, None]()
        while len(made) < WORDS:
            made["".join(self.chance.choice(syllables, self.chance.integers(1, 5)))] = None
        self.words = np.array([*_STOP.split(), *made], dtype=object)
        weights = 1 / np.arange(2, len(self.words) + 2)
        self._cumulated = np.cumsum(weights / weights.sum())

    def draw(self, count: int) -> list[str]:
        """So many words."""
        found = np.searchsorted(self._cumulated, self.chance.random(count))
        return list(self.words[np.minimum(found, len(self.words) - 1)])

    def name(self) -> str:
        """A rare word: what questions ask for."""
        return str(self.words[int(self.chance.integers(len(self.words) // 2, len(self.words)))]).capitalize()


def longmemeval(path: Path, questions: int = QUESTIONS, seed: int = 0) -> Path:
    """Writes a file of LongMemEval_S's form."""
    language = Language(seed)
    with path.open("w", encoding="utf-8") as file:
        for n in range(questions):
            file.write("[" if n == 0 else ",\n")
            json.dump(_question(language, n), file)
        file.write("]")
    return path


def _question(language: Language, n: int) -> dict[str, Any]:
    chance, kind = language.chance, TYPES[n % len(TYPES)]
    counts = np.full(SESSIONS, TURNS // SESSIONS) + (np.arange(SESSIONS) < TURNS % SESSIONS)
    evidence = sorted(chance.choice(SESSIONS, 2 if kind == "multi-session" else 1, replace=False).tolist())
    thing, place = language.name(), language.name()
    sessions, ids, dates = [], [], []
    for at in range(SESSIONS):
        turns = [_turn(language, turn) for turn in range(int(counts[at]))]
        if at in evidence:
            said = f"By the way, I keep my {thing} in {place} now. "
            turns[0] = {**turns[0], "content": said + turns[0]["content"], "has_answer": True}
        sessions.append(turns)
        ids.append(f"answer_{n}_{at}" if at in evidence else f"sharegpt_{n}_{at}")
        dates.append((_START + timedelta(days=at, minutes=int(chance.integers(600)))).strftime("%Y/%m/%d (%a) %H:%M"))
    return {
        "question_id": f"q{n:03d}",
        "question_type": kind,
        "question": f"Where do I keep my {thing}?",
        "answer": place,
        "question_date": (_START + timedelta(days=SESSIONS + 1)).strftime("%Y/%m/%d (%a) %H:%M"),
        "haystack_session_ids": ids,
        "haystack_dates": dates,
        "haystack_sessions": sessions,
        "answer_session_ids": [ids[at] for at in evidence],
    }


def _turn(language: Language, number: int) -> dict[str, Any]:
    mean = ASSISTANT_WORDS if number % 2 else USER_WORDS
    words = language.draw(int(language.chance.integers(mean // 2, mean * 3 // 2)))
    return {"role": "assistant" if number % 2 else "user", "content": " ".join(words)}


def movielens(folder: Path, users: int = USERS, seed: int = 0) -> Path:
    """Writes the three files of MovieLens-1M's form."""
    chance, language = np.random.default_rng(seed), Language(seed)
    folder.mkdir(parents=True, exist_ok=True)
    films = [f"{n}::{language.name()} {language.name()} ({1920 + n % 80})::Drama|Comedy" for n in range(1, FILMS + 1)]
    (folder / "movies.dat").write_text("\n".join(films) + "\n", encoding="latin-1")
    people = [
        f"{n}::{'FM'[n % 2]}::{(1, 18, 25, 35, 45, 50, 56)[n % 7]}::{n % 21}::{10_000 + n}" for n in range(1, users + 1)
    ]
    (folder / "users.dat").write_text("\n".join(people) + "\n", encoding="latin-1")
    popular = -np.log(np.arange(1, FILMS + 1))
    with (folder / "ratings.dat").open("w", encoding="latin-1") as file:
        for user, count in enumerate(_counts(chance, users), 1):
            # The films with the highest noisy popularity: drawn by it, none twice.
            seen = np.argsort(-(popular + chance.gumbel(size=FILMS)))[:count] + 1
            times = 956_700_000 + np.sort(chance.integers(0, 90_000_000, count))
            stars = chance.choice([1, 2, 3, 4, 5], count, p=[0.056, 0.107, 0.261, 0.350, 0.226])
            rows = zip(seen.tolist(), stars.tolist(), times.tolist(), strict=True)
            file.writelines(f"{user}::{film}::{star}::{time}\n" for film, star, time in rows)
    return folder


def _counts(chance: np.random.Generator, users: int) -> list[int]:
    """Ratings by user: log-normal with the release's median (96) and mean, and for all users its very sum."""
    counts = np.clip(np.exp(chance.normal(np.log(96), 1.04, users)), FEWEST, MOST)
    wanted = round(RATINGS * users / USERS)
    counts = np.clip(counts * wanted / counts.sum(), FEWEST, MOST).astype(int)
    while counts.sum() != wanted:
        short = int(wanted - counts.sum())
        moved = chance.choice(users, min(abs(short), users), replace=False)
        counts[moved] = np.clip(counts[moved] + np.sign(short), FEWEST, MOST)
    return counts.tolist()


def evaluated(folder: Path, *words: str) -> Ran:
    """What `mempiler evaluate` with these words takes, its results in a folder of their own."""
    home = folder / "home"
    command = [sys.executable, "-m", "mempiler", "evaluate", *words, "--embedder", "offline", "--json"]
    begun = time.monotonic()
    with (folder / "out.json").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, env={**os.environ, "MEMPILER_HOME": str(home)})
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begun
    if status:
        raise SystemExit(f"{' '.join(words)}: ended with {os.waitstatus_to_exitcode(status)}")
    held = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    found = json.loads((folder / "out.json").read_text())
    return Ran(seconds, usage.ru_maxrss * 1024 / GIB, held / GIB, found)


def rows(questions: int = QUESTIONS, users: int = USERS) -> Iterable[Row]:
    """Both benchmarks, each in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = longmemeval(folder / "longmemeval_s.json", questions)
        ran = evaluated(folder, "turn-rag", "--on", "longmemeval", "--metric", "f1", "--data", str(file))
        said = f"n {ran.found['n']}, file of {file.stat().st_size / GIB:.2f} GiB"
        yield Row(
            "LongMemEval_S, turn-rag offline, wall", f"{questions} questions", ran.seconds / MINUTE, 15, "minutes", said
        )
        yield Row("the same, highest resident set", f"{questions} questions", ran.gib, 1.5, "GiB")
        yield Row("the same, the run's folder", f"{questions} questions", ran.disk, 1, "GiB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = movielens(folder / "ml-1m", users)
        asked = ("--data", str(data), "--option", "users=null", "--test", "50")
        ran = evaluated(folder, "truncation", "--on", "movielens", *asked)
        said = f"n {ran.found['n']}, {ran.seconds / MINUTE:.1f} minutes"
        yield Row("MovieLens-1M, truncation offline, memory", f"{users} users", ran.gib, 1, "GiB", said)


def run() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--users", type=int, default=USERS)
    options = parser.parse_args()
    main(lambda: rows(options.questions, options.users))


if __name__ == "__main__":
    run()

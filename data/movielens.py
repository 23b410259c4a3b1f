"""MovieLens-1M as behaviour prediction: which rating, 1 to 5, a user gives the next movie (Harper & Konstan 2015).

The genuine files are `ml-1m.zip` of GroupLens, or the folder in it: latin-1 lines with "::" between columns; the form
is taken from its README. The set may not be passed on: the sample is our own, no real person's taste, and easier.

PraMem (section 4.1, Figure 3) takes users with more than 300 ratings and asks for the next one as one of five classes,
compared by confusion matrices. The newest ratings of a user are asked, the ones before are the history, those since the
first asked one are `recent`; equal times are in the file's order.

Limits: the paper prints no number for this benchmark, nor how many users and which ratings it asked; ours are
the newest 30 of 100 drawn users. All times are read as UTC, since the time zone of a user is not told.
"""

from __future__ import annotations

import io
import json
import random
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

import dspy
from pydantic import Field

from ..errors import DataError
from ..records import Action, History
from .behavior import OptionAccuracy, RecentRecords, example, format_question, records
from .benchmark import Benchmark
from .confusion import Confusion
from .dataset import Dataset, FindingListener
from .rows import Location
from .scorer import ScoredAnswer, Scorer

RATINGS = ("1", "2", "3", "4", "5")
FIELD = "movie_rating"
"""The name of the question type, as in PraMem's released code."""
SCENE = "movie rating"
ASKED = "Which of the five ratings, lowest first, does the user give?"
_PROFILE = json.loads(Path(__file__).with_name("movielens.json").read_text(encoding="utf-8"))
AGES: Mapping[str, str] = _PROFILE["ages"]
OCCUPATIONS: Sequence[str] = _PROFILE["occupations"]
"""By the code of users.dat."""

_FILES = ("ratings.dat", "users.dat", "movies.dat")
_MOST_BYTES = 2**28
"""Of one table; the largest of MovieLens-1M has 25 million."""
_MOST_DIGITS = 18
_LATEST = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
_YEAR = re.compile(r"(.*\S)\s*\((\d{4})\)")
_WANTED = "MovieLens-1M (https://files.grouplens.org/datasets/movielens/ml-1m.zip)"


@dataclass(frozen=True)
class _Tables:
    ratings: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    """Of each user the times, movies and stars, in the file's order."""
    profiles: dict[str, str] = field(default_factory=dict)
    movies: dict[str, str] = field(default_factory=dict)


class RatingAccuracy(OptionAccuracy):
    """The share of ratings predicted exactly, and what is read off the confusion matrix."""

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Accuracy, macro-F1 and diagonal dominance of the answers that name a rating, and how many name none."""
        found = self.confusion(rows)
        answered = sum(row.failure is None for row in rows)
        return {
            "accuracy": found.accuracy,
            "macro-F1": found.macro_f1,
            "diagonal dominance": found.diagonal_dominance,
            "failed parses": answered - found.n,
        }

    def confusion(self, rows: Sequence[ScoredAnswer]) -> Confusion:
        """Gold against predicted ratings."""
        return Confusion.of(RATINGS, self.label_pairs(rows, RATINGS))


class MovieLens(Benchmark):
    """The share of ratings predicted exactly."""

    name = "movielens"
    task = "behavior-prediction"
    sample = "movielens"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": RatingAccuracy}
    categories: ClassVar[Mapping[str, str]] = {FIELD: "movie rating"}

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        min_ratings: int = 300,
        questions: Annotated[int, Field(ge=1)] = 30,
        users: Annotated[int, Field(ge=1)] | None = 100,
        seed: int = 0,
    ) -> Dataset:
        """Reads the zip, or its folder.

        Args:
            path: One of them.
            on_finding: What findings are told to.
            min_ratings: Users with more ratings count (PraMem, section 4.1).
            questions: Newest ratings of a user that are asked; 30 as OmniBehavior's, the paper gives no number.
            users: How many of the users that count are drawn; None takes all.
            seed: Draws them.
        """
        if min_ratings < questions:
            raise DataError(f"movielens: min_ratings={min_ratings} is less than questions={questions}")
        contents, files = _files(path)
        tables = _tables(contents, on_finding)
        counting = [user for user, found in tables.ratings.items() if len(found) > min_ratings]
        if not counting:
            most = max((len(found) for found in tables.ratings.values()), default=0)
            message = f"no user has more than {min_ratings} ratings (most: {most})"
            Location(on_finding, "ratings.dat").reject("no long history", message)
        if users is not None and len(counting) > users:
            drawn = set(random.Random(seed).sample(sorted(counting), users))
            counting = [user for user in counting if user in drawn]
        asked_of = [_questions(user, tables, questions) for user in counting]
        examples = [each for _, made in asked_of for each in made]
        return Dataset(tuple(history for history, _ in asked_of), tuple(examples), files)


def _questions(user: str, tables: _Tables, count: int) -> tuple[History, list[dspy.Example]]:
    actions = _actions(user, tables)
    anchor = max(len(actions) - count, 0)
    history = records(f"user{user}", tables.profiles.get(user, ""), actions[:anchor])
    since = RecentRecords(history.id, actions[anchor:], anchor)
    return history, [
        example(
            history=history,
            recent=since.until(n),
            id=action.id,
            question=format_question(action, ASKED),
            options=RATINGS,
            answer=action.action.removeprefix("rated "),
            category=FIELD,
        )
        for n, action in enumerate(actions[anchor:])
    ]


def _files(path: Path) -> tuple[dict[str, bytes], tuple[Path, ...]]:
    zipped = path.is_file()
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected ml-1m.zip or its folder, see {_WANTED}")
    try:
        root = zipfile.Path(path) if zipped else path
        places = (root, root / "ml-1m")
        found = {name: place / name for name in _FILES for place in places if (place / name).is_file()}
        missing = [name for name in _FILES if name not in found]
        contents = {name: _content(file) for name, file in found.items()}
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, zlib.error, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error}); expected ml-1m.zip or its folder, see {_WANTED}") from error
    if missing:
        raise DataError(f"{path}: holds no {missing[0]}; expected {_WANTED}")
    return contents, (path,) if zipped else tuple(Path(str(found[name])) for name in _FILES)


def _content(file: Any) -> bytes:
    """Read a table of a folder or of a zip file, whose sizes may be untrue.

    Raises:
        DataError: It is larger than any of MovieLens.
    """
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise DataError(f"{file}: has more than {_MOST_BYTES:,} bytes; expected {_WANTED}")
    return content


def _tables(files: Mapping[str, bytes], on_finding: FindingListener) -> _Tables:
    tables = _Tables()
    for _, (movie, title, genres) in _rows("movies.dat", files, 3, on_finding):
        tables.movies[movie] = _described(title, genres)
    for place, (user, gender, age, occupation, _) in _rows("users.dat", files, 5, on_finding):
        if age not in AGES or _job(occupation) is None:
            place.warn("unknown code", f"age {age!r} or occupation {occupation!r} is no code of the README")
        tables.profiles[user] = _profile(gender, age, occupation)
    for name, table in (("movies.dat", tables.movies), ("users.dat", tables.profiles)):
        if not table:
            Location(on_finding, name).reject("empty file", "holds no row")
    strange: set[str] = set()
    for place, (user, movie, rating, time) in _rows("ratings.dat", files, 4, on_finding):
        if rating not in RATINGS or not _is_number(time) or int(time) > _LATEST:
            message = f"rating {rating!r} is not 1 to 5, or time {time!r} is no number of seconds before the year 2100"
            place.reject("malformed rating", message)
            continue
        if movie not in tables.movies and movie not in strange:
            strange.add(movie)
            place.warn("unknown movie", f"movie {movie} is not in movies.dat; it goes by its number")
        # A million of them share their texts.
        tables.ratings.setdefault(user, []).append((int(time), sys.intern(movie), sys.intern(rating)))
    for user in tables.ratings:
        if user not in tables.profiles:
            Location(on_finding, f"user {user}").warn("unknown user", "is not in users.dat; the profile stays empty")
    return tables


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _rows(
    name: str, files: Mapping[str, bytes], columns: int, on_finding: FindingListener
) -> Iterator[tuple[Location, Sequence[str]]]:
    # Outer columns never hold "::", so what is too much belongs to the title, the second column of movies.dat.
    for number, line in enumerate(io.TextIOWrapper(io.BytesIO(files[name]), "latin-1"), 1):
        parts, place = line.rstrip("\r\n").split("::"), Location(on_finding, f"{name} line {number}")
        if len(parts) > columns == 3:
            parts = [parts[0], "::".join(parts[1:-1]), parts[-1]]
        if len(parts) == columns:
            yield place, parts
        elif line.strip():
            place.reject("malformed row", f"has {len(parts)} columns between '::', expected {columns}")


def _described(title: str, genres: str) -> str:
    match = _YEAR.fullmatch(title.strip())
    name = f'"{match[1]}" ({match[2]})' if match else f'"{title.strip()}"'
    return ", ".join([name, *(genre for genre in genres.split("|") if genre)])


def _profile(gender: str, age: str, occupation: str) -> str:
    sex = {"F": "female", "M": "male"}.get(gender, "not told")
    return f"gender: {sex}; age: {AGES.get(age, 'not told')}; occupation: {_job(occupation) or OCCUPATIONS[0]}"


def _job(code: str) -> str | None:
    return OCCUPATIONS[int(code)] if _is_number(code) and int(code) < len(OCCUPATIONS) else None


def _actions(user: str, tables: _Tables) -> list[Action]:
    rated = sorted(tables.ratings[user], key=lambda each: each[0])
    return [
        Action(
            id=f"u{user}:{n}",
            time=datetime.fromtimestamp(time, UTC).replace(tzinfo=None),
            scene=SCENE,
            situation=tables.movies.get(movie) or f"movie {movie}",
            action=f"rated {stars}",
            questions=(ASKED,),
        )
        for n, (time, movie, stars) in enumerate(rated, 1)
    ]

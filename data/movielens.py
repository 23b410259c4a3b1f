"""MovieLens-1M as behaviour prediction: which rating a user gives the next movie, 1 to 5.

Source: Harper & Konstan 2015. The genuine files are `ml-1m.zip` of GroupLens, or the folder in it:
latin-1 lines with "::" between columns; the form is taken from its README. The set may not be
passed on: the sample is our own, no real person's taste, and easier.

PraMem (section 4.1, Figure 3) takes users with more than 300 ratings and asks for the next one as
one of five classes, compared by confusion matrices. The newest ratings of a user are asked, the
ones before are the history, and those since the first asked one are `recent`. Equal times are in
the file's order.

Limits: the paper prints no number for this benchmark, nor how many users and which ratings it
asked; ours are the newest 30 of 100 drawn users. All times are read as UTC, since the time zone of
a user is not told.
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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

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

_CODES = json.loads(Path(__file__).with_name("movielens.json").read_text(encoding="utf-8"))
AGES: Mapping[str, str] = _CODES["ages"]
"""Age groups by the code of users.dat."""
OCCUPATIONS: Sequence[str] = _CODES["occupations"]
"""Occupations by the code of users.dat, from 0."""
_GENDERS = {"F": "female", "M": "male"}
_UNKNOWN = "not told"

_RATINGS_FILE = "ratings.dat"
_USERS_FILE = "users.dat"
_MOVIES_FILE = "movies.dat"
_FILES = (_RATINGS_FILE, _USERS_FILE, _MOVIES_FILE)

_MAX_TABLE_BYTES = 2**28
"""Most bytes of one table; the largest of MovieLens-1M has 25 million."""
_MAX_DIGITS = 18
"""Most digits of a number."""
_LATEST_TIME = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
_TITLE_WITH_YEAR = re.compile(r"(.*\S)\s*\((\d{4})\)")
_EXPECTED = "MovieLens-1M (https://files.grouplens.org/datasets/movielens/ml-1m.zip)"


class _Rating(NamedTuple):
    """A rating of one user."""

    time: int
    """Seconds since 1970."""
    movie: str
    stars: str


@dataclass(frozen=True)
class _Tables:
    """The three tables; users and movies are named by their numbers."""

    ratings: Mapping[str, Sequence[_Rating]]
    """The ratings of each user, in the file's order."""
    profiles: Mapping[str, str]
    """Each user in words."""
    movies: Mapping[str, str]
    """Each movie in words."""


class RatingAccuracy(OptionAccuracy):
    """The share of ratings predicted exactly, and what is read off the confusion matrix."""

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return figures of the answers that name a rating, and how many answers name none."""
        confusion = self.confusion(rows)
        num_answered = sum(row.failure is None for row in rows)
        return {
            "accuracy": confusion.accuracy,
            "macro-F1": confusion.macro_f1,
            "diagonal dominance": confusion.diagonal_dominance,
            "failed parses": num_answered - confusion.n,
        }

    def confusion(self, rows: Sequence[ScoredAnswer]) -> Confusion:
        """Return the matrix of gold against predicted ratings."""
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
        """Read the zip, or its folder.

        Args:
            path: The zip or the folder.
            on_finding: Receives what is reported.
            min_ratings: Users with more ratings are candidates (PraMem, section 4.1).
            questions: How many of a user's newest ratings are asked. It is 30 as for OmniBehavior;
                the paper gives no number.
            users: How many of the candidates are drawn; None takes all.
            seed: Draws them.
        """
        if min_ratings < questions:
            raise DataError(
                f"movielens: min_ratings={min_ratings} is less than questions={questions}"
            )
        contents = _read_contents(path)
        tables = _read_tables(contents, on_finding)

        candidates = [
            user for user, ratings in tables.ratings.items() if len(ratings) > min_ratings
        ]
        if not candidates:
            most = max((len(ratings) for ratings in tables.ratings.values()), default=0)
            problem = f"no user has more than {min_ratings} ratings (most: {most})"
            Location(on_finding, _RATINGS_FILE).reject("no long history", problem)
        if users is not None and len(candidates) > users:
            drawn_users = set(random.Random(seed).sample(sorted(candidates), users))
            candidates = [user for user in candidates if user in drawn_users]

        histories: list[History] = []
        examples: list[dspy.Example] = []
        for user in candidates:
            user_examples = _make_examples(user, tables, questions)
            histories.append(user_examples[0].history)
            examples.extend(user_examples)
        return Dataset(tuple(histories), tuple(examples), contents.files)


def _make_examples(user: str, tables: _Tables, count: int) -> list[dspy.Example]:
    """Return questions about the newest `count` ratings of a user, which all have one history."""
    actions = _make_actions(user, tables)
    end_of_history = max(len(actions) - count, 0)
    profile = tables.profiles.get(user, "")
    history = records(f"user{user}", profile, actions[:end_of_history])
    asked_actions = actions[end_of_history:]
    recent = RecentRecords(history.id, asked_actions, end_of_history)

    examples: list[dspy.Example] = []
    for number, action in enumerate(asked_actions):
        examples.append(
            example(
                history=history,
                recent=recent.until(number),
                id=action.id,
                question=format_question(action, ASKED),
                options=RATINGS,
                answer=action.action.removeprefix("rated "),
                category=FIELD,
            )
        )
    return examples


def _make_actions(user: str, tables: _Tables) -> list[Action]:
    """Return the ratings of a user as actions, in time order."""
    ratings = sorted(tables.ratings[user], key=lambda rating: rating.time)
    actions: list[Action] = []
    for number, rating in enumerate(ratings, 1):
        action = Action(
            id=f"u{user}:{number}",
            time=datetime.fromtimestamp(rating.time, UTC).replace(tzinfo=None),
            scene=SCENE,
            situation=tables.movies.get(rating.movie) or f"movie {rating.movie}",
            action=f"rated {rating.stars}",
            questions=(ASKED,),
        )
        actions.append(action)
    return actions


@dataclass(frozen=True)
class _Contents:
    """What the three tables hold, and where they were read."""

    tables: Mapping[str, bytes]
    """The contents by the names of the files."""
    files: tuple[Path, ...]
    """The zip, or the three files."""


def _read_contents(path: Path) -> _Contents:
    """Read the three tables, from a zip or a folder.

    The tables lie at the top of it, or in its folder ml-1m.

    Raises:
        DataError: A table is missing or cannot be read.
    """
    if not path.exists():
        raise DataError(
            f"{path}: no such file or folder; expected ml-1m.zip or its folder, see {_EXPECTED}"
        )
    try:
        root = zipfile.Path(path) if path.is_file() else path
        files = _find_tables(root)
        tables = {name: _read_table(file) for name, file in files.items()}
    # Most of these come from zip files that are damaged, encrypted or packed in an unknown way.
    except (
        zipfile.BadZipFile,
        OSError,
        RuntimeError,
        ValueError,
        zlib.error,
        EOFError,
    ) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); expected ml-1m.zip or its folder, see {_EXPECTED}"
        ) from error

    for name in _FILES:
        if name not in tables:
            raise DataError(f"{path}: holds no {name}; expected {_EXPECTED}")
    if path.is_file():
        return _Contents(tables, files=(path,))
    return _Contents(tables, files=tuple(Path(str(files[name])) for name in _FILES))


def _find_tables(root: Path | zipfile.Path) -> dict[str, Path | zipfile.Path]:
    """Return the files of the tables by name; the one in the folder ml-1m if there are two."""
    files: dict[str, Path | zipfile.Path] = {}
    for name in _FILES:
        for folder in (root, root / "ml-1m"):
            if (folder / name).is_file():
                files[name] = folder / name
    return files


def _read_table(file: Path | zipfile.Path) -> bytes:
    """Read a table of a folder or of a zip file, whose sizes may be untrue.

    Raises:
        DataError: It is larger than any of MovieLens.
    """
    with file.open("rb") as stream:
        content = stream.read(_MAX_TABLE_BYTES + 1)
    if len(content) > _MAX_TABLE_BYTES:
        raise DataError(f"{file}: has more than {_MAX_TABLE_BYTES:,} bytes; expected {_EXPECTED}")
    return content


def _read_tables(contents: _Contents, on_finding: FindingListener) -> _Tables:
    """Read the rows of the tables of movies, users and ratings, and report what is wrong in them.

    Movies are read first, because ratings refer to them.
    """
    movies = _read_movies(contents.tables[_MOVIES_FILE], on_finding)
    profiles = _read_profiles(contents.tables[_USERS_FILE], on_finding)
    for name, table in ((_MOVIES_FILE, movies), (_USERS_FILE, profiles)):
        if not table:
            Location(on_finding, name).reject("empty file", "holds no row")

    ratings = _read_ratings(contents.tables[_RATINGS_FILE], movies, on_finding)
    for user in ratings:
        if user not in profiles:
            # Without a profile the ratings can still be used.
            problem = "is not in users.dat; the profile stays empty"
            Location(on_finding, f"user {user}").warn("unknown user", problem)
    return _Tables(ratings, profiles, movies)


def _read_movies(content: bytes, on_finding: FindingListener) -> dict[str, str]:
    """Return a description of each movie, by the movie's number."""
    movies: dict[str, str] = {}
    for row in _read_rows(_MOVIES_FILE, content, num_columns=3, on_finding=on_finding):
        movie, title, genres = row.cells
        movies[movie] = _describe_movie(title, genres)
    return movies


def _read_profiles(content: bytes, on_finding: FindingListener) -> dict[str, str]:
    """Return a description of each user, by the user's number.

    Codes of an age or an occupation that the README does not list are reported.
    """
    profiles: dict[str, str] = {}
    for row in _read_rows(_USERS_FILE, content, num_columns=5, on_finding=on_finding):
        user, gender, age, occupation, _ = row.cells
        if age not in AGES or _occupation(occupation) is None:
            problem = f"age {age!r} or occupation {occupation!r} is no code of the README"
            row.location.warn("unknown code", problem)
        profiles[user] = _describe_user(gender, age, occupation)
    return profiles


def _read_ratings(
    content: bytes, movies: Mapping[str, str], on_finding: FindingListener
) -> dict[str, list[_Rating]]:
    """Return the ratings of each user in the file's order; report those that are broken or odd."""
    ratings: dict[str, list[_Rating]] = {}
    unknown_movies: set[str] = set()
    for row in _read_rows(_RATINGS_FILE, content, num_columns=4, on_finding=on_finding):
        user, movie, stars, time = row.cells
        if stars not in RATINGS or not _is_number(time) or int(time) > _LATEST_TIME:
            problem = (
                f"rating {stars!r} is not 1 to 5, or time {time!r} is no number of seconds "
                "before the year 2100"
            )
            row.location.reject("malformed rating", problem)
            continue
        if movie not in movies and movie not in unknown_movies:
            unknown_movies.add(movie)
            problem = f"movie {movie} is not in movies.dat; it goes by its number"
            row.location.warn("unknown movie", problem)
        # A million ratings share their texts.
        rating = _Rating(int(time), sys.intern(movie), sys.intern(stars))
        ratings.setdefault(user, []).append(rating)
    return ratings


class _TableRow(NamedTuple):
    """A row of a table."""

    location: Location
    cells: Sequence[str]


def _read_rows(
    name: str, content: bytes, num_columns: int, on_finding: FindingListener
) -> Iterator[_TableRow]:
    """Yield the rows of a table; report those with another number of columns.

    Args:
        name: The name of the file, for what is reported.
        content: What it holds.
        num_columns: How many columns it has.
        on_finding: Receives what is reported.
    """
    lines = io.TextIOWrapper(io.BytesIO(content), "latin-1")
    for number, line in enumerate(lines, 1):
        location = Location(on_finding, f"{name} line {number}")
        cells = line.rstrip("\r\n").split("::")
        if num_columns == 3 and len(cells) > num_columns:
            # Outer columns never hold "::", so the rest belongs to a movie's title.
            cells = [cells[0], "::".join(cells[1:-1]), cells[-1]]

        if len(cells) == num_columns:
            yield _TableRow(location, cells)
        elif line.strip():
            problem = f"has {len(cells)} columns between '::', expected {num_columns}"
            location.reject("malformed row", problem)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MAX_DIGITS


def _describe_movie(title: str, genres: str) -> str:
    """Return a movie in words, e.g. '"Heat" (1995), Action, Crime'."""
    title = title.strip()
    match = _TITLE_WITH_YEAR.fullmatch(title)
    name = f'"{match[1]}" ({match[2]})' if match else f'"{title}"'
    genre_names = [genre for genre in genres.split("|") if genre]
    return ", ".join([name, *genre_names])


def _describe_user(gender: str, age: str, occupation: str) -> str:
    """Return a user in words; codes that are unknown are not told."""
    gender_name = _GENDERS.get(gender, _UNKNOWN)
    age_group = AGES.get(age, _UNKNOWN)
    occupation_name = _occupation(occupation) or OCCUPATIONS[0]
    return f"gender: {gender_name}; age: {age_group}; occupation: {occupation_name}"


def _occupation(code: str) -> str | None:
    """Return the occupation of a code; None if the README has no such code."""
    if not _is_number(code) or int(code) >= len(OCCUPATIONS):
        return None
    return OCCUPATIONS[int(code)]

"""The form of MovieLens-1M, and a reader for it: `ml-1m.zip`, the folder in it, or its `ratings.dat`.

    ratings.dat   UserID::MovieID::Rating::Timestamp          (1 to 5; seconds since 1970)
    users.dat     UserID::Gender::Age::Occupation::Zip-code   (age and occupation are codes)
    movies.dat    MovieID::Title (Year)::Genre|Genre          (latin-1; titles may hold colons)

Users with more than `min_ratings` ratings count, their ratings in order of time (equal times in the file's order). The
newest `questions` ratings of a user are asked, the ones before are the history.

Limits: all times are read as UTC, since the time zone of a user is not told. Of the users that count, `users`
are drawn with a seed: PraMem does not say how many it took, nor which ratings it asked.
"""

from __future__ import annotations

import io
import random
import re
import sys
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from ...errors import DataError
from ...records import Action
from ..behavior import Since, asked, example, records
from ..cells import whole_number
from ..dataset import Finding, Note, Reading

RATINGS = ("1", "2", "3", "4", "5")
FIELD = "movie_rating"
"""The name of the question type, as in PraMem's released code."""
SCENE = "movie rating"
ASKED = "Which of the five ratings, lowest first, does the user give?"
AGES: Mapping[str, str] = MappingProxyType(
    {
        "1": "under 18",
        "18": "18 to 24",
        "25": "25 to 34",
        "35": "35 to 44",
        "45": "45 to 49",
        "50": "50 to 55",
        "56": "56 or older",
    }
)
OCCUPATIONS = (
    "not told",
    "teacher or academic",
    "artist",
    "clerk or administrator",
    "university student",
    "customer service",
    "doctor or health care",
    "executive or manager",
    "farmer",
    "homemaker",
    "pupil",
    "lawyer",
    "programmer",
    "retired",
    "sales or marketing",
    "scientist",
    "self-employed",
    "technician or engineer",
    "craftsman",
    "unemployed",
    "writer",
)
"""By the code of users.dat."""

_GIVEN = set(Action.model_fields)
_QUESTIONS = (ASKED,)
_RATED = {stars: f"rated {stars}" for stars in RATINGS}
_FILES = ("ratings.dat", "users.dat", "movies.dat")
_LATEST = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp())
_YEAR = re.compile(r"(.*\S)\s*\((\d{4})\)")
_WANTED = "MovieLens-1M (https://files.grouplens.org/datasets/movielens/ml-1m.zip)"


@dataclass(frozen=True)
class Protocol:
    """Which users and ratings are asked."""

    min_ratings: int = 300
    """A user counts who has more (PraMem, section 4.1)."""
    questions: int = 30
    """Newest ratings of a user that are asked; 30 as OmniBehavior's test actions, the paper gives no number."""
    users: int | None = 100
    """Users drawn from those that count; None takes all."""
    seed: int = 0


@dataclass(frozen=True)
class _Ratings:
    """The ratings of one user in columns: a million objects would take more room than what is made of them."""

    movies: list[str] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    times: array[int] = field(default_factory=lambda: array("q"))

    def add(self, movie: str, stars: str, time: int) -> None:
        self.movies.append(sys.intern(movie))
        self.stars.append(sys.intern(stars))
        self.times.append(time)

    def __len__(self) -> int:
        return len(self.times)

    def ordered(self) -> Iterator[tuple[str, str, int]]:
        """By time, equal times in the file's order."""
        for n in sorted(range(len(self)), key=self.times.__getitem__):
            yield self.movies[n], self.stars[n], self.times[n]


@dataclass(frozen=True)
class _Tables:
    """The three files, read."""

    ratings: dict[str, _Ratings] = field(default_factory=dict)
    profiles: dict[str, str] = field(default_factory=dict)
    movies: dict[str, str] = field(default_factory=dict)


def read_movielens(path: Path, note: Note, protocol: Protocol = Protocol()) -> Reading:
    """Reads MovieLens-1M, telling `note` everything that is odd about it.

    Args:
        path: The zip, its folder, or ratings.dat with the others beside it.
        note: A row with a fatal finding is skipped if it does not raise.
        protocol: Which users and ratings are asked.

    Raises:
        DataError: A file is missing, or not of this form.
    """
    tables = _tables(path, note)
    counting = [user for user, found in tables.ratings.items() if len(found) > protocol.min_ratings]
    if not counting:
        most = max((len(found) for found in tables.ratings.values()), default=0)
        message = f"no user has more than {protocol.min_ratings} ratings (most: {most})"
        note(Finding("no long history", "ratings.dat", message, fatal=True))
    if protocol.users is not None and len(counting) > protocol.users:
        drawn = set(random.Random(protocol.seed).sample(sorted(counting), protocol.users))
        counting = [user for user in counting if user in drawn]
    histories, examples = [], []
    for user in counting:
        actions = _actions(user, tables)
        anchor = max(len(actions) - protocol.questions, 0)
        history = records(f"user{user}", tables.profiles.get(user, ""), actions[:anchor])
        since = Since(history.id, actions[anchor:], anchor)
        histories.append(history)
        for n, action in enumerate(actions[anchor:]):
            gold = action.action.removeprefix("rated ")
            made = example(
                history=history,
                recent=since.until(n),
                id=action.id,
                question=asked(action, ASKED),
                options=RATINGS,
                answer=gold,
                category=FIELD,
            )
            examples.append(made)
    return Reading(tuple(histories), tuple(examples))


def files_of(path: Path) -> dict[str, bytes]:
    """The bytes of the three files by name.

    Raises:
        DataError: One is missing, or the zip cannot be read.
    """
    if path.is_file() and zipfile.is_zipfile(path):
        return _unzipped(path)
    folder = path if path.is_dir() else path.parent
    nested = folder / "ml-1m"
    folder = nested if not (folder / _FILES[0]).exists() and nested.is_dir() else folder
    if not path.exists() or (path.is_file() and path.name not in _FILES):
        problem = "no such file" if not path.exists() else "is no zip and none of the three files"
        raise DataError(f"{path}: {problem}; expected ml-1m.zip or its folder, see {_WANTED}")
    for name in _FILES:
        if not (folder / name).is_file():
            raise DataError(f"{folder}: holds no {name}; expected the folder of {_WANTED}")
    return {name: (folder / name).read_bytes() for name in _FILES}


def _unzipped(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            inside = {Path(name).name: name for name in archive.namelist()}
            for name in _FILES:
                if name not in inside:
                    raise DataError(f"{path}: holds no {name}; expected {_WANTED}")
            return {name: archive.read(inside[name]) for name in _FILES}
    except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, zlib.error, EOFError) as error:
        raise DataError(f"{path}: the zip cannot be read ({error}); fetch it again, see {_WANTED}") from error


def _tables(path: Path, note: Note) -> _Tables:
    files, tables = files_of(path), _Tables()
    for _, (movie, title, genres) in _rows("movies.dat", files, 3, note):
        tables.movies[movie] = _described(title, genres)
    for where, (user, gender, age, occupation, _) in _rows("users.dat", files, 5, note):
        if age not in AGES or _job(occupation) is None:
            note(Finding("unknown code", where, f"age {age!r} or occupation {occupation!r} is no code of the README"))
        tables.profiles[user] = _profile(gender, age, occupation)
    for name, table in (("movies.dat", tables.movies), ("users.dat", tables.profiles)):
        if not table:
            note(Finding("empty file", name, "holds no row", fatal=True))
    strange: set[str] = set()
    for where, (user, movie, rating, time) in _rows("ratings.dat", files, 4, note):
        seconds = whole_number(time)
        if rating not in RATINGS or seconds is None or seconds > _LATEST:
            message = f"rating {rating!r} is not 1 to 5, or time {time!r} is no number of seconds before the year 2100"
            note(Finding("malformed rating", where, message, fatal=True))
            continue
        if movie not in tables.movies and movie not in strange:
            strange.add(movie)
            note(Finding("unknown movie", where, f"movie {movie} is not in movies.dat; it goes by its number"))
        tables.ratings.setdefault(user, _Ratings()).add(movie, rating, seconds)
    for user in tables.ratings.keys() - tables.profiles.keys():
        note(Finding("unknown user", f"user {user}", "is not in users.dat; the profile stays empty"))
    return tables


def _rows(name: str, files: Mapping[str, bytes], columns: int, note: Note) -> Iterator[tuple[str, Sequence[str]]]:
    # Outer columns never hold "::", so what is too much belongs to the title, the second column of movies.dat.
    for number, line in enumerate(io.TextIOWrapper(io.BytesIO(files[name]), "latin-1"), 1):
        parts, where = line.rstrip("\r\n").split("::"), f"{name} line {number}"
        if len(parts) > columns == 3:
            parts = [parts[0], "::".join(parts[1:-1]), parts[-1]]
        if len(parts) == columns:
            yield where, parts
        elif line.strip():
            message = f"has {len(parts)} columns between '::', expected {columns}"
            note(Finding("malformed row", where, message, fatal=True))


def _described(title: str, genres: str) -> str:
    match = _YEAR.fullmatch(title.strip())
    name = f'"{match[1]}" ({match[2]})' if match else f'"{title.strip()}"'
    return ", ".join([name, *(genre for genre in genres.split("|") if genre)])


def _profile(gender: str, age: str, occupation: str) -> str:
    sex = {"F": "female", "M": "male"}.get(gender, "not told")
    return f"gender: {sex}; age: {AGES.get(age, 'not told')}; occupation: {_job(occupation) or OCCUPATIONS[0]}"


def _job(code: str) -> str | None:
    number = whole_number(code)
    return OCCUPATIONS[number] if number is not None and number < len(OCCUPATIONS) else None


def _actions(user: str, tables: _Tables) -> list[Action]:
    # What is in the columns has been checked, and a set of the given fields per rating is half of what it takes.
    return [
        Action.model_construct(
            _GIVEN,
            id=f"u{user}:{n}",
            time=datetime.fromtimestamp(time, UTC).replace(tzinfo=None),
            scene=SCENE,
            situation=tables.movies.get(movie) or f"movie {movie}",
            action=_RATED[stars],
            questions=_QUESTIONS,
        )
        for n, (movie, stars, time) in enumerate(tables.ratings[user].ordered(), 1)
    ]

"""The bundled sample in MovieLens-1M's form: invented users with known tastes, and invented films.

    write_movielens(folder)  ──>  ratings.dat, users.dat, movies.dat

A user's rating of a film is 3, moved by what is true of this user, and by chance:

    preference         two genres are loved (+2), two liked (+1), two found dull (-1) and two hated (-2)
    time-of-day habit  after ten in the evening one more genre is rated 2 higher, or 2 lower, than by day
    change of taste    one loved genre is hated from a moment in the second half of the history on
    chance             one rating in twelve is one point off

What a user watches drifts: some genres are watched in the first months, hardly ever in between, and again at the end,
so that the newest records alone do not tell everything that can be known.

Limits: real ratings are far noisier, films are not drawn by genre, and few tastes are this plain. The sample
shows that something can be learnt, not how regular real users are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SEED = 7
USERS = 8
RATINGS = 500
"""Per user."""
FILMS = 560
SITTING = 5
"""Ratings given one after another."""
GENRES = (
    "Action",
    "Adventure",
    "Animation",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Horror",
    "Musical",
    "Romance",
    "Sci-Fi",
    "Western",
)
_START = datetime(2000, 4, 26, tzinfo=UTC)
_SYLLABLES = re.findall(
    r"\w+", "ba bel cor dun el fa gar hol is jun ka lor mi nor ol pa quin ras sel tor ul ve wen yor zan"
)
_ACCENTED = "éüñåèöçá"
_TITLES = ("{0}", "{0} and {1}", "{0}, The", "{0}: {1}", "Return to {0}", "Letters from {0}", "{0} Nights", "Last {0}")
_AGES = ("1", "18", "25", "35", "45", "50", "56")


@dataclass(frozen=True)
class Taste:
    """What is true of one user."""

    opinions: Mapping[str, int]
    """By genre, from -2 to 2; of a genre that is not in it, none."""
    nightly: str
    """The genre that is rated otherwise late in the evening."""
    night: int
    """By how much."""
    turned: str
    """The loved genre that is hated later."""
    turn: int
    """The number of the rating from which on it is."""
    early: tuple[str, ...]
    """Genres that are watched in the first months and hardly ever later, until the end."""

    def rating(self, genres: Sequence[str], n: int, late: bool) -> int:
        """What the user gives the n-th film, chance aside."""
        opinions = {**self.opinions, **({self.turned: -2} if n >= self.turn else {})}
        move = sum(opinions.get(genre, 0) for genre in genres)
        move += self.night if late and self.nightly in genres else 0
        return max(1, min(5, 3 + move))


def write_movielens(folder: Path, seed: int = SEED) -> None:
    """Writes the three files; the same seed gives the same bytes.

    Args:
        folder: Where to; made if missing.
        seed: Draws everything.
    """
    rng = random.Random(seed)
    films = list(_films(rng))
    people, ratings = [], []
    for user in range(1, USERS + 1):
        people.append(
            f"{user}::{rng.choice('FM')}::{rng.choice(_AGES)}::{rng.randrange(21)}::{rng.randrange(10**5):05}"
        )
        ratings += [f"{user}::{row}" for row in _rated(rng, taste(rng), films)]
    folder.mkdir(parents=True, exist_ok=True)
    titles = [f"{n}::{title}::{'|'.join(genres)}" for n, (title, genres) in enumerate(films, 1)]
    for name, lines in (("movies.dat", titles), ("users.dat", people), ("ratings.dat", ratings)):
        (folder / name).write_bytes(("\n".join(lines) + "\n").encode("latin-1"))


def taste(rng: random.Random) -> Taste:
    """Draws what is true of one user."""
    genres = rng.sample(GENRES, len(GENRES))
    return Taste(
        opinions=dict(zip(genres, (2, 2, 1, 1, -1, -1, -2, -2), strict=False)),
        nightly=genres[8],
        night=rng.choice((-2, 2)),
        turned=genres[0],
        turn=rng.randrange(RATINGS // 2, RATINGS * 2 // 3),
        early=tuple(genres[n] for n in (1, 3, 5, 7, 9)),
    )


def _films(rng: random.Random) -> Iterator[tuple[str, tuple[str, ...]]]:
    taken: set[str] = set()
    for n in range(FILMS):
        names = []
        while len(names) < 2:
            name = "".join(rng.choice(_SYLLABLES) for _ in range(rng.choice((2, 3)))).capitalize()
            if rng.random() < 0.05:
                name += rng.choice(_ACCENTED)
            if name not in taken:
                taken.add(name)
                names.append(name)
        title = f"{rng.choice(_TITLES).format(*names)} ({rng.randrange(1950, 2001)})"
        main = GENRES[n % len(GENRES)]
        other = rng.choice([genre for genre in GENRES if genre != main])
        yield title, tuple(sorted((main, other))) if rng.random() < 0.25 else (main,)


def _rated(rng: random.Random, one: Taste, films: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    left = list(range(len(films)))
    rng.shuffle(left)
    time = _START + timedelta(days=rng.randrange(60))
    for n in range(RATINGS):
        if n % SITTING == 0:
            time = (time + timedelta(days=rng.choice((1, 2, 3)))).replace(
                hour=rng.choice((9, 14, 19, 22, 23)), minute=0
            )
        time += timedelta(seconds=rng.randrange(60, 600))
        place = left.pop(_next(rng, one, films, left, n))
        late = time.hour >= 22
        value = one.rating(films[place][1], n, late)
        if rng.random() < 1 / 12:
            value = max(1, min(5, value + rng.choice((-1, 1))))
        yield f"{place + 1}::{value}::{int(time.timestamp())}"


def _next(
    rng: random.Random, one: Taste, films: Sequence[tuple[str, tuple[str, ...]]], left: Sequence[int], n: int
) -> int:
    """The place in `left` of the next film; in the last forty, any genre comes up."""
    if n >= RATINGS - 40 or rng.random() < 0.05:
        return 0
    early = n < RATINGS // 4
    fitting = (p for p, film in enumerate(left) if any(genre in one.early for genre in films[film][1]) is early)
    return next(fitting, 0)

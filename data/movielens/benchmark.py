"""MovieLens-1M as behaviour prediction: which rating, 1 to 5, a user gives the next movie (Harper & Konstan 2015).

    mempiler evaluate truncation --on movielens --data ml-1m.zip

PraMem (section 4.1, Figure 3) takes users with more than 300 ratings and asks for the next rating as one of five
classes; its result is a picture of confusion matrices, compared by their diagonal dominance. Here: accuracy, macro-F1,
diagonal dominance (`data.confusion`), and the matrix. `reader` says how the files are read.

An example holds `history` (the profile, then all ratings before the asked ones), `recent` (the ratings since),
`question`, `options`, `focus` (inputs; there is no evidence), `answer`, `category` and `id` (labels).

Limits: the paper prints no number for this benchmark, nor how many users and which ratings it asked; ours are
the newest 30 of 100 drawn users. The set may not be passed on (GroupLens): the sample is our own, in the same form;
what it holds is no real person's taste, and it is easier than the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ...errors import DataError
from ..behavior import ChosenOption
from ..benchmark import Benchmark
from ..confusion import Answered, Confusion
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Scorer
from .reader import FIELD, RATINGS, Protocol, files_of, read_movielens


class RatingPredicted(ChosenOption):
    """The share of ratings predicted exactly, and what is read off the confusion matrix."""

    def aggregate(self, rows: Sequence[Answered]) -> dict[str, float]:
        """Accuracy, macro-F1 and diagonal dominance of the answers that name a rating, and how many name none."""
        found = self.confusion(rows)
        answered = sum(row.failure is None for row in rows)
        return {
            "accuracy": found.accuracy,
            "macro-F1": found.macro_f1,
            "diagonal dominance": found.diagonal_dominance,
            "failed parses": answered - found.n,
        }

    def confusion(self, rows: Sequence[Answered]) -> Confusion:
        """Gold against predicted ratings."""
        return Confusion.of(RATINGS, self.parsed(rows, RATINGS))


class MovieLens(Benchmark):
    """The share of ratings predicted exactly."""

    name = "movielens"
    task = "behavior-prediction"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": RatingPredicted}
    categories: ClassVar[Mapping[str, str]] = {FIELD: "movie rating"}

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading:
        return read_movielens(path, note)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        min_ratings: int = Protocol.min_ratings,
        questions: int = Protocol.questions,
        users: int | None = Protocol.users,
        seed: int = Protocol.seed,
        **options: Any,
    ) -> MovieLens:
        """Reads the genuine zip or folder at `path`, or the bundled sample when it is None.

        Args:
            path: `ml-1m.zip`, the folder in it, or its `ratings.dat`.
            min_ratings: Users with more ratings count.
            questions: Newest ratings of a user that are asked.
            users: How many of the users that count are drawn; None takes all.
            seed: Draws them.
            **options: None are known; any is refused.

        Raises:
            DataError: The files are not of this form, no user counts, or a number is out of range.
            UnknownNameError: An option that does not exist.
        """
        cls.refuse_options(options, ("min_ratings", "questions", "users", "seed"))
        if questions < 1 or min_ratings < questions or (users is not None and users < 1):
            asked = f"questions={questions}, min_ratings={min_ratings}, users={users}"
            raise DataError(f"movielens: {asked}: expected 1 <= questions <= min_ratings, and users >= 1")
        protocol = Protocol(min_ratings, questions, users, seed)
        with given_or_sample(path, "movielens") as (where, sample):
            examples = read_movielens(where, refuse_fatal(where), protocol).examples
            contents = [where.read_bytes()] if where.suffix == ".zip" else files_of(where).values()
            return cls(examples, Source.of_all(where, contents, sample))

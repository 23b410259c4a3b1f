"""MovieLens-1M: which ratings are asked, what the records say, broken files, and its metrics.

MovieLens has ratings of movies, from 1 to 5. As a benchmark it asks which rating a user gives to a
movie. The newest ratings of a user are asked, one question each. The ratings before the first
question are the history, from which a method makes its memory. The ratings since then are "recent":
a prompt shows them beside the memory.
"""

import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Behavior, DataError, Profile
from mempiler.data.check import check
from mempiler.data.movielens import MovieLens
from mempiler.records import Failure

from ..runs.evaluations import row as scored_row

# Id, gender, age, occupation and postcode of two users.
USERS = "1::F::25::20::48067\n2::M::56::1::55117-1234\n"
MOVIES = (
    "1::Amélie: Le Film (2001)::Comedy|Romance\n2::Odd::Title (1999)::Drama\n3::No Year::Western\n"
)


@pytest.fixture
def ten_ratings(tmp_path: Path) -> Path:
    """A folder with the files of users and movies, and ten ratings of user 1, newest first.

    They are a second apart. User 1 rates the movies 1, 2, 3, 1, 2, ... with 1, 2, 3, 4, 5, 1, 2, 3,
    4 and 5.
    """
    ratings: list[str] = []
    for number in reversed(range(10)):
        movie = number % 3 + 1
        rating = number % 5 + 1
        time = 978300760 + number  # 31 December 2000, 22:12:40, and so on
        ratings.append(f"1::{movie}::{rating}::{time}")
    write_files(tmp_path, ratings)
    return tmp_path


def write_files(folder: Path, ratings: list[str]) -> None:
    """Write the three files of MovieLens: users, movies, and these ratings."""
    (folder / "users.dat").write_text(USERS, encoding="latin-1")
    (folder / "movies.dat").write_text(MOVIES, encoding="latin-1")
    lines = [f"{rating}\n" for rating in ratings]
    (folder / "ratings.dat").write_text("".join(lines), encoding="latin-1")


def append_ratings(folder: Path, lines: list[str]) -> None:
    """Add lines to the file of ratings."""
    with (folder / "ratings.dat").open("a", encoding="latin-1") as file:
        file.writelines(f"{line}\n" for line in lines)


def load(path: Path, questions: int = 3, min_ratings: int = 4, **options: Any) -> MovieLens:
    """Load the questions about each user who has more than `min_ratings` ratings."""
    return MovieLens.load(path, questions=questions, min_ratings=min_ratings, **options)


def actions_in(items: Any) -> list[Any]:
    """Return the actions of a history, or of recent items."""
    actions: list[Any] = []
    for item in items:
        if isinstance(item, Behavior):
            actions.extend(item.actions)
    return actions


def recent_ids(example: dspy.Example) -> list[str]:
    """Return the ids of the recent ratings of a question."""
    return [action.id for action in actions_in(example.recent)]


def users_of(examples: tuple[dspy.Example, ...]) -> set[str]:
    return {example.history.id for example in examples}


def test_the_newest_ratings_are_asked(ten_ratings: Path) -> None:
    """User 1 has ten ratings, and the last three of them are 3, 4 and 5."""
    first, second, third = load(ten_ratings, questions=3).examples

    assert (first.id, first.answer) == ("u1:8", "3")
    assert (second.id, second.answer) == ("u1:9", "4")
    assert (third.id, third.answer) == ("u1:10", "5")


def test_a_question_has_the_ratings_as_options(ten_ratings: Path) -> None:
    """A movie gets a rating from 1 to 5."""
    example = load(ten_ratings).examples[0]

    assert example.options == ["1", "2", "3", "4", "5"]
    assert set(example.inputs().keys()) == {
        "history",
        "recent",
        "question",
        "options",
        "evidence_ids",
    }


def test_users_with_too_few_ratings_are_not_asked(tmp_path: Path) -> None:
    """User 1 has three ratings, and user 2 has two. More than two are needed."""
    ratings = ["1::1::5::10", "1::2::5::11", "1::3::5::12", "2::1::5::10", "2::2::5::11"]
    write_files(tmp_path, ratings)

    loaded = load(tmp_path, questions=1, min_ratings=2)

    assert users_of(loaded.examples) == {"user1"}


def test_the_memory_is_frozen_at_the_first_question_and_what_follows_is_recent(
    ten_ratings: Path,
) -> None:
    """User 1 has ten ratings, a second apart. The first seven are the history of all questions."""
    first, second, third = load(ten_ratings, questions=3).examples

    times = [action.time for action in actions_in(first.history)]
    assert times == [datetime(2000, 12, 31, 22, 12, second) for second in range(40, 47)]
    assert second.history is first.history
    assert third.history is first.history
    assert recent_ids(first) == []
    assert recent_ids(second) == ["u1:8"]
    assert recent_ids(third) == ["u1:8", "u1:9"]


def test_a_question_describes_the_movie_and_not_its_rating(ten_ratings: Path) -> None:
    """The file has the movie 2 as "2::Odd::Title (1999)::Drama"."""
    question = load(ten_ratings).examples[0].question
    assert '"Odd::Title" (1999), Drama' in question
    assert "31 December 2000, Sunday 22:12" in question
    assert "rated" not in question


def test_the_records_of_the_history_say_their_ratings(ten_ratings: Path) -> None:
    """The oldest rating of the user is a 1 for "1::Amélie: Le Film (2001)::Comedy|Romance"."""
    first_action = actions_in(load(ten_ratings).examples[0].history)[0]

    assert first_action.situation == '"Amélie: Le Film" (2001), Comedy, Romance'
    assert first_action.action == "rated 1"


def test_a_history_begins_with_the_profile_in_words(ten_ratings: Path) -> None:
    """The file of users has codes: user 1 is "1::F::25::20::48067"."""
    profile = load(ten_ratings).examples[0].history.items[0]
    assert isinstance(profile, Profile)
    assert profile.turns[0].text == "gender: female; age: 25 to 34; occupation: writer"


@pytest.fixture
def archive(ten_ratings: Path) -> Path:
    """The same files in a zip archive, as they are downloaded."""
    path = ten_ratings / "ml-1m.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("ratings.dat", "users.dat", "movies.dat"):
            file.write(ten_ratings / name, f"ml-1m/{name}")
    return path


def test_an_archive_and_a_folder_read_the_same(ten_ratings: Path, archive: Path) -> None:
    """The questions are the same; the digest of the source tells an archive from a folder."""
    from_folder = load(ten_ratings)
    from_archive = load(archive)

    questions = [example.question for example in from_folder.examples]
    assert [example.question for example in from_archive.examples] == questions
    assert from_folder.source.sha256 != from_archive.source.sha256


def test_an_archive_that_is_cut_short_is_refused(archive: Path) -> None:
    """Only the first 200 bytes of the zip archive are there."""
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read"):
        load(archive)


def test_a_missing_file_is_named(ten_ratings: Path) -> None:
    """MovieLens consists of the files ratings.dat, users.dat and movies.dat."""
    (ten_ratings / "movies.dat").unlink()
    with pytest.raises(DataError, match=r"holds no movies\.dat"):
        load(ten_ratings)


@pytest.fixture
def eight_users(tmp_path: Path) -> Path:
    """A folder with six ratings of each of eight users."""
    ratings: list[str] = []
    for user in range(1, 9):
        ratings.extend(f"{user}::1::3::{second}" for second in range(6))
    write_files(tmp_path, ratings)
    return tmp_path


def test_the_seed_decides_which_users_are_drawn(eight_users: Path) -> None:
    """Three of the eight users are drawn at random."""
    users = users_of(load(eight_users, users=3, seed=0).examples)
    same_seed_users = users_of(load(eight_users, users=3, seed=0).examples)
    other_seed_users = users_of(load(eight_users, users=3, seed=1).examples)

    assert len(users) == 3
    assert len(other_seed_users) == 3
    assert same_seed_users == users
    assert other_seed_users != users


def test_without_a_number_all_users_are_taken(eight_users: Path) -> None:
    """The folder has six ratings of each of eight users."""
    assert len(users_of(load(eight_users, users=None).examples)) == 8


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1::1::6::978300760\n", "rating '6' is not 1 to 5"),
        ("", "no user has more than 4 ratings"),
    ],
)
def test_a_broken_file_of_ratings_is_named(ten_ratings: Path, text: str, problem: str) -> None:
    """A rating is USER::MOVIE::RATING::TIME."""
    (ten_ratings / "ratings.dat").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=f"ratings.dat.*{problem}"):
        load(ten_ratings)


@pytest.mark.parametrize(
    ("line", "kind"),
    [("1::77::3::978300761", "unknown movie"), ("9::1::4::5", "unknown user")],
)
def test_a_rating_of_an_unknown_movie_or_user_is_reported(
    ten_ratings: Path, line: str, kind: str
) -> None:
    """A rating is USER::MOVIE::RATING::TIME. There are the users 1 and 2 and the movies 1 to 3."""
    append_ratings(ten_ratings, [line])

    report = check("movielens", ten_ratings, min_ratings=4, questions=3)

    assert report.kinds[kind] == 1
    assert report.ok


@pytest.mark.parametrize(
    ("line", "kind"), [("1::1::0::5", "malformed rating"), ("1::1::5", "malformed row")]
)
def test_a_malformed_rating_makes_the_file_unusable(
    ten_ratings: Path, line: str, kind: str
) -> None:
    """A rating is USER::MOVIE::RATING::TIME, where RATING is 1 to 5."""
    append_ratings(ten_ratings, [line])

    report = check("movielens", ten_ratings, min_ratings=4, questions=3)

    assert report.kinds[kind] == 1
    assert not report.ok


def test_the_metrics_are_over_all_answers_that_name_a_rating() -> None:
    """Two of the four answers name a rating: "who knows" names none, and the last call failed."""
    failure = Failure(kind="endpoint", where="x", message="dead")
    rows = [
        scored_row("q0", gold="5", answer="5"),
        scored_row("q1", gold="5", answer="rated 4"),
        scored_row("q2", gold="1", answer="who knows"),
        scored_row("q3", gold="1", answer="", failure=failure),
    ]

    figures = MovieLens.make_scorer("accuracy").aggregate(rows)

    assert figures["failed parses"] == 1
    assert figures["accuracy"] == 1 / 2
    # Of the five ratings only 5 has an F1 above 0: its precision is 1, and its recall 1/2.
    f1_of_rating_5 = 2 * 1 * (1 / 2) / (1 + 1 / 2)
    assert figures["macro-F1"] == pytest.approx(f1_of_rating_5 / 5)
    # The gold rating 5 was answered as often by 4 as by 5, so right answers have no lead.
    assert figures["diagonal dominance"] == pytest.approx(0.0)

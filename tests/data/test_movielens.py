"""MovieLens-1M: reading, the protocol, scores, and the bundled sample."""

import zipfile
from datetime import datetime

import pytest
from mempiler import Behavior, DataError, Profile
from mempiler.data.check import check
from mempiler.data.movielens import RATINGS, MovieLens
from mempiler.records import Failure

from ..runs.evaluations import row

USERS = "1::F::25::20::48067\n2::M::56::1::55117-1234\n"
MOVIES = "1::Amélie: Le Film (2001)::Comedy|Romance\n2::Odd::Title (1999)::Drama\n3::No Year::Western\n"


@pytest.fixture
def folder(tmp_path):
    """Ten ratings of user 1, one a second, written newest first; user 2 has three."""
    ratings = [f"1::{n % 3 + 1}::{n % 5 + 1}::{978300760 + n}" for n in range(10)][::-1]
    ratings += [f"2::{n}::5::{978300000 + n}" for n in (1, 2, 3)]
    (tmp_path / "ratings.dat").write_text("\n".join(ratings) + "\n", encoding="latin-1")
    (tmp_path / "users.dat").write_text(USERS, encoding="latin-1")
    (tmp_path / "movies.dat").write_text(MOVIES, encoding="latin-1")
    return tmp_path


def load(path, **options):
    return MovieLens.load(path, **{"min_ratings": 4, "questions": 3, **options})


def actions(items):
    return [action for item in items if isinstance(item, Behavior) for action in item.actions]


def test_the_newest_ratings_are_asked_memory_is_frozen_at_the_first_and_what_follows_is_recent(folder):
    first, second, third = load(folder).examples
    assert [(each.id, each.answer) for each in (first, second, third)] == [("u1:8", "3"), ("u1:9", "4"), ("u1:10", "5")]
    times = [action.time for action in actions(first.history)]
    assert times == [datetime(2000, 12, 31, 22, 12, 40 + n) for n in range(7)]
    assert first.history is second.history is third.history
    recent = [[action.id for action in actions(example.recent)] for example in (first, second, third)]
    assert recent == [[], ["u1:8"], ["u1:8", "u1:9"]]
    assert set(first.inputs().keys()) == {"history", "recent", "question", "options", "focus"}
    assert second.options == list(RATINGS)


def test_no_question_tells_its_rating_and_every_record_before_does_after_the_profile_in_words(folder):
    example = load(folder).examples[0]
    assert "rated" not in example.question
    assert '"Odd::Title" (1999), Drama' in example.question
    assert "31 December 2000, Sunday 22:12" in example.question
    assert all(action.action in {f"rated {n}" for n in RATINGS} for action in actions(example.history))
    assert '"Amélie: Le Film" (2001), Comedy, Romance' in {a.situation for a in actions(example.history)}
    profile = example.history.items[0]
    assert isinstance(profile, Profile)
    assert profile.turns[0].text == "gender: female; age: 25 to 34; occupation: writer"


def test_zip_and_folder_read_the_same_and_a_missing_file_is_named(folder, tmp_path):
    archive = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for name in ("ratings.dat", "users.dat", "movies.dat"):
            made.write(folder / name, f"ml-1m/{name}")
    read = [load(path) for path in (folder, archive)]
    assert len({tuple(example.question for example in found.examples) for found in read}) == 1
    assert read[0].source.sha256 != read[1].source.sha256
    archive.write_bytes(archive.read_bytes()[:200])
    (folder / "movies.dat").unlink()
    problems = {archive: "cannot be read", folder: r"holds no movies\.dat", tmp_path / "x": "no such file"}
    for path, problem in problems.items():
        with pytest.raises(DataError, match=problem):
            load(path)


def test_the_draw_of_users_is_seeded_and_counts(folder):
    rows = [f"{user}::1::3::{n}" for user in range(1, 9) for n in range(6)]
    (folder / "ratings.dat").write_text("\n".join(rows), encoding="latin-1")
    drawn = [{example.history.id for example in load(folder, users=3, seed=seed).examples} for seed in (0, 0, 1)]
    assert [len(users) for users in drawn] == [3, 3, 3]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({example.history.id for example in load(folder, users=None).examples}) == 8


@pytest.mark.parametrize(
    ("text", "message"), [("1::1::6::978300760\n", "rating '6' is not 1 to 5"), ("", "no user has more than 4 ratings")]
)
def test_a_broken_file_is_one_line_that_names_its_place(folder, text, message):
    (folder / "ratings.dat").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=f"ratings.dat.*{message}"):
        load(folder)


def test_a_check_tells_of_all_that_is_odd(folder):
    with (folder / "ratings.dat").open("a", encoding="latin-1") as file:
        file.write("1::77::3::978300761\n9::1::4::5\n1::1::0::5\n1::1::5\n")
    kinds = ("unknown movie", "unknown user", "malformed rating", "malformed row")
    report = check("movielens", folder)
    assert report.kinds.items() >= dict.fromkeys(kinds, 1).items()
    assert not report.ok


def test_the_metrics_are_over_all_answers_that_name_a_rating(folder):
    failed = Failure(kind="endpoint", where="x", message="dead")
    said = [("5", "5", None), ("5", "rated 4", None), ("1", "who knows", None), ("1", "", failed)]
    rows = [row(f"{n}", 0.0, gold=gold, answer=answer, failure=found) for n, (gold, answer, found) in enumerate(said)]
    # Of the five classes only "5" is ever right: F1 2*1/(2+1); its gold went to "5" and "4" alike.
    assert load(folder).scorer.aggregate(rows) == pytest.approx(
        {"accuracy": 1 / 2, "macro-F1": (2 / 3) / 5, "diagonal dominance": 0.0, "failed parses": 1}
    )

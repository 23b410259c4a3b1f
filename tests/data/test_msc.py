"""MSC-Self-Instruct: its sessions, speakers and dates that are counted back."""

from datetime import timedelta

import pytest
from mempiler.data.msc import CURRENT, time_back

from .forms import load


def test_a_full_row(tmp_path):
    (example,) = load(tmp_path, "msc").examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert (example.id, example.question, example.answer) == ("valid_7", "What do you fish for?", "Trout!")
    assert (example.category, example.focus, example.evidence) == ("all", (), ())
    assert [turn.line() for item in example.history for turn in item.turns] == [
        "[D1:1] Speaker 1: Hi!",
        "[D1:2] Speaker 2: Hello, I sing.",
        "[D2:1] Speaker 1: I fish.",
        "[D2:2] Speaker 2: Trout?",
        "[D3:1] Speaker 1: Trout!",
        "[D3:2] Speaker 2: Tasty.",
    ]
    times = [item.time for item in example.history]
    assert times == [CURRENT - timedelta(days=5), CURRENT - timedelta(days=2, hours=3), CURRENT]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("14 days 8 HOURS ago", timedelta(days=14, hours=8)),
        ("2 weeks 30 minutes", timedelta(days=14, minutes=30)),
        ("101 years", None),
        ("99999999999 days", None),
    ],
)
def test_time_back(text, span):
    assert time_back(text) == span


def test_a_speaker_keeps_the_place_after_an_empty_turn(tmp_path):
    said = [{"text": "Hi!"}, {"text": None}, {"text": "Bye."}]
    (example,) = load(tmp_path, "msc", lambda row: row["previous_dialogs"][0].update(dialog=said)).examples
    turns = [(turn.id, turn.speaker) for turn in example.history.items[0].turns]
    assert turns == [("D1:1", "Speaker 1"), ("D1:3", "Speaker 1")]

"""MSC-Self-Instruct: the times of its sessions, and the speakers of its turns.

A row of MSC says of each earlier session only how long ago it was, such as "14 days 8 hours ago".
"""

from datetime import timedelta
from pathlib import Path

import pytest
from mempiler.data.msc import time_back

from .forms import load, put


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("14 days 8 HOURS ago", timedelta(days=14, hours=8)),
        ("2 weeks 30 minutes", timedelta(days=14, minutes=30)),
        ("101 years", None),
        ("99999999999 days", None),
    ],
)
def test_a_time_back_in_words_is_read_as_a_duration(text: str, duration: timedelta | None) -> None:
    assert time_back(text) == duration


def test_a_speaker_is_known_by_the_place_even_after_an_empty_turn(tmp_path: Path) -> None:
    # The turns are those of Speaker 1, Speaker 2 and Speaker 1.
    turns = [{"text": "Hi!"}, {"text": None}, {"text": "Bye."}]
    change = put("previous_dialogs", 0, "dialog", value=turns)

    [example] = load(tmp_path, "msc", change).examples

    first, second = example.history.items[0].turns
    assert (first.id, first.speaker) == ("D1:1", "Speaker 1")
    assert (second.id, second.speaker) == ("D1:3", "Speaker 1")

"""Mem-PAL's Table 1, counted by hand on a small record."""

import json

import pytest
from mempiler.data.palbench.statistics import statistics_of
from mempiler.errors import DataError


def sample(day, logs, turns, topics):
    return {
        "dialogue_timestamp": f"{day} 20:00:00",
        "logs": [{"content": "x"}] * logs,
        "dialogue": {f"turn_{n}": {} for n in range(turns)},
        "topics": {f"topic-{n}": {} for n in range(topics)},
    }


def test_means_are_over_users_and_apart_for_history_and_query(tmp_path):
    file = tmp_path / "input.json"
    one = {
        "history": [sample("2024-01-02", 3, 4, 1), sample("2024-01-20", 1, 2, 1), sample("2024-03-01", 0, 0, 0)],
        "query": [sample("2024-04-01", 5, 6, 2)],
    }
    other = {"history": {"a": sample("2024-02-02", 2, 2, 3)}, "query": []}
    file.write_text(json.dumps({"1": one, "2": other}), encoding="utf-8")
    history, query = statistics_of(file)
    assert (history.users, history.sessions, history.logs, history.turns) == (2, 2.0, 3.0, 4.0)
    assert (history.topics, history.months) == (2.5, 1.5)
    assert (query.sessions, query.logs, query.turns, query.topics, query.months) == (0.5, 2.5, 3.0, 1.0, 0.5)


@pytest.mark.parametrize("text", ["{}", "[]"])
def test_a_file_without_users_is_refused(tmp_path, text):
    file = tmp_path / "input.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"input\.json"):
        statistics_of(file)


def test_the_sample_has_two_languages():
    assert statistics_of()[0].users == sum(statistics_of(language=each)[0].users for each in ("zh", "en"))

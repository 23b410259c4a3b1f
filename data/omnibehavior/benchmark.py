"""OmniBehavior: what users of a platform did next (Chen et al. 2026).

Their records are of videos, live streams, advertisements and products. The files have one of two
forms (see `reader`):

    raw        a folder of JSON files, or one file, of the hub set jiawei-ucas/OmniBehavior
    prepared   PraMem's experiment_data.json

The forms are taken from their documentation (card and released code). The sample is our own; no
real user is in it.

Every yes-or-no field of an asked record is one question, e.g. whether the user follows the author
of a video. The records before a user's first asked one are the history, those of the test period
included. The records after them are `recent`. The experience of practice ends with the history, as
released; every other memory has both. Records that the user did not see (`was_seen`) are in neither
and not asked.

Limits: OmniBehavior's own final score also rates watch seconds and replies to customer service.
They are no yes-or-no questions, and not asked here. Nothing is rounded, where the released code
rounds before it takes means; this differs by .006 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import dspy
from pydantic import Field

from ...records import Action, History
from ...records.token_counts import count_fitting_lines
from ..behavior import OptionAccuracy, RecentRecords, example, format_question, records
from ..benchmark import Benchmark
from ..confusion import Confusion
from ..dataset import Dataset, FindingListener
from ..field_types import read_date
from ..rows import Location
from ..scorer import ScoredAnswer, Scorer
from .periods import Periods
from .reader import (
    UserRecords,
    draw_users,
    find_files,
    find_offsets_file,
    read_offsets,
    read_users,
)
from .records import (
    QUESTIONS,
    TABLE_NAMES,
    RawRecord,
    fields_of,
    gold,
    is_chinese,
    questions_of,
    says_enough,
    scene_of_field,
)
from .text import reaction, situation

OPTIONS = ("Yes", "No")
AtLeastOne = Annotated[int, Field(ge=1)]


class _Metrics(NamedTuple):
    """The two metrics of Table 1."""

    accuracy: float
    f1: float
    """F1 of "Yes"."""


class FieldAccuracy(OptionAccuracy):
    """The share of fields predicted right, and the table by field and scene."""

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return ACC and F1 of every field, of every scene and overall, and count failed parses.

        A failed parse is an answer that names neither "Yes" nor "No". Like the released evaluator,
        ACC and F1 leave such answers out. Two further columns are the overall ACC and F1 if these
        answers count as wrong.
        """
        columns = self._table(rows, failed_parses_are_wrong=False)
        strict_columns = self._table(rows, failed_parses_are_wrong=True)
        for name, value in strict_columns.items():
            if name.startswith("Overall"):
                columns[f"{name}, failed parses wrong"] = value

        # A row with a failure has no answer at all, so it is no failed parse.
        num_answered = sum(row.failure is None for row in rows)
        num_parsed = len(self.label_pairs(rows, OPTIONS))
        columns["failed parses"] = num_answered - num_parsed
        return columns

    def _table(
        self, rows: Sequence[ScoredAnswer], failed_parses_are_wrong: bool
    ) -> dict[str, float]:
        """Return the columns of Table 1: the fields, then their means by scene and overall."""
        field_metrics = self._field_metrics(rows, failed_parses_are_wrong)
        scene_metrics = _scene_metrics(field_metrics)
        table: dict[str, _Metrics] = {}
        for field, metrics in field_metrics.items():
            table[field.replace("_", " ")] = metrics
        for scene, metrics in scene_metrics.items():
            table[TABLE_NAMES[scene]] = metrics
        if scene_metrics:
            table["Overall"] = _mean(list(scene_metrics.values()))

        columns: dict[str, float] = {}
        for name, metrics in table.items():
            columns[f"{name} ACC"] = metrics.accuracy
            columns[f"{name} F1"] = metrics.f1
        return columns

    def _field_metrics(
        self, rows: Sequence[ScoredAnswer], failed_parses_are_wrong: bool
    ) -> dict[str, _Metrics]:
        """Return the metrics of every field that has answers."""
        metrics: dict[str, _Metrics] = {}
        for field in QUESTIONS:
            field_rows = [row for row in rows if row.category == field]
            pairs = self.label_pairs(field_rows, OPTIONS, failed_parses_are_wrong)
            confusion = Confusion.of(OPTIONS, pairs)
            if confusion.n:
                metrics[field] = _Metrics(confusion.accuracy, confusion.f1("Yes"))
        return metrics


def _scene_metrics(field_metrics: Mapping[str, _Metrics]) -> dict[str, _Metrics]:
    """Return the mean over the fields of every scene that has any, in the table's order."""
    scene_metrics: dict[str, _Metrics] = {}
    for scene in TABLE_NAMES:
        metrics_of_scene = [
            metrics for field, metrics in field_metrics.items() if scene_of_field(field) == scene
        ]
        if metrics_of_scene:
            scene_metrics[scene] = _mean(metrics_of_scene)
    return scene_metrics


def _mean(metrics: Sequence[_Metrics]) -> _Metrics:
    """Return the unweighted means of some metrics."""
    return _Metrics(
        accuracy=sum(accuracy for accuracy, _ in metrics) / len(metrics),
        f1=sum(f1 for _, f1 in metrics) / len(metrics),
    )


class OmniBehavior(Benchmark):
    """The share of yes-or-no fields predicted right; ACC and F1 by scene beside it."""

    name = "omnibehavior"
    task = "behavior-prediction"
    sample = "omnibehavior"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": FieldAccuracy}
    categories: ClassVar[Mapping[str, str]] = {
        field: field.replace("_", " ") for field in QUESTIONS
    }

    @classmethod
    def resolve_category(cls, name: str) -> set[str]:
        """Return one field, or all fields of a scene, e.g. of "video"."""
        return {field for field in QUESTIONS if name in (field, scene_of_field(field))}

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        test_actions: AtLeastOne = Periods.test_actions,
        seed: int = Periods.seed,
        users: AtLeastOne | None = None,
        history_tokens: AtLeastOne | None = None,
    ) -> Dataset:
        """Read a folder of raw files, one raw file, or a prepared experiment file.

        Args:
            path: The folder or file.
            on_finding: Receives what is reported.
            test_actions: Records asked per user, for raw files.
            seed: Draws them, and the users.
            users: How many users are drawn from those of raw files who have `test_actions` records
                to ask (released: 200); None takes all users.
            history_tokens: Only the newest records of a history that fit into so many tokens are
                kept (released: 32,000); None keeps all.
        """
        files = find_files(path)
        offsets_file = find_offsets_file(path)
        offsets: dict[str, int] = {}
        if offsets_file is not None:
            offsets = read_offsets(offsets_file)
        periods = Periods(test_actions=test_actions, seed=seed, offsets=offsets)

        all_users: Iterable[UserRecords] = read_users(files, periods, on_finding)
        if users is not None:
            all_users = draw_users(list(all_users), users, periods)

        histories: list[History] = []
        examples: list[dspy.Example] = []
        known_ids: set[str] = set()
        for user in all_users:
            location = Location(on_finding, f"user {user.id}")
            if user.id in known_ids:
                location.reject("duplicate user", "is in the data twice")
                continue
            known_ids.add(user.id)

            user_examples = _make_examples(user, history_tokens)
            if not user_examples:
                location.warn("nothing asked", "has no record in the test period that can be asked")
                continue
            histories.append(user_examples[0].history)
            examples.extend(user_examples)

        source_files = files if offsets_file is None else (*files, offsets_file)
        return Dataset(tuple(histories), tuple(examples), source_files)


def _make_examples(user: UserRecords, history_tokens: int | None) -> list[dspy.Example]:
    """Return the questions about a user, which all have one history; none if nothing is asked."""
    if not user.asked_indexes:
        return []
    rows = [*user.history, *user.test]
    actions = [_make_action(user.id, number, row) for number, row in enumerate(rows, 1)]
    # All indexes below are indexes in `rows`, where the test period follows the history period.
    asked_indexes = [len(user.history) + test_index for test_index in user.asked_indexes]

    # One history serves all questions, so it ends before the first record that is asked. What came
    # after it is shown to each question as its recent records.
    first_asked = asked_indexes[0]
    past_actions = _newest_actions(actions[:first_asked], history_tokens)
    history = records(user.id, user.profile, past_actions)
    recent = RecentRecords(user.id, actions[first_asked:], first_asked)

    examples: list[dspy.Example] = []
    for index in asked_indexes:
        num_recent = index - first_asked
        recent_history = recent.until(num_recent)
        examples.extend(_ask_fields(rows[index], actions[index], history, recent_history))
    return examples


def _make_action(user_id: str, number: int, row: RawRecord) -> Action:
    """Return a record as an action; `number` counts the user's records from 1."""
    return Action(
        id=f"{user_id}:{number}",
        time=read_date(row.get("timestamp")),
        scene=str(row.get("type") or "unknown").strip(),
        situation=situation(row),
        action=reaction(row),
        questions=questions_of(row) if says_enough(row) else (),
    )


def _newest_actions(actions: Sequence[Action], max_tokens: int | None) -> Sequence[Action]:
    """Return the newest of some actions whose lines fit into `max_tokens`; None keeps all."""
    if max_tokens is None:
        return actions
    newest_lines_first = (action.turn().line() for action in reversed(actions))
    num_fitting = count_fitting_lines(newest_lines_first, max_tokens)
    return actions[len(actions) - num_fitting :]


def _ask_fields(
    row: RawRecord, action: Action, history: History, recent: History
) -> list[dspy.Example]:
    """Return one question for each yes-or-no field of a record."""
    chinese = is_chinese(row.get("type"))
    values = gold(row)
    examples: list[dspy.Example] = []
    for field in fields_of(row):
        question = QUESTIONS[field].in_language(chinese)
        examples.append(
            example(
                history=history,
                recent=recent,
                id=f"{action.id}:{field}",
                question=format_question(action, question),
                options=OPTIONS,
                answer="Yes" if values[field] else "No",
                category=field,
            )
        )
    return examples

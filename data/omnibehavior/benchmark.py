"""OmniBehavior: what users of a platform did with videos, live streams, advertisements and products (Chen et al. 2026).

    mempiler evaluate truncation --on omnibehavior --data raw_user_data/en
    mempiler evaluate truncation --on omnibehavior --data experiment_data.json --option test_actions=10

One question is one yes-or-no field of one record, e.g. whether the user follows the author of a video.
`reader` says how files are read, `periods` which records are asked, `scenes` which fields there are, `labels` what
their answers are, `filters` which records count, `text` how a record reads.

Metrics (as PraMem's released scorer): per field accuracy (ACC) and F1 of Yes, 0 where it is undefined; a
scene is the unweighted mean of its fields, "overall" the unweighted mean of the four scenes. Failed parses are in no
denominator, and counted apart. A field or scene that was not asked is left out of the means.

An example holds `history`, `recent`, `question`, `options`, `focus` (inputs; there is no evidence), `answer`,
`category` (the field) and `id` (labels).

Limits: OmniBehavior's own final score also rates watch seconds and replies to customer service, which are no
yes-or-no questions and not asked here. The released code rounds the metrics of a field to hundredths of a percent
before it takes means; here nothing is rounded, so that means may differ by .006 %. The sample is our own; no
real user is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...errors import DataError, UnknownNameError
from ...records import read_time
from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Scorer
from .periods import Periods
from .reader import files_of, offsets_file, read_omnibehavior
from .scenes import QUESTIONS, TABLE_NAMES
from .scorer import FieldsPredicted
from .text import DETAIL

_OPTIONS = ("history", "test", "last_day", "test_actions", "seed", "detail", "categories")
_PERIOD = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)")


class OmniBehavior(Benchmark):
    """The share of yes-or-no fields predicted right; ACC and F1 by scene beside it."""

    name = "omnibehavior"
    task = "behavior-prediction"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": FieldsPredicted}
    categories: ClassVar[Mapping[str, str]] = {field: field.replace("_", " ") for field in QUESTIONS}

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading:
        return read_omnibehavior(path, note)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        history: str = "..".join(Periods.history),
        test: str = "..".join(Periods.test),
        last_day: bool = Periods.last_day,
        test_actions: int = Periods.test_actions,
        seed: int = Periods.seed,
        detail: int = DETAIL,
        categories: str | None = None,
        **options: Any,
    ) -> OmniBehavior:
        """Reads the genuine files at `path`, or the bundled sample (raw form) when it is None.

        Args:
            path: A folder of raw files, one raw file, or a prepared experiment file.
            history: First and last day of the history, for raw files.
            test: First and last day of the test period, for raw files.
            last_day: Whether the last days belong to the periods; as released, they do not.
            test_actions: Records asked per user, for raw files.
            seed: Draws them.
            detail: Most characters of one field of a situation.
            categories: Comma-separated scenes or fields to keep, e.g. "video,ad_liked"; all when None.
            **options: None are known; any is refused.

        Raises:
            DataError: A file is of neither form, or an option has a wrong value.
            UnknownNameError: An option, scene or field that does not exist.
        """
        cls.refuse_options(options, _OPTIONS)
        if test_actions < 1 or detail < 1:
            raise DataError(f"omnibehavior: test_actions={test_actions}, detail={detail}: both must be 1 or more")
        periods = Periods(_period("history", history), _period("test", test), last_day, test_actions, seed)
        kept = _kept(categories)
        with given_or_sample(path, "omnibehavior") as (where, sample):
            examples = read_omnibehavior(where, refuse_fatal(where), periods, detail).examples
            contents = (file.read_bytes() for file in (*files_of(where), offsets_file(where)) if file)
            chosen = [example for example in examples if example.category in kept]
            return cls(chosen, Source.of_all(where, contents, sample))


def _period(name: str, text: str) -> tuple[str, str]:
    match = _PERIOD.fullmatch(text.strip())
    if match is None or match[1] > match[2] or None in (read_time(match[1]), read_time(match[2])):
        raise DataError(f"omnibehavior: {name}={text!r} is no period; expected e.g. {name}=2025-09-01..2025-09-30")
    return match[1], match[2]


def _kept(categories: str | None) -> frozenset[str]:
    if not categories:
        return frozenset(QUESTIONS)
    kept: set[str] = set()
    for part in (part.strip() for part in categories.split(",")):
        fields = {field for field in QUESTIONS if part in (field, field.partition("_")[0])}
        if not fields:
            raise UnknownNameError("OmniBehavior scene or field", part, (*TABLE_NAMES, *QUESTIONS))
        kept |= fields
    return frozenset(kept)

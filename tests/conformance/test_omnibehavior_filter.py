"""Which records of OmniBehavior are dropped, which can be predicted, and which the draw favours."""

from typing import Any

import pytest
from mempiler.data.omnibehavior.records import is_high_value, is_informative, says_enough, was_seen


def judged(record: dict[str, Any]) -> dict[str, bool]:
    return {
        "filtered": not was_seen(record),
        "enough_context_preparation": says_enough(record),
        "enough_context_practice": says_enough(record),
        "practice_candidate": is_informative(record),
        "high_value": is_high_value(record),
    }


@pytest.mark.vectors("omnibehavior_filter", "[!h]*")
def test_a_record_is_kept_asked_and_practised_as_released(case, agrees):
    agrees(judged(case["input"]["record"]))


@pytest.mark.vectors("omnibehavior_filter", "high-*")
def test_kinds_of_high_value_are_the_released_ones(case, agrees):
    agrees({"high_value": is_high_value(case["input"]["record"])})

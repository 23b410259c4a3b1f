"""The Chinese prompts of H2Memory and of PAL-Bench's tasks are complete, and used on request.

PAL-Bench is a benchmark of assistants, and H2Memory is the method of its authors. Every prompt is
made from a signature, which has instructions and a description of every field. Its fields have
English names in both languages.
"""

from __future__ import annotations

import re
from typing import Any

import dspy
import pytest
from mempiler import UserError, build
from mempiler.signatures import h2memory, pal
from mempiler.signatures.chinese import action_meaning, in_language
from mempiler.signatures.pal import ASSISTANT_ACTIONS

TASK_SIGNATURES = [
    pal.RestateRequirement,
    pal.ProposeSolution,
    pal.SelectSolutions,
    pal.ReplyInDialogue,
]
METHOD_SIGNATURES = [
    member
    for member in vars(h2memory).values()
    if isinstance(member, type) and issubclass(member, dspy.Signature)
]
"""All signatures of the method H2Memory."""
CHINESE_CHARACTER = re.compile("[\u4e00-\u9fff]")


def has_chinese(text: str) -> bool:
    return CHINESE_CHARACTER.search(text) is not None


@pytest.mark.parametrize(
    "signature",
    [*METHOD_SIGNATURES, *TASK_SIGNATURES],
    ids=lambda signature: signature.__name__,
)
def test_a_chinese_prompt_has_all_fields_of_the_english_one_and_describes_them_in_chinese(
    signature: Any,
) -> None:
    """A signature names the fields of a prompt; field names are English in both languages."""
    chinese = in_language(signature, "Chinese")

    assert list(chinese.fields) == list(signature.fields)
    assert has_chinese(chinese.instructions)
    for name, field in chinese.fields.items():
        description = field.json_schema_extra["desc"]
        assert has_chinese(description), name
        assert field.annotation == signature.fields[name].annotation
    # In English, it is the signature itself.
    assert in_language(signature, "English") is signature


@pytest.mark.parametrize("action", ASSISTANT_ACTIONS)
def test_a_kind_of_reply_is_explained_in_the_language_of_the_prompt(action: str) -> None:
    """A task of PAL-Bench asks for a reply of a certain kind, such as "solution proposal"."""
    assert has_chinese(action_meaning(action, "Chinese"))
    assert action_meaning(action, "English") == ASSISTANT_ACTIONS[action]


def test_a_task_whose_prompt_is_english_alone_refuses_chinese() -> None:
    """Only the tasks of the benchmark PAL-Bench have Chinese prompts."""
    with pytest.raises(UserError, match="task question-answering has its prompt in English alone"):
        build("turn-rag", task="question-answering", **{"task.language": "Chinese"})

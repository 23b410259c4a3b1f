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
from mempiler.engines.embedders import embedder
from mempiler.programs.adapter import adapter
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


@pytest.mark.parametrize(
    ("settings", "is_chinese"),
    [
        pytest.param({"language": "Chinese", "task.language": "Chinese"}, True, id="Chinese"),
        pytest.param({}, False, id="English by default"),
    ],
)
def test_a_program_asks_all_its_prompts_in_the_language_of_its_settings(
    settings: dict[str, Any], is_chinese: bool
) -> None:
    """`language` is the setting of the method, and `task.language` the setting of the task."""
    program = build("h2memory", task="dialogue-reply", embedder=embedder(), **settings)

    predictors = program.all_predictors()
    assert predictors
    for path, predictor in predictors.items():
        system_message = adapter().format_system_message(predictor.signature)
        assert has_chinese(system_message) is is_chinese, path


def test_a_task_whose_prompt_is_english_alone_refuses_chinese() -> None:
    """Only the tasks of the benchmark PAL-Bench have Chinese prompts."""
    with pytest.raises(UserError, match="task question-answering has its prompt in English alone"):
        build("turn-rag", task="question-answering", **{"task.language": "Chinese"})

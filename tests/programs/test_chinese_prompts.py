"""The Chinese prompts of H2Memory and of PAL-Bench's tasks: whole, and only where they are asked for."""

import re

import dspy
import pytest
from mempiler import UserError, build
from mempiler.engines.embedders import embedder
from mempiler.programs.adapter import adapter
from mempiler.signatures import h2memory, pal
from mempiler.signatures.chinese import action_meaning, in_language
from mempiler.signatures.pal import ASSISTANT_ACTIONS

TASKS = (pal.RestateRequirement, pal.ProposeSolution, pal.SelectSolutions, pal.ReplyInDialogue)
METHOD = [
    value
    for value in vars(h2memory).values()
    if isinstance(value, type) and issubclass(value, dspy.Signature)
]
CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.mark.parametrize("signature", [*METHOD, *TASKS], ids=lambda signature: signature.__name__)
def test_a_chinese_prompt_has_every_field_of_the_english_one_and_describes_it_in_chinese(signature):
    chinese = in_language(signature, "Chinese")
    assert list(chinese.fields) == list(signature.fields)
    assert CHINESE.search(chinese.instructions)
    for name, field in chinese.fields.items():
        assert CHINESE.search(field.json_schema_extra["desc"]), name
        assert field.annotation == signature.fields[name].annotation
    assert in_language(signature, "English") is signature


@pytest.mark.parametrize("action", ASSISTANT_ACTIONS)
def test_a_kind_of_reply_is_explained_in_the_language_of_the_prompt(action):
    assert CHINESE.search(action_meaning(action, "Chinese"))
    assert action_meaning(action, "English") == ASSISTANT_ACTIONS[action]


def test_a_program_asks_all_its_prompts_in_the_language_that_its_settings_say():
    settings = {"language": "Chinese", "task.language": "Chinese"}
    program = build("h2memory", "dialogue-reply", embedder(), **settings)
    for path, predictor in program.all_predictors().items():
        assert CHINESE.search(adapter().format_system_message(predictor.signature)), path
    english = build("h2memory", "dialogue-reply", embedder())
    for path, predictor in english.all_predictors().items():
        assert not CHINESE.search(adapter().format_system_message(predictor.signature)), path


def test_a_task_whose_prompt_is_english_alone_says_so():
    with pytest.raises(UserError, match="task question-answering has its prompt in English alone"):
        build("turn-rag", "question-answering", **{"task.language": "Chinese"})

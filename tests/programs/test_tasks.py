"""Tasks: their queries, what models are shown, how answers are read, and resolved dates.

A task turns the context that a method recalls, and a query, into an answer. Benchmarks of behaviour
ask whether a user likes something, from records of what the user did. Records that came after the
history are "recent": the newest records of all stand beside the question, up to `suffix_tokens`.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from mempiler import (
    Action,
    Behavior,
    Context,
    History,
    Hit,
    Logs,
    Profile,
    Query,
    Session,
    Turn,
    UserError,
    build,
    load,
    save,
)
from mempiler.data.catalog import BENCHMARKS
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.programs.catalog import preset, with_task
from mempiler.programs.identity import writer_key
from mempiler.programs.names import METHODS
from mempiler.programs.tasks.behavior import newest_actions
from mempiler.programs.tasks.catalog import TASKS, task_class
from mempiler.programs.tasks.settings import TaskSettings
from mempiler.records import estimate_tokens
from mempiler.runs.manifest import digest_of, read_manifest
from mempiler.signatures.behavior import chosen_option
from mempiler.signatures.pal import ASSISTANT_ACTIONS

from .conftest import pramem_script

# Queries: what a program makes of an example of a benchmark, which the task then answers

LOGS = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))


def test_the_query_of_an_example_holds_all_its_inputs_but_the_evidence(make_history: Any) -> None:
    """A query is what a memory is asked, so it must not hold the evidence or the gold answer.

    Fields that a task does not know, here "mood", are kept as `extra`. The recent item came after
    the history, so it is shown beside the question and is new to the memory.
    """
    inputs = {
        "history": make_history(sessions=2),
        "recent": (LOGS,),
        "evidence_ids": ("D1:1",),
        "question": "Who?",
        "options": [1, "two"],
        "date": datetime(2023, 5, 8),
        "mood": "calm",
    }
    example = dspy.Example(**inputs, answer="Ann").with_inputs(*inputs)

    assert build("turn-rag").query_of(example) == Query(
        text="Who?",
        options=("1", "two"),
        date=datetime(2023, 5, 8),
        speakers=("Bob", "Ann"),
        shown_items=(LOGS,),
        new_items=(LOGS,),
        extra={"mood": "calm"},
    )


def test_a_query_names_only_speakers_of_the_history_that_the_memory_was_written_from(
    make_history: Any,
) -> None:
    """The speakers of a query are those of the history that the memory was written from.

    The history of the example has two speakers, but this memory was written from an empty history.
    """
    inputs = {"history": make_history(sessions=2), "question": "Who?"}
    example = dspy.Example(**inputs, answer="Ann").with_inputs(*inputs)
    empty_history = History(id="a", items=())

    query = build("turn-rag").query_of(example, empty_history)

    assert query.speakers == ()


# Tasks of the benchmark PAL-Bench: an assistant restates what a user needs, proposes or selects
# solutions, or replies in a dialogue. The logs of a user, such as "bought a bike", come with them.

OPTIONS = [f"S{number}: way {number}" for number in range(1, 9)]


class TaskAnswer(NamedTuple):
    """What a task made of a model's answer, and the prompt that asked for it."""

    prediction: dspy.Prediction
    prompt: str


def answer_task(
    scripted: Any,
    task_name: str,
    reply: dict[str, Any],
    recalled_text: str = "",
    recent: Sequence[Any] = (),
    **fields: Any,
) -> TaskAnswer:
    """Have a task answer a query from a recalled text, by a model with one reply.

    Args:
        scripted: The fixture that makes the model.
        task_name: The name of the task.
        reply: The reply of the model.
        recalled_text: The only entry that was recalled from the memory.
        recent: Items that came after the history.
        **fields: The fields of the query.
    """
    lm = scripted(lambda kind, text, n: reply)
    context = Context(hits=(Hit(id="f1", text=recalled_text),))
    task = task_class(task_name)()
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        prediction = task(context=context, query=task.query(fields, new_items=recent))
    _, prompt = lm.engine.prompts[0]
    return TaskAnswer(prediction, prompt)


@pytest.mark.parametrize(
    ("task_name", "reply"),
    [
        ("requirement-restatement", {"answer": "done"}),
        ("solution-proposal", {"answer": "done"}),
        ("solution-selection", {"analysis": "x", "answer": ["S2", "S7"]}),
        ("dialogue-reply", {"answer": "done"}),
    ],
)
def test_the_model_sees_context_query_and_recent_logs(
    scripted: Any, task_name: str, reply: dict[str, Any]
) -> None:
    """These are the tasks of an assistant in the benchmark PAL-Bench.

    The context is what was recalled, "likes calm". Logs come from the phone of a user.
    """
    recent_logs = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))

    prediction, prompt = answer_task(
        scripted,
        task_name,
        reply,
        recalled_text="likes calm",
        recent=[recent_logs],
        question="how?",
        options=OPTIONS,
    )

    assert "likes calm" in prompt
    assert "how?" in prompt
    assert "bought a bike" in prompt
    assert prediction.answer == reply["answer"]


@pytest.mark.parametrize(
    ("task_name", "about"),
    [
        ("requirement-restatement", "needs"),
        ("solution-proposal", "solutions"),
        ("solution-selection", "solutions"),
    ],
)
def test_the_query_of_a_task_says_whether_it_is_about_needs_or_solutions(
    task_name: str, about: str
) -> None:
    """H2Memory recalls needs for a query about needs, and solutions too for one about solutions."""
    query = task_class(task_name)().query({"question": "how?", "options": OPTIONS})

    assert query.about == about
    assert query.modality == "question"


@pytest.mark.parametrize(
    ("fields", "about"),
    [
        ({"action": "requirement prediction"}, "needs"),
        ({"action": "feedback response"}, "solutions"),
        # Without an action, the first reply guesses the need, and later ones propose a solution.
        ({"dialogue": ""}, "needs"),
        ({"dialogue": "user: hi\nassistant: hm"}, "solutions"),
    ],
)
def test_the_query_of_a_reply_says_whether_it_is_about_needs_or_solutions(
    fields: dict[str, str], about: str
) -> None:
    """In the task "dialogue-reply" an assistant answers a user who says "how?".

    H2Memory recalls needs for a query about needs, and solutions too for one about solutions.
    """
    query = task_class("dialogue-reply")().query({"question": "how?", **fields})

    assert query.about == about
    assert query.modality == "dialogue"


@pytest.mark.parametrize("action", ASSISTANT_ACTIONS)
def test_the_prompt_of_a_reply_explains_the_kind_of_reply_that_is_asked_for(
    scripted: Any, action: str
) -> None:
    """In the benchmark PAL-Bench an assistant is asked for a reply of a certain kind, its action.

    The kinds are "solution proposal" and so on, each with an explanation for the model.
    """
    _, prompt = answer_task(
        scripted,
        "dialogue-reply",
        {"answer": "done"},
        question="yes",
        dialogue="user: fit?\nassistant: why?",
        action=action,
    )

    assert action in prompt
    assert ASSISTANT_ACTIONS[action] in prompt
    assert "assistant: why?" in prompt


def test_an_unknown_kind_of_reply_is_refused(scripted: Any) -> None:
    """The kind of a reply is the action of the assistant, such as "solution proposal"."""
    reply = {"answer": "done"}

    with pytest.raises(UserError, match="'shouting' is no kind of reply; one of: requirement"):
        answer_task(scripted, "dialogue-reply", reply, question="yes", action="shouting")


# Settings of tasks


@pytest.mark.parametrize("method", ["turn-rag", "memory-r2", "rgmem", "pgr", "pgr+turn-rag"])
def test_the_prompt_asks_to_decline_and_to_reason_where_that_is_set(method: str) -> None:
    """With `task.abstain` the model is to answer "Not mentioned" where the memory does not tell.

    With `task.reasoning` it gives its reasons before the answer.
    """
    settings = {"task.abstain": True, "task.reasoning": True}
    plain_prompt = build(method, embedder=embedder()).task.answer.signature
    prompt = build(method, embedder=embedder(), **settings).task.answer.signature

    assert "Not mentioned" not in plain_prompt.instructions
    assert "Not mentioned" in prompt.instructions
    assert list(prompt.output_fields) == ["reasoning", "answer"]


def test_the_old_setting_abstain_of_memory_r2_sets_the_setting_of_the_task() -> None:
    """Programs of an earlier version were saved with `abstain` as a setting of the method."""
    program = build("memory-r2", embedder=embedder(), abstain=True)

    assert program.config["task.abstain"] is True


# Prediction of behaviour

YES_NO = ["Yes", "No"]
STARS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("text", "options", "chosen"),
    [
        ("Yes, though he said no before", YES_NO, "Yes"),
        ("I think no, since yes would surprise", YES_NO, "No"),
        ('[u1:3] user: movie rating; "Ocean 2" (1995), Drama => rated 4', STARS, "4"),
        ("3.5", STARS, "3"),
        # It names two options, and begins with neither.
        ("maybe 3, maybe 4", STARS, None),
    ],
)
def test_an_answer_is_read_as_the_option_it_chooses(
    text: str, options: list[str], chosen: str | None
) -> None:
    """Models answer in sentences, with a copied line, or with a number between two options."""
    assert chosen_option(text, options) == chosen


def actions(first: int, last: int) -> list[Action]:
    """Return the records of hourly clips from the number `first` to `last`.

    The user likes the odd ones.
    """
    return [
        Action(
            id=f"a{number}",
            time=datetime(2025, 9, 1, 8) + timedelta(hours=number),
            scene="video",
            situation=f"title: clip {number}",
            action="liked" if number % 2 else "skipped",
        )
        for number in range(first, last + 1)
    ]


@pytest.fixture
def first_20_records() -> History:
    """A profile and the records a1 to a20 in two batches."""
    profile = Profile(id="p", turns=(Turn(id="p", speaker="profile", text="lives in Oslo"),))
    first_batch = Behavior.from_actions("b1", actions(first=1, last=10))
    second_batch = Behavior.from_actions("b2", actions(first=11, last=20))
    return History(id="u", items=(profile, first_batch, second_batch))


@pytest.fixture
def next_4_records() -> History:
    """The records a21 to a24, which came after the first 20."""
    batch = Behavior.from_actions("b3", actions(first=21, last=24))
    return History(id="u:recent", items=(batch,))


def turn_ids(items: Sequence[Any]) -> list[str]:
    """Return the ids of all turns of some items, in order."""
    ids: list[str] = []
    for item in items:
        ids.extend(turn.id for turn in item.turns)
    return ids


def test_the_newest_records_fit_into_the_budget_beside_the_profile(
    first_20_records: History, next_4_records: History
) -> None:
    """The newest six records, a19 to a24, take 123 tokens in a prompt, with the line breaks.

    The profile, p, is shown in any case, and does not count.
    """
    newest_items = newest_actions([*first_20_records, *next_4_records], max_tokens=123)

    assert turn_ids(newest_items) == ["p", "a19", "a20", "a21", "a22", "a23", "a24"]


def test_a_part_of_a_batch_of_records_is_another_item_than_the_batch(
    first_20_records: History,
) -> None:
    """Items are told apart by their digests, so a part must not have the digest of the whole.

    Of the newest batch, a11 to a20, only the records a19 and a20 fit into 41 tokens.
    """
    *_, newest_batch = first_20_records.items

    _profile, part_of_batch = newest_actions([*first_20_records], max_tokens=41)

    assert turn_ids([part_of_batch]) == ["a19", "a20"]
    assert part_of_batch.digest != newest_batch.digest


@pytest.mark.parametrize(
    "method",
    ["no-memory", "truncation", "full-context", "turn-rag", "session-rag", "recursive-summary"],
)
def test_every_baseline_shows_the_profile_and_the_newest_records(
    scripted: Any, first_20_records: History, next_4_records: History, method: str
) -> None:
    """Baselines are simple methods; a comparison is fair if all of them see the same records.

    The newest record, a24, came after the history.
    """
    lm = scripted(lambda kind, text, n: {"answer": "Yes", "summary": "The user likes odd clips."})
    program = build(method, task="behavior-prediction")

    with dspy.context(lm=lm):
        program(
            history=first_20_records,
            recent=next_4_records,
            question="video; title: clip 25. Like it?",
            options=YES_NO,
        )

    (prompt,) = [text for kind, text in lm.engine.prompts if kind == "answer"]
    assert prompt.count("[p] profile: lives in Oslo") == 1
    newest_line = "[a24] (2 September 2025, Tuesday 08:00) user: video; title: clip 24 => skipped"
    assert prompt.count(newest_line) == 1


@pytest.mark.parametrize("method", ["truncation", "full-context"])
def test_recalled_records_end_right_before_the_newest_and_share_their_budget(
    scripted: Any, first_20_records: History, next_4_records: History, method: str
) -> None:
    """The task shows the newest records, and the method recalls the ones right before them.

    A record takes about 20 tokens. So 135 tokens are room for six records, of which the task shows
    two in the 50 tokens that it may use.
    """
    program = build(method, task="behavior-prediction", max_tokens=135)
    program.task.suffix_tokens = 50
    lm = scripted(lambda kind, text, n: {"answer": "No"})

    with dspy.context(lm=lm):
        program(
            history=first_20_records, recent=next_4_records, question="Like it?", options=YES_NO
        )

    [(_, prompt)] = lm.engine.prompts
    shown_ids = re.findall(r"^\[(a\d+)\]", prompt, re.MULTILINE)
    assert shown_ids == ["a19", "a20", "a21", "a22", "a23", "a24"]


ZEBRA_CLIP = Action(id="a21", scene="video", situation="title: zebra crossing", action="liked")


@pytest.fixture
def next_9_records_with_zebra() -> History:
    """The records a21 to a29, which came after the first 20; a21 is about a zebra."""
    first_batch = Behavior.from_actions("b3", [ZEBRA_CLIP, *actions(first=22, last=25)])
    second_batch = Behavior.from_actions("b4", actions(first=26, last=29))
    return History(id="u:recent", items=(first_batch, second_batch))


def ask_about_zebras(program: Any, history: History, recent: Any) -> dspy.Prediction:
    """Ask a question about zebras, with few of the newest records in the prompt."""
    program.task.suffix_tokens = 60
    question = "video; a zebra crossing. Like it?"
    return program(history=history, recent=recent, question=question, options=YES_NO)


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_a_search_finds_records_that_came_after_the_history(
    scripted: Any, first_20_records: History, next_9_records_with_zebra: History, method: str
) -> None:
    """The record a21 is about a zebra, as the question is.

    It came after the history of a1 to a20, but is not among the newest records, which are shown.
    """
    program = build(method, task="behavior-prediction")

    with dspy.context(lm=scripted(lambda kind, text, n: {"answer": "Yes"})):
        context = ask_about_zebras(program, first_20_records, next_9_records_with_zebra).context

    assert "a21" in [hit.id for hit in context.hits]


def test_a_summary_is_updated_with_the_records_that_came_since_the_last_question(
    scripted: Any, first_20_records: History, next_9_records_with_zebra: History
) -> None:
    """A model rewrites the summary with each batch of records. Each rewriting costs a call.

    Two batches came after the history: first the records a21 to a25, with a zebra crossing, and
    then a26 to a29. The second question continues the summary that the first question was given.
    """
    lm = scripted(lambda kind, text, n: {"answer": "Yes", "summary": f"version {n}"})
    program = build("recursive-summary", task="behavior-prediction")
    zebra_batch, _last_batch = next_9_records_with_zebra.items

    with dspy.context(lm=lm):
        ask_about_zebras(program, first_20_records, [zebra_batch])
        updates_before = [text for kind, text in lm.engine.prompts if kind == "summary"]
        ask_about_zebras(program, first_20_records, next_9_records_with_zebra)
        all_updates = [text for kind, text in lm.engine.prompts if kind == "summary"]

    assert "zebra crossing" in updates_before[-1]
    [new_update] = all_updates[len(updates_before) :]
    assert "title: clip 29" in new_update
    assert "zebra crossing" not in new_update


def test_pramem_practises_on_the_history_alone(
    scripted: Any, first_20_records: History, next_9_records_with_zebra: History
) -> None:
    """PraMem practises by predicting past records, here the 20 records of the history.

    Records that came after the history may hold the answer of a question, so that practice must
    not see them. One of them is about a zebra.
    """
    lm = scripted(pramem_script())
    program = build("pramem", task="behavior-prediction", rounds=5)

    with dspy.context(lm=lm):
        prediction = ask_about_zebras(program, first_20_records, next_9_records_with_zebra)

    assert prediction.memory.total == 20
    practice_prompts = [text for kind, text in lm.engine.prompts if kind != "answer"]
    assert practice_prompts
    assert "zebra" not in "".join(practice_prompts)


@pytest.mark.parametrize(
    ("reask", "answers_of_model", "answer"),
    [
        pytest.param(0, ["Hard to say."], "Hard to say.", id="never"),
        pytest.param(1, ["Hard to say.", "Maybe."], "Maybe.", id="once"),
        pytest.param(5, ["Hard to say.", "Maybe.", "No"], "No", id="until an option is named"),
    ],
)
def test_an_answer_that_names_no_option_may_be_asked_for_again(
    scripted: Any,
    first_20_records: History,
    reask: int,
    answers_of_model: list[str],
    answer: str,
) -> None:
    """The options are "Yes" and "No". `reask` is how many times more the model is asked at most."""
    lm = scripted(lambda kind, text, n: {"answer": answers_of_model[n - 1]})
    program = build("truncation", task="behavior-prediction", **{"task.reask": reask})

    with dspy.context(lm=lm):
        prediction = program(history=first_20_records, question="Like it?", options=["Yes", "No"])

    assert prediction.answer == answer
    assert len(lm.engine.prompts) == len(answers_of_model)


# Resolved dates: beside a relative date, such as "yesterday", stands the date that it means. The
# setting `task.dates` switches this off for a program.

DIALOGUE_METHODS = sorted(
    {*METHODS, "pgr+turn-rag", "pgr+full-context", "logs+turn-rag"} - {"no-memory", "pramem"}
)
"""All methods that show lines of a dialogue to a model; PraMem reads records of behaviour."""


def session_of_ann(text: str, time: datetime) -> Session:
    """Return the session s2, in which Ann says one text as the turn D2:1."""
    return Session(id="s2", time=time, turns=(Turn(id="D2:1", speaker="Ann", text=text),))


def test_a_task_shows_dates_beside_relative_ones() -> None:
    """Dates are counted from the day on which a text was said; the entry m2 has no day."""
    task = build("turn-rag").task
    meeting = Hit(id="m1", text="We met yesterday.", time=datetime(2023, 1, 30))
    plan = Hit(id="m2", text="No date, tomorrow.")
    later_session = session_of_ann("Last night too.", time=datetime(2023, 3, 1))
    query = task.query({"question": "When?"}, new_items=[later_session])

    context = task.prompt_inputs(Context(hits=(meeting, plan)), query)["context"]

    assert context.splitlines() == [
        "[m1] (30 January 2023, Monday) We met yesterday [29 January 2023].",
        "[m2] No date, tomorrow.",
        "[D2:1] (1 March 2023, Wednesday) Ann: Last night [28 February 2023] too.",
    ]


@pytest.mark.parametrize("dates", [False, True])
@pytest.mark.parametrize(
    "task_name", [name for name in TASKS if task_class(name).prompt is not None]
)
def test_every_task_shows_resolved_dates_unless_they_are_switched_off(
    task_name: str, dates: bool
) -> None:
    """A resolved date is the day that a word such as "yesterday" means, in brackets behind it."""
    task = build("turn-rag", task_name, **{"task.dates": dates}).task
    meeting = Hit(id="m1", text="We met yesterday.", time=datetime(2023, 1, 30))
    later_session = session_of_ann("Last night too.", time=datetime(2023, 3, 1))
    fields = {"question": "When?", "options": ["S1: a", "S2: b"]}
    query = task.query(fields, new_items=[later_session])

    inputs = str(task.prompt_inputs(Context(hits=(meeting,)), query))

    assert "We met yesterday" in inputs
    assert ("yesterday [29 January 2023]" in inputs) is dates
    assert ("Last night [28 February 2023]" in inputs) is dates


class PromptListener(BaseCallback):
    """Keeps the last message of every prompt: the inputs, without instructions and demos."""

    def __init__(self) -> None:
        self.inputs: list[str] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.inputs.append(inputs["messages"][-1]["content"])


def inputs_shown_about_move(method: str, **settings: Any) -> str:
    """Return what a method shows to models while it writes a dialogue and answers a question.

    In the dialogue, of 5 March 2024, Ann says that she moved "the day before yesterday".
    """
    turns = (
        Turn(
            id="D1:1",
            speaker="Ann",
            text="I moved to Lisbon the day before yesterday, with my dog Rex.",
        ),
        Turn(id="D1:2", speaker="Bob", text="How does Rex like Lisbon?"),
    )
    session = Session(id="D1", time=datetime(2024, 3, 5), turns=turns)
    history = History(id="ann", items=(session,))
    program = build(method, embedder=embedder(), **settings)
    listener = PromptListener()
    with dspy.context(lm=language_model("offline", cache=False), callbacks=[listener]):
        program(history=history, question="Where did Ann move with Rex?")
    return "\n".join(listener.inputs)


@pytest.mark.parametrize("method", DIALOGUE_METHODS)
def test_every_method_shows_resolved_dates_to_every_model(method: str) -> None:
    """On 5 March 2024 Ann said that she moved "the day before yesterday".

    Every prompt has the date behind these words, be it of writing or of answering.
    """
    inputs = inputs_shown_about_move(method)

    assert "the day before yesterday [3 March 2024]" in inputs
    unresolved_inputs = inputs.replace("the day before yesterday [3 March 2024]", "")
    assert "the day before yesterday" not in unresolved_inputs


@pytest.mark.parametrize("method", DIALOGUE_METHODS)
def test_no_method_shows_resolved_dates_where_they_are_switched_off(method: str) -> None:
    """On 5 March 2024 Ann said that she moved "the day before yesterday".

    With `task.dates` off, no prompt has the date, 3 March, behind these words.
    """
    inputs = inputs_shown_about_move(method, **{"task.dates": False})

    assert "the day before yesterday" in inputs
    assert "the day before yesterday [3 March 2024]" not in inputs


@pytest.mark.parametrize("dates", [False, True])
def test_a_saved_program_writes_memories_from_resolved_dates_where_that_is_set(
    scripted: Any, tmp_path: Path, dates: bool
) -> None:
    """The setting belongs to the task, but it holds for the prompts of the writer, too."""
    save(build("memory-r2", embedder=embedder(), **{"task.dates": dates}), tmp_path / "program")
    program = load(tmp_path / "program", embedder=embedder())
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my boat last Friday.")
    session = Session(id="s1", time=datetime(2023, 1, 30), turns=(turn,))
    lm = scripted(lambda kind, text, n: {"facts": [], "operations": []})

    with dspy.context(lm=lm):
        program.remember(History(id="ann", items=(session,)))

    _, prompt = lm.engine.prompts[0]
    assert ("last Friday [27 January 2023]" in prompt) is dates


def key_of_memories(program: Any) -> str:
    """Return the key under which memories of a program are cached, with a model not asked here."""
    with dspy.context(lm=dspy.LM("openai/none", api_key="none")):
        return writer_key(program.method.writer)


def test_memories_with_and_without_resolved_dates_have_different_keys() -> None:
    """A program must not be given memories that were written from other prompts."""
    program = build("memory-r2", embedder=embedder())
    with_dates = build("memory-r2", embedder=embedder(), **{"task.dates": True})
    without_dates = build("memory-r2", embedder=embedder(), **{"task.dates": False})

    assert key_of_memories(without_dates) != key_of_memories(with_dates)
    # Dates are shown by default.
    assert key_of_memories(program) == key_of_memories(with_dates)


@pytest.mark.parametrize("method", sorted({*METHODS, "pgr+turn-rag", "logs+session-rag"}))
def test_no_preset_of_a_method_decides_whether_dates_are_resolved(method: str) -> None:
    """Methods are compared on a benchmark, so all of them must be shown the same."""
    for benchmark in BENCHMARKS:
        for setting in preset(method, benchmark):
            assert not setting.endswith("task.dates"), benchmark


def tokens_of(lines: Sequence[str]) -> int:
    """Return how many tokens lines take in a prompt, with the line breaks."""
    return sum(estimate_tokens(line) + 1 for line in lines)


def test_the_budget_of_the_context_holds_with_resolved_dates() -> None:
    """A budget of 200 tokens is for the text that the model sees, with the dates in it.

    The 40 turns of the session are all equally long. They do not fit, so the newest are shown.
    """
    turns = tuple(
        Turn(id=f"D1:{number}", speaker="Ann", text=f"Yesterday I saw boat {number}.")
        for number in range(10, 50)
    )
    session = Session(id="D1", time=datetime(2024, 3, 5), turns=turns)
    program = build("full-context", max_tokens=200)
    memory = program.remember(History(id="ann", items=(session,))).memory

    context = program.recall(memory, Query(text="Which boats?")).context
    lines = program.task.context_as_shown(context).text().splitlines()

    assert lines[-1].endswith("Yesterday [4 March 2024] I saw boat 49.")
    one_line_more = [*lines, lines[-1]]
    assert tokens_of(lines) <= 200 < tokens_of(one_line_more)


def test_the_budget_of_the_newest_records_holds_with_resolved_dates() -> None:
    """The records that stand beside the question may take 300 tokens, with their dates.

    The 50 records are all equally long. They do not fit, so the newest are shown.
    """
    records = [
        Action(
            id=f"a{number}",
            time=datetime(2024, 3, 5, 12),
            scene="news",
            situation="home",
            action=f"read of yesterday {number}",
        )
        for number in range(10, 60)
    ]
    task = build("turn-rag", "behavior-prediction").task
    task.suffix_tokens = 300
    fields = {"question": "What next?", "options": ["Yes", "No"]}
    query = task.query(fields, [Behavior.from_actions("b1", records)])

    lines = task.prompt_inputs(Context(), query)["records"].splitlines()

    assert lines[-1].endswith("read of yesterday [4 March 2024] 59")
    one_line_more = [*lines, lines[-1]]
    assert tokens_of(lines) <= 300 < tokens_of(one_line_more)


# The setting `task.dates` says whether models see the date beside words such as "yesterday". It
# belongs to the task, but prompts that write a memory show dates as well. So a program hands the
# setting on to the writer of its method, where it is the attribute `shows_resolved_dates`.


def remove_setting_from_manifest(folder: Path, name: str) -> None:
    """Remove a setting from the manifest of a saved program, as if it was saved without it."""
    manifest = read_manifest(folder)
    old_config = {other: value for other, value in manifest.config.items() if other != name}
    old_manifest = manifest.model_copy(update={"config": old_config})
    # `load` checks that the manifest was not changed, by its digest.
    old_manifest = old_manifest.model_copy(update={"manifest_sha256": digest_of(old_manifest)})
    (folder / "manifest.json").write_text(old_manifest.model_dump_json())


def test_a_program_that_was_saved_before_dates_were_resolved_shows_none(tmp_path: Path) -> None:
    """An old program goes on as it was measured then, and its stored memories stay valid."""
    folder = tmp_path / "program"
    save(build("memory-r2", embedder=embedder()), folder)
    remove_setting_from_manifest(folder, "task.dates")

    program = load(folder)

    assert program.task.settings.dates is False
    assert program.method.writer.shows_resolved_dates is False


def test_a_program_keeps_its_setting_of_dates_when_it_is_given_another_task() -> None:
    """Its memories were written without resolved dates, so the new task must not show any either.

    All other settings of the new task hold, here `abstain`.
    """
    program = build("memory-r2", "memory-lookup", embedder(), **{"task.dates": False})

    new_settings = TaskSettings(dates=True, abstain=True)
    other_program = with_task(program, task="question-answering", settings=new_settings)

    assert other_program.task.name == "question-answering"
    assert other_program.task.settings.dates is False
    assert other_program.task.settings.abstain is True

"""Tasks: the query that they make of an example, what the model is shown of it, with dates, how answers are read."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

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
from mempiler.signatures.answering import NOT_MENTIONED
from mempiler.signatures.behavior import chosen_option
from mempiler.signatures.pal import ASSISTANT_ACTIONS

from .conftest import practice_script

DIALOGUE_METHODS = sorted(
    {*METHODS, "pgr+turn-rag", "pgr+full-context", "logs+turn-rag"} - {"no-memory", "pramem"}
)
"""All methods that show lines of a dialogue to a model: PraMem reads behaviour."""
PAL = ("requirement-restatement", "solution-proposal", "solution-selection", "dialogue-reply")
OPTIONS = [f"S{n}: way {n}" for n in range(1, 9)]
LOGS = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))


def test_the_query_of_an_example_holds_what_is_known_of_the_question_and_no_evidence(
    make_history: Any,
) -> None:
    known = {
        "question": "Who?",
        "options": [1, "two"],
        "date": datetime(2023, 5, 8),
        "mood": "calm",
    }
    given = {"history": make_history(2), "recent": (LOGS,), "evidence_ids": ("D1:1",), **known}
    example = dspy.Example(**given, answer="Ann").with_inputs(*given)
    assert build("turn-rag").query_of(example) == Query(
        text="Who?",
        options=("1", "two"),
        date=datetime(2023, 5, 8),
        speakers=("Bob", "Ann"),
        shown_items=(LOGS,),
        new_items=(LOGS,),
        extra={"mood": "calm"},
    )


def test_a_query_about_an_empty_past_knows_no_speaker_of_the_example(make_history: Any) -> None:
    given = {"history": make_history(2), "question": "Who?"}
    example = dspy.Example(**given, answer="Ann").with_inputs(*given)
    assert build("turn-rag").query_of(example, History(id="a", items=())).speakers == ()


@pytest.fixture
def ask(scripted: Any) -> Any:
    """Asks a task under a scripted model; gives the prediction and the prompt."""

    def run(name: str, recent: Sequence[Any] = (), **fields: Any) -> tuple[dspy.Prediction, str]:
        reply = (
            {"analysis": "x", "answer": ["S2", "S7"]}
            if name == "solution-selection"
            else {"answer": "done"}
        )
        lm = scripted(lambda *call: reply)
        context = Context(hits=(Hit(id="f1", text="likes calm"),))
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
            asked = task_class(name)()
            found = asked(context=context, query=asked.query(fields, new_items=recent))
        return found, lm.engine.prompts[0][1]

    return run


@pytest.mark.parametrize("name", PAL)
def test_the_model_sees_context_query_and_recent_logs(name: str, ask: Any) -> None:
    found, text = ask(name, question="how?", options=OPTIONS, recent=(LOGS,))
    assert all(part in text for part in ("likes calm", "how?", "bought a bike"))
    assert found.answer == (["S2", "S7"] if name == "solution-selection" else "done")


@pytest.mark.parametrize(
    ("name", "fields", "about", "modality"),
    [
        ("requirement-restatement", {}, "needs", "question"),
        ("solution-proposal", {}, "solutions", "question"),
        ("solution-selection", {"options": OPTIONS}, "solutions", "question"),
        ("dialogue-reply", {"action": "requirement prediction"}, "needs", "dialogue"),
        ("dialogue-reply", {"action": "feedback response"}, "solutions", "dialogue"),
        ("dialogue-reply", {}, "needs", "dialogue"),
        ("dialogue-reply", {"dialogue": "user: hi\nassistant: hm"}, "solutions", "dialogue"),
    ],
)
def test_methods_get_the_subject_of_a_query(
    name: str, fields: dict[str, Any], about: str, modality: str
) -> None:
    query = task_class(name)().query({"question": "how?", **fields})
    assert query.about == about
    assert query.modality == modality


def test_a_reply_is_of_the_kind_that_is_asked_for(ask: Any) -> None:
    for action, meaning in ASSISTANT_ACTIONS.items():
        _, text = ask(
            "dialogue-reply", question="yes", dialogue="user: fit?\nassistant: why?", action=action
        )
        assert all(part in text for part in (action, meaning, "assistant: why?"))
    with pytest.raises(
        UserError, match="'shouting' is no kind of reply; one of: requirement prediction"
    ):
        ask("dialogue-reply", question="yes", action="shouting")


@pytest.mark.parametrize("method", ["turn-rag", "memory-r2", "rgmem", "pgr", "pgr+turn-rag"])
def test_the_prompt_asks_to_decline_and_to_reason_only_if_it_is_configured_so(method: str) -> None:
    plain, told = (
        build(method, embedder=embedder(), **settings).task.answer.signature
        for settings in ({}, {"task.abstain": True, "task.reasoning": True})
    )
    assert told.instructions == f"{plain.instructions}\n{NOT_MENTIONED}"
    assert "Not mentioned" not in plain.instructions
    assert list(told.output_fields) == ["reasoning", "answer"]


def test_reasons_are_read_and_a_saved_program_asks_for_them_too(
    scripted: Any, tmp_path: Any
) -> None:
    save(build("turn-rag", **{"task.reasoning": True}), tmp_path / "program")
    program = load(tmp_path / "program")
    assert program.config["task.reasoning"] is True
    history = History.parse([{"role": "user", "content": "My parrot is called Rio."}])
    with dspy.context(lm=scripted(lambda kind, text, n: {"reasoning": "line 1", "answer": "Rio"})):
        found = program(history=history, question="What is the parrot called?")
    assert found.reasoning == "line 1"
    assert found.answer == "Rio"


def test_memories_of_learned_operations_keep_the_setting_of_programs_saved_before() -> None:
    program = build("memory-r2", embedder=embedder(), abstain=True)
    assert program.config["task.abstain"] is True


YES_NO = ["Yes", "No"]
STARS = ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("Yes, though he said no before", YES_NO, "Yes"),
        ("I think no, since yes would surprise", YES_NO, "No"),
        ('[u1:3] user: movie rating; "Ocean 2" (1995), Drama => rated 4', STARS, "4"),
        ("3.5", STARS, "3"),
        ("maybe 3, maybe 4", STARS, None),
    ],
)
def test_an_answer_is_read_as_the_option_it_chooses(text, options, expected):
    assert chosen_option(text, options) == expected


def actions(count, start=1):
    first, kind = datetime(2025, 9, 1, 8), {"scene": "video"}
    done = {
        n: {"situation": f"title: clip {n}", "action": "liked" if n % 2 else "skipped"}
        for n in range(30)
    }
    return [
        Action(id=f"a{n}", time=first + timedelta(hours=n), **kind, **done[n])
        for n in range(start, start + count)
    ]


PROFILE = Profile(id="p", turns=(Turn(id="p", speaker="profile", text="lives in Oslo"),))


@pytest.fixture
def history():
    return History(
        id="u",
        items=(
            PROFILE,
            Behavior.from_actions("b1", actions(10)),
            Behavior.from_actions("b2", actions(10, 11)),
        ),
    )


@pytest.fixture
def recent():
    return History(id="u:recent", items=(Behavior.from_actions("b3", actions(4, 21)),))


def ids(items):
    return [turn.id for item in items for turn in item.turns]


def test_the_suffix_is_the_newest_records_of_both_and_the_profile(history, recent):
    lines = [line for item in (*history, *recent) for line in item.lines()]
    found = newest_actions(
        [*history, *recent], sum(estimate_tokens(line) + 1 for line in lines[-6:])
    )
    assert ids(found) == ["p", "a19", "a20", "a21", "a22", "a23", "a24"]
    assert [action.id for action in found[1].actions] == ["a19", "a20"]
    assert found[1].digest != history.items[2].digest
    assert ids(newest_actions([*history, *recent], 10_000)) == [
        "p",
        *(f"a{n}" for n in range(1, 25)),
    ]
    assert ids(newest_actions([*history, *recent], 0)) == ["p"]


@pytest.mark.parametrize(
    "method",
    ["no-memory", "truncation", "full-context", "turn-rag", "session-rag", "recursive-summary"],
)
def test_every_baseline_shows_profile_and_newest_records_with_time_scene_situation_and_action(
    scripted, history, recent, method
):
    lm = scripted(lambda kind, text, n: {"answer": "Yes", "summary": "The user likes odd clips."})
    program = build(method, task="behavior-prediction")
    with dspy.context(lm=lm):
        found = program(
            history=history,
            recent=recent,
            question="video; title: clip 25. Like it?",
            options=YES_NO,
        )
    prompt = [text for kind, text in lm.engine.prompts if kind == "answer"][-1]
    assert found.answer == "Yes"
    assert prompt.count("[p] profile: lives in Oslo") == 1
    line = "[a24] (2 September 2025, Tuesday 08:00) user: video; title: clip 24 => skipped"
    assert prompt.count(line) == 1
    assert ("likes odd clips" in prompt) is (method == "recursive-summary")


@pytest.mark.parametrize(("method", "tokens"), [("truncation", 200), ("full-context", 300)])
def test_no_memory_baselines_show_the_newest_records_within_one_budget(
    scripted, history, recent, method, tokens
):
    program = build(method, task="behavior-prediction", max_tokens=tokens)
    program.task.suffix_tokens = 80
    with dspy.context(lm=scripted(lambda kind, text, n: {"answer": "No"})):
        found = program(history=history, recent=recent, question="Like it?", options=YES_NO)
    suffix = newest_actions([*history, *recent], 80)
    lines = [
        *(hit.line() for hit in found.context.hits),
        *(line for item in suffix for line in item.lines()),
    ]
    assert sum(estimate_tokens(line) + 1 for line in lines) <= tokens
    shown = [hit.id for hit in found.context.hits] + ids(suffix)[1:]
    # Nothing between the oldest record shown and the question is missing, whether it is in the memory or came since.
    assert shown == [f"a{n}" for n in range(25 - len(shown), 25)]
    assert len(shown) > {200: 5, 300: 8}[tokens]


OLD_CLIP = Action(id="a21", scene="video", situation="title: zebra crossing", action="liked")


@pytest.fixture
def long_since():
    """The records since a history: two batches, the first of which begins with a record like no other."""
    first = Behavior.from_actions("b3", [OLD_CLIP, *actions(4, 22)])
    return History(id="u:recent", items=(first, Behavior.from_actions("b4", actions(4, 26))))


def ask_about_zebras(program, history, recent):
    program.task.suffix_tokens = 60
    return program(
        history=history, recent=recent, question="video; a zebra crossing. Like it?", options=YES_NO
    )


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_a_search_finds_records_that_came_after_the_history(scripted, history, long_since, method):
    with dspy.context(lm=scripted(lambda kind, text, n: {"answer": "Yes"})):
        found = ask_about_zebras(build(method, task="behavior-prediction"), history, long_since)
    assert "a21" in [hit.id for hit in found.context.hits]


def test_the_summary_covers_every_record_before_its_question(scripted, history, long_since):
    lm = scripted(lambda kind, text, n: {"answer": "Yes", "summary": f"version {n}"})
    program = build("recursive-summary", task="behavior-prediction")
    with dspy.context(lm=lm):
        earlier = ask_about_zebras(program, history, long_since.items[:1])
        later = ask_about_zebras(program, history, long_since)
    updates = [text for kind, text in lm.engine.prompts if kind == "summary"]
    # The profile and four batches: what the earlier question had written is continued.
    assert len(updates) == 5
    assert "zebra crossing" in updates[3]
    assert "title: clip 29" in updates[4]
    assert earlier.memory.sources[0] == "a21"
    assert later.memory.sources[0] == "a26"


def test_experience_is_practised_on_the_history_alone(scripted, history, long_since):
    lm = scripted(practice_script())
    with dspy.context(lm=lm):
        found = ask_about_zebras(
            build("pramem", task="behavior-prediction", rounds=5), history, long_since
        )
    assert found.memory.total == 20
    practised = [text for kind, text in lm.engine.prompts if kind != "answer"]
    assert practised
    assert "zebra" not in "".join(practised)


@pytest.mark.parametrize(
    ("times", "answers", "found"), [(0, 1, "Hard to say."), (2, 3, "Hard to say."), (5, 4, "No")]
)
def test_an_answer_that_names_no_option_may_be_asked_for_again(
    scripted, history, recent, times, answers, found
):
    lm = scripted(
        lambda kind, text, n: {"answer": "No" if len(lm.engine.prompts) > 3 else "Hard to say."}
    )
    program = build("truncation", task="behavior-prediction", **{"task.reask": times})
    with dspy.context(lm=lm):
        said = program(history=history, recent=recent, question="Like it?", options=YES_NO)
    assert said.answer == found
    assert len(lm.engine.prompts) == answers


def test_a_task_shows_dates_where_it_is_set() -> None:
    hits = (
        Hit(id="m1", text="We met yesterday.", time=datetime(2023, 1, 30)),
        Hit(id="m2", text="No date, tomorrow."),
    )
    later = Session(
        id="s2",
        time=datetime(2023, 3, 1),
        turns=(Turn(id="D2:1", speaker="Ann", text="Last night too."),),
    )
    shown = {}
    for dates in (False, True):
        task = build("turn-rag", **{"task.dates": dates}).task
        query = task.query({"question": "When?"}, new_items=[later])
        shown[dates] = task.prompt_inputs(Context(hits=hits), query)["context"].splitlines()
    assert shown[False][0].endswith("We met yesterday.")
    assert shown[True] == [
        "[m1] (30 January 2023, Monday) We met yesterday [29 January 2023].",
        "[m2] No date, tomorrow.",
        "[D2:1] (1 March 2023, Wednesday) Ann: Last night [28 February 2023] too.",
    ]


@pytest.mark.parametrize("dates", [False, True])
def test_memories_are_written_from_resolved_dates_too(scripted, tmp_path, dates: bool) -> None:
    save(build("memory-r2", embedder=embedder(), **{"task.dates": dates}), tmp_path / "program")
    program = load(tmp_path / "program", embedder=embedder())
    with dspy.context(lm=dspy.LM("openai/none", api_key="none")):
        by_default = build("memory-r2", embedder=embedder()).method.writer
        assert (writer_key(program.method.writer) == writer_key(by_default)) is dates
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my boat last Friday.")
    history = History(
        id="ann", items=(Session(id="s1", time=datetime(2023, 1, 30), turns=(turn,)),)
    )
    lm = scripted(lambda kind, text, n: {"facts": [], "operations": []})
    with dspy.context(lm=lm):
        program.remember(history)
    assert ("last Friday [27 January 2023]" in lm.engine.prompts[0][1]) is dates


def moving() -> History:
    """A dialogue of 5 March 2024 with a relative date in it."""
    said = (
        "I moved to Lisbon the day before yesterday, with my dog Rex.",
        "How does Rex like Lisbon?",
    )
    turns = tuple(
        Turn(id=f"D1:{n}", speaker=speaker, text=text)
        for n, (speaker, text) in enumerate(zip(("Ann", "Bob"), said, strict=True), 1)
    )
    return History(id="ann", items=(Session(id="D1", time=datetime(2024, 3, 5), turns=turns),))


class Listening(BaseCallback):
    """Keeps the last message of every prompt: the inputs, without instructions and demos."""

    def __init__(self) -> None:
        self.inputs: list[str] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.inputs.append(inputs["messages"][-1]["content"])


def inputs_of(method: str, **settings: Any) -> list[str]:
    """What a method shows to models while it writes a dialogue and answers a question about it."""
    listening = Listening()
    program = build(method, embedder=embedder(), **settings)
    with dspy.context(lm=language_model("offline", cache=False), callbacks=[listening]):
        program(history=moving(), question="Where did Ann move with Rex?")
    return listening.inputs


@pytest.mark.parametrize("method", DIALOGUE_METHODS)
def test_every_method_shows_every_model_resolved_dates_unless_told_otherwise(method: str) -> None:
    words, resolved = "the day before yesterday", "the day before yesterday [3 March 2024]"
    by_default = "\n".join(inputs_of(method))
    assert resolved in by_default
    assert by_default.count(words) == by_default.count(resolved)
    without = "\n".join(inputs_of(method, **{"task.dates": False}))
    assert words in without
    assert resolved not in without


@pytest.mark.parametrize("name", [name for name in TASKS if task_class(name).prompt is not None])
def test_every_task_shows_resolved_dates_unless_told_otherwise(name: str) -> None:
    context = Context(hits=(Hit(id="m1", text="We met yesterday.", time=datetime(2023, 1, 30)),))
    later = Session(
        id="s2",
        time=datetime(2023, 3, 1),
        turns=(Turn(id="D2:1", speaker="Ann", text="Last night too."),),
    )
    for settings, shows in (({}, True), ({"task.dates": False}, False)):
        asked = build("turn-rag", name, **settings).task
        query = asked.query({"question": "When?", "options": ["S1: a", "S2: b"]}, new_items=[later])
        inputs = str(asked.prompt_inputs(context, query))
        assert "We met yesterday" in inputs
        assert ("yesterday [29 January 2023]" in inputs) == shows
        assert ("Last night [28 February 2023]" in inputs) == shows


@pytest.mark.parametrize("method", sorted({*METHODS, "pgr+turn-rag", "logs+session-rag"}))
def test_no_benchmark_decides_for_one_method_alone_whether_dates_are_resolved(method: str) -> None:
    decided = {
        name
        for name in BENCHMARKS
        if any(key.endswith("task.dates") for key in preset(method, name))
    }
    assert decided == set()


def test_the_budget_of_the_context_holds_with_resolved_dates() -> None:
    turns = tuple(
        Turn(id=f"D1:{n}", speaker="Ann", text=f"Yesterday I saw boat {n}.") for n in range(40)
    )
    history = History(id="ann", items=(Session(id="D1", time=datetime(2024, 3, 5), turns=turns),))
    program = build("full-context", max_tokens=200)
    context = program.recall(program.remember(history).memory, Query(text="Which boats?")).context
    lines = program.task.context_as_shown(context).text().splitlines()
    lengths = [estimate_tokens(line) + 1 for line in lines]
    assert all("Yesterday [4 March 2024]" in line for line in lines)
    assert 200 - max(lengths) < sum(lengths) <= 200
    assert lines[-1].endswith("Yesterday [4 March 2024] I saw boat 39.")


def test_the_budget_of_the_newest_records_holds_with_resolved_dates() -> None:
    actions = [
        Action(
            id=f"a{n}",
            time=datetime(2024, 3, 5) + timedelta(hours=n),
            scene="news",
            situation="home",
            action=f"read of yesterday {n}",
        )
        for n in range(60)
    ]
    asked = build("turn-rag", "behavior-prediction").task
    asked.suffix_tokens = 300
    query = asked.query(
        {"question": "What next?", "options": ["Yes", "No"]}, [Behavior.from_actions("b1", actions)]
    )
    lines = asked.prompt_inputs(Context(), query)["records"].splitlines()
    lengths = [estimate_tokens(line) + 1 for line in lines]
    assert all("yesterday [" in line for line in lines)
    assert 300 - max(lengths) < sum(lengths) <= 300
    assert "yesterday [6 March 2024] 59" in lines[-1]


@pytest.mark.parametrize("names_dates", [False, True])
def test_a_program_that_was_saved_before_dates_were_resolved_by_default_shows_none(
    tmp_path, names_dates
) -> None:
    folder = tmp_path / "program"
    save(build("memory-r2", embedder=embedder()), folder)
    manifest = read_manifest(folder)
    assert manifest.config["task.dates"] is True
    if not names_dates:
        config = {name: value for name, value in manifest.config.items() if name != "task.dates"}
        manifest = manifest.model_copy(update={"config": config})
        manifest = manifest.model_copy(update={"manifest_sha256": digest_of(manifest)})
        (folder / "manifest.json").write_text(manifest.model_dump_json())
    program = load(folder)
    assert program.task.settings.dates is names_dates
    assert program.method.writer.shows_resolved_dates is names_dates


def test_a_program_that_answers_another_task_shows_the_lines_that_its_memories_were_written_from() -> (
    None
):
    trained = build("memory-r2", "memory-lookup", embedder(), **{"task.dates": False})
    other = with_task(trained, "question-answering", TaskSettings(abstain=True))
    assert other.task.settings.dates is False
    assert other.task.settings.abstain is True
    assert not other.method.writer.shows_resolved_dates

"""What optimizers learn from: labelled demos that hold the evidence and are never too long."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dspy
import pytest
from mempiler import Action, Behavior, Context, EntryReader, History, Hit, Session, Turn, build
from mempiler.data.dataset import Source
from mempiler.data.movielens import MovieLens
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.optimizers.compile import CompileConfig, compile_program
from mempiler.optimizers.history import CandidateHistory
from mempiler.optimizers.shortened_context import shorten_context
from mempiler.records import estimate_tokens

from ..runs.evaluations import locomo
from .conftest import asked

SETTINGS: dict[str, dict[str, Any]] = {
    "labeled": {"max_labeled_demos": 6},
    "knn": {"k": 2},
    "bootstrap": {"max_bootstrapped_demos": 1, "max_labeled_demos": 6},
}


def compiled(
    program: Any, examples: Sequence[dspy.Example], optimizer: str, lm: Any = None, **how: Any
) -> Any:
    """The compiled program, and the notes of the run."""
    lm = lm or language_model(meter=Meter())
    history = CandidateHistory(lm.meter)
    with dspy.context(lm=lm):
        how = {"settings": SETTINGS.get(optimizer), **how}
        made = compile_program(
            program, locomo(examples), examples, CompileConfig(optimizer, **how), history=history
        )
    return made, history.notes


def labelled(program: Any) -> list[Any]:
    return [demo for demo in program.task.answer.demos if not demo.get("augmented")]


@pytest.fixture
def examples(make_history) -> list[dspy.Example]:
    histories = [make_history(4, id=name) for name in ("one", "two", "three")]
    return [
        asked(history, f"D{s}:{t}") for history in histories for s in (1, 2, 3, 4) for t in (1, 3)
    ]


@pytest.mark.parametrize("optimizer", ["labeled", "knn", "bootstrap"])
def test_the_context_of_a_demo_holds_the_evidence(examples, optimizer):
    evidence = {example.question: example.evidence_ids[0] for example in examples}
    program, _ = compiled(build("turn-rag"), examples, optimizer, threshold=0.0)
    found = labelled(program)
    assert found
    for demo in found:
        assert set(demo.keys()) == {"context", "question", "answer"}
        assert f"[{evidence[demo.question]}]" in demo.context


def test_a_demo_is_what_the_predictor_sees_for_that_question(examples):
    program, _ = compiled(build("turn-rag", k=3), examples, "labeled")
    seen: dict[str, str] = {}
    for example in examples:
        with dspy.context(lm=language_model(), trace=[]):
            build("turn-rag", k=3)(**example.inputs())
            _, inputs, _ = dspy.settings.trace[-1]
            seen[inputs["question"]] = inputs["context"]
    assert {demo.question: demo.context for demo in labelled(program)}.items() <= seen.items()


@pytest.mark.parametrize("optimizer", ["labeled", "knn", "bootstrap"])
def test_a_question_whose_evidence_is_not_recalled_is_passed_over(make_history, optimizer):
    history = make_history(4)
    good = [asked(history, f"D{s}:{t}") for s in (1, 2, 3, 4) for t in (1, 3)]
    # No search finds their evidence, and it is not among the newest turns, which stand in for a hit.
    bad = [asked(history, f"D{s}:2", question=f"Zebra D{s}zulu2?") for s in (1, 2, 3)]
    found = {
        demo.question
        for demo in labelled(compiled(build("turn-rag", k=2), [*bad, *good], optimizer)[0])
    }
    assert found
    assert not found & {example.question for example in bad}
    program, notes = compiled(build("turn-rag", k=1), bad, optimizer)
    assert labelled(program) == []
    none = "of 3 training questions none"
    unpassed = [f"no bootstrapped demos: {none} scored 0.5 or more"] * (optimizer == "bootstrap")
    assert sorted(notes) == [
        *unpassed,
        f"no labelled demos: {none} was recalled with half of its evidence",
    ]


@pytest.mark.parametrize("max_demos", [0, 2])
def test_simba_shortens_only_the_calls_that_become_demos(examples, monkeypatch, max_demos):
    shortening: list[str] = []

    def note_shortening(self: Any, student: Any, **how: Any) -> Any:
        for strategy in self.strategies:
            # Every strategy is wrapped in a check of its prompts; one that shortens, once more.
            if hasattr(strategy.__wrapped__, "__wrapped__"):
                shortening.append(strategy.__name__)
        return student

    monkeypatch.setattr(dspy.SIMBA, "compile", note_shortening)
    compiled(build("turn-rag"), examples, "simba", settings={"bsize": 4, "max_demos": max_demos})
    assert shortening == ["append_a_demo_"] * (max_demos > 0)


def test_demos_are_spread_over_the_categories(make_history):
    history = make_history(4)
    many = [asked(history, f"D{s}:{t}", "4") for s in (1, 2, 3, 4) for t in range(1, 7)]
    few = [asked(history, "D1:1", "1"), asked(history, "D2:2", "2")]
    program, _ = compiled(
        build("turn-rag"), [*many, *few], "labeled", settings={"max_labeled_demos": 3}
    )
    assert sorted(demo.question[-2] for demo in labelled(program)) == ["1", "2", "4"]


@pytest.mark.parametrize("optimizer", ["labeled", "knn", "bootstrap"])
def test_demos_of_long_contexts_are_short_and_keep_the_evidence(optimizer):
    turns = [
        Turn(id=f"D1:{n}", speaker="Ann", text=f"number{n} " + "and so on and on " * 20)
        for n in range(40)
    ]
    history = History(
        id="long", items=(Session(id="D1", time=datetime(2024, 1, 3), turns=tuple(turns)),)
    )
    examples = [
        asked(history, f"D1:{n}", question=f"What of number{n}?", answer=f"number{n}", id=str(n))
        for n in range(12)
    ]
    settings = {"demo_context_tokens": 300, "max_demo_tokens": 2000, **SETTINGS[optimizer]}
    program, notes = compiled(
        build("full-context"), examples, optimizer, settings=settings, threshold=0.0
    )
    answering = program.task.answer
    for demo in answering.demos:
        assert estimate_tokens(demo.context) <= 400
        assert f" {demo.question[8:-1]} " in demo.context
    prompt = answering.select_demos({"question": "What of number3?", "context": ""})
    assert prompt
    assert sum(estimate_tokens(demo.context) for demo in prompt) <= 2000
    if optimizer == "labeled":
        assert notes == ["5 of 6 demos fit a prompt: they may have 2,000 tokens (max_demo_tokens)"]


def test_the_context_of_a_demo_is_measured_with_the_dates_that_it_shows():
    turns = [
        Turn(id=f"D1:{n}", speaker="Ann", text=f"number{n} came yesterday, yesterday, yesterday")
        for n in range(40)
    ]
    history = History(
        id="long", items=(Session(id="D1", time=datetime(2024, 1, 3), turns=tuple(turns)),)
    )
    examples = [
        asked(history, f"D1:{n}", question=f"What of number{n}?", answer=f"number{n}", id=str(n))
        for n in range(6)
    ]
    settings = {"demo_context_tokens": 150, **SETTINGS["labeled"]}
    program, _ = compiled(
        build("full-context"), examples, "labeled", settings=settings, threshold=0.0
    )
    assert program.task.answer.demos
    for demo in program.task.answer.demos:
        assert "yesterday [2 January 2024]" in demo.context
        assert estimate_tokens(demo.context) <= 150


def test_a_model_with_a_small_window_gets_fewer_demos(examples):
    lm = language_model(meter=Meter())
    lm.window = 2560
    program, notes = compiled(
        build("turn-rag"), examples, "labeled", lm, settings={"max_labeled_demos": 8}
    )
    assert 0 < len(labelled(program)) < 8
    assert len(notes) == 1
    assert "the model's window of 2,560" in notes[0]


def test_where_no_question_has_all_of_its_evidence_those_with_half_of_it_are_taken(make_history):
    history = make_history(4)
    half = [asked(history, f"D{s}:1", evidence_ids=(f"D{s}:1", "D9:1")) for s in (1, 2)]
    third = asked(history, "D3:1", evidence_ids=("D3:1", "D9:1", "D9:2"))
    program, notes = compiled(build("turn-rag"), [third, *half], "labeled")
    assert {demo.question for demo in labelled(program)} == {example.question for example in half}
    assert notes == [
        "labelled demos: no question was recalled with all of its evidence; they hold half or more"
    ]
    whole = asked(history, "D3:3")
    program, notes = compiled(build("turn-rag"), [*half, whole], "labeled")
    assert [demo.question for demo in labelled(program)] == [whole.question]
    assert notes == []


def test_a_question_that_fails_is_passed_over(examples, monkeypatch):
    program, recall = build("turn-rag"), EntryReader.recall

    def fragile(self: Any, memory: Any, query: Any) -> Context:
        if "Oslo" in query.text:
            raise RuntimeError("cannot")
        return recall(self, memory, query)

    monkeypatch.setattr(EntryReader, "recall", fragile)
    found = [demo.question for demo in labelled(compiled(program, examples, "labeled")[0])]
    assert len(found) == 6
    assert not any("Oslo" in question for question in found)


def test_all_inputs_of_another_task_are_there_and_bounded():
    first = datetime(2025, 9, 1, 8)
    actions = tuple(
        Action(
            id=f"a{n}",
            time=first,
            scene="movie",
            situation=f"title: film {n} " + "drama " * 40,
            action="rated 4",
        )
        for n in range(60)
    )
    history = History(id="u", items=(Behavior.from_actions("b", actions),))
    examples = [
        dspy.Example(
            id=str(n),
            history=history,
            recent=(),
            question=f"Film {n}?",
            options=["4", "5"],
            answer="4",
            evidence_ids=(),
        ).with_inputs("history", "recent", "question", "options", "evidence_ids")
        for n in range(4)
    ]
    with dspy.context(lm=language_model()):
        how = CompileConfig("labeled", settings={"max_labeled_demos": 2})
        program = compile_program(
            build("turn-rag", "behavior-prediction"),
            MovieLens(examples, Source("sample.json", "0" * 64, sample=True)),
            examples,
            how,
        )
    for demo in labelled(program):
        assert set(demo.keys()) == {"context", "records", "question", "options", "answer"}
        assert demo.options == ["4", "5"]
        assert 0 < estimate_tokens(demo.records) <= 300
        assert estimate_tokens(demo.context) <= 300
    assert len(labelled(program)) == 2


def hits(*lengths: int, **kinds: str) -> tuple[Hit, ...]:
    return tuple(
        Hit(id=f"h{n}", text="word" * length, sources=(f"t{n}",), kind=kinds.get(f"h{n}", "turn"))
        for n, length in enumerate(lengths)
    )


@pytest.mark.parametrize(
    ("context", "evidence", "kept"),
    [
        (Context(hits=hits(*[5] * 9)), ("t7",), "h3 h4 h5 h6 h7 h8"),
        (Context(hits=hits(*[5] * 9)), ("t0", "t8"), "h0 h1 h2 h6 h7 h8"),
        (Context(hits=hits(5, 5, 500, 5)), ("t2",), "h2"),
        (Context(hits=hits(*[40] * 9)), ("t4",), "h3 h4"),
        (Context(hits=hits(500, 5)), (), "h0"),
        (Context(hits=hits(5, 5)), ("t0",), "h0 h1"),
    ],
    ids=[
        "nearest in rank",
        "two of them",
        "too long itself",
        "what fits",
        "no labels",
        "short enough",
    ],
)
def test_a_context_is_shortened_around_its_evidence(context, evidence, kept):
    assert " ".join(hit.id for hit in shorten_context(context, evidence, 100).hits) == kept

"""What optimizers learn from: labelled demos that hold the evidence and are never too long.

A demo is an example in a prompt. A labelled demo shows a training question, its gold answer, and
what the program recalls for it (the context). A bootstrapped demo is copied from a call of the
program whose answer was right.

The optimizers `labeled` and `knn` make labelled demos alone, and `bootstrap` makes both. An answer
with a score below the threshold becomes no bootstrapped demo.

The evidence of a question are the turns of its history that hold the answer. They are recalled if
they are in the context that the program takes from its memory.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler import (
    Action,
    Behavior,
    Context,
    EntryReader,
    History,
    Hit,
    Method,
    Session,
    Turn,
    build,
)
from mempiler.data.dataset import Source
from mempiler.data.movielens import MovieLens
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.optimizers.compile import CompileConfig, compile_program
from mempiler.optimizers.history import CandidateHistory
from mempiler.optimizers.shortened_context import shorten_context
from mempiler.programs.baselines.turn_rag import TurnWriter
from mempiler.programs.program import MemoryProgram
from mempiler.programs.reader import ANY_COSINE
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.records import estimate_tokens

from ..runs.evaluations import locomo
from .conftest import question_about

SETTINGS: dict[str, dict[str, Any]] = {
    "labeled": {"max_labeled_demos": 6},
    "knn": {"k": 2},
    "bootstrap": {"max_bootstrapped_demos": 1, "max_labeled_demos": 6},
}
"""Settings of the optimizers that make labelled demos."""


class CompiledWithNotes(NamedTuple):
    """A compiled program, and what the optimizer noted."""

    program: MemoryProgram
    notes: list[str]


def compile_with(
    optimizer: str,
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    lm: Any = None,
    settings: dict[str, Any] | None = None,
    **config: Any,
) -> CompiledWithNotes:
    """Compile a program on training questions, with the offline engine or with `lm`.

    Without `settings`, those of `SETTINGS` hold: at most six labelled demos.
    """
    lm = lm or language_model(meter=Meter())
    settings = settings or SETTINGS.get(optimizer)
    history = CandidateHistory(lm.meter)
    with dspy.context(lm=lm):
        compiled = compile_program(
            program,
            locomo(examples),
            examples,
            CompileConfig(optimizer, settings=settings, **config),
            history=history,
        )
    return CompiledWithNotes(compiled, history.notes)


def labelled_demos(program: Any) -> list[Any]:
    """Return the demos of the answer prompt that hold gold answers."""
    return [demo for demo in program.task.answer.demos if not demo.get("augmented")]


def texts_of_questions(demos: Sequence[Any]) -> set[str]:
    """Return the texts of the questions of demos."""
    return {demo.question for demo in demos}


@pytest.fixture
def examples(make_history: Callable[..., History]) -> list[dspy.Example]:
    """Twenty-four questions: eight about each of three histories."""
    questions: list[dspy.Example] = []
    for history_id in ("one", "two", "three"):
        questions.extend(eight_questions(make_history(4, id=history_id)))
    return questions


def eight_questions(history: History) -> list[dspy.Example]:
    """Return two questions about each of the four sessions of a history, all of category 4."""
    turn_ids = ["D1:1", "D1:3", "D2:1", "D2:3", "D3:1", "D3:3", "D4:1", "D4:3"]
    return [question_about(history, turn_id) for turn_id in turn_ids]


@pytest.mark.parametrize("optimizer", ["labeled", "knn", "bootstrap"])
def test_the_context_of_a_demo_holds_the_evidence_of_its_question(examples, optimizer):
    """A demo is an example in a prompt: a question, what is recalled for it, and its answer.

    The evidence of each question is one turn. A context shows it as "[D1:3] ... Bob: ...".
    """
    evidence_by_question = {example.question: example.evidence_ids[0] for example in examples}

    compiled = compile_with(optimizer, build("turn-rag"), examples, threshold=0.0)

    demos = labelled_demos(compiled.program)
    assert len(demos) > 0
    for demo in demos:
        turn_id = evidence_by_question[demo.question]
        assert f"[{turn_id}]" in demo.context


def context_in_prompt(program: MemoryProgram, example: dspy.Example) -> str:
    """Ask a program a question; return the context that the prompt showed."""
    with dspy.context(lm=language_model(), trace=[]):
        program(**example.inputs())
        _, prompt_inputs, _ = dspy.settings.trace[-1]
    return prompt_inputs["context"]


def test_a_demo_has_the_context_that_the_prompt_of_its_question_would_have(examples):
    """A demo is an example in a prompt: a question, what is recalled for it, and its answer.

    Here a prompt shows the three turns that are most like the question: `k` is 3.
    """
    examples_by_question = {example.question: example for example in examples}

    compiled = compile_with("labeled", build("turn-rag", k=3), examples)

    demos = labelled_demos(compiled.program)
    assert len(demos) > 0
    for demo in demos:
        example = examples_by_question[demo.question]
        assert demo.context == context_in_prompt(build("turn-rag", k=3), example)


@pytest.fixture
def zebra_questions(make_history: Callable[..., History]) -> list[dspy.Example]:
    """Three questions such as "Zebra D1zulu2?", whose evidence no search finds.

    No turn has such words. So the newest turns are shown, and the evidence is not among them.
    """
    history = make_history(4)
    return [
        question_about(history, turn_id=f"D{session}:2", question=f"Zebra D{session}zulu2?")
        for session in (1, 2, 3)
    ]


@pytest.mark.parametrize("optimizer", ["labeled", "knn", "bootstrap"])
def test_a_question_whose_evidence_is_not_recalled_does_not_become_a_demo(
    make_history, zebra_questions, optimizer
):
    """The demo would teach to answer what the context does not say.

    No turn has words such as "Zebra", so no search finds the evidence of these questions.
    """
    other_questions = eight_questions(make_history(4))

    compiled = compile_with(optimizer, build("turn-rag", k=2), [*zebra_questions, *other_questions])

    demos = labelled_demos(compiled.program)
    assert len(demos) > 0
    for demo in demos:
        assert not demo.question.startswith("Zebra")


@pytest.mark.parametrize("optimizer", ["labeled", "knn"])
def test_an_optimizer_that_can_make_no_labelled_demo_notes_why(zebra_questions, optimizer):
    """A labelled demo shows a question with its gold answer, and at least half of its evidence.

    No search finds the evidence of the three questions.
    """
    assert len(zebra_questions) == 3

    compiled = compile_with(optimizer, build("turn-rag", k=1), zebra_questions)

    assert compiled.program.task.answer.demos == []
    assert compiled.notes == [
        "no labelled demos: of 3 training questions none was recalled with half of its evidence"
    ]


def test_bootstrap_notes_for_each_of_its_two_kinds_of_demos_why_it_can_make_none(zebra_questions):
    """`bootstrap` makes bootstrapped demos, of right answers, and labelled ones.

    No search finds the evidence of the three questions, and without it the model answers none.
    """
    assert len(zebra_questions) == 3

    compiled = compile_with("bootstrap", build("turn-rag", k=1), zebra_questions)

    assert compiled.program.task.answer.demos == []
    assert sorted(compiled.notes) == [
        "no bootstrapped demos: of 3 training questions none scored 0.5 or more",
        "no labelled demos: of 3 training questions none was recalled with half of its evidence",
    ]


def shortens_calls(strategy: Any) -> bool:
    """Return whether a strategy of SIMBA shortens the calls that it gets.

    Every strategy is wrapped in a check of its prompts. One that shortens is wrapped once more.
    """
    wrappers = 0
    while hasattr(strategy, "__wrapped__"):
        wrappers += 1
        strategy = strategy.__wrapped__
    return wrappers > 1


@pytest.fixture
def strategies_of_simba(examples, monkeypatch) -> Callable[[int], list[Any]]:
    """A function that compiles with SIMBA, and returns the strategies that DSPy is given.

    SIMBA is an optimizer of DSPy; it is replaced, and does nothing. The argument is `max_demos`.
    """

    def compile_with_simba(max_demos: int) -> list[Any]:
        strategies: list[Any] = []

        def note_strategies(teleprompter: Any, student: Any, **options: Any) -> Any:
            strategies.extend(teleprompter.strategies)
            return student

        monkeypatch.setattr(dspy.SIMBA, "compile", note_strategies)
        settings = {"bsize": 4, "max_demos": max_demos}
        compile_with("simba", build("turn-rag"), examples, settings=settings)
        assert strategies
        return strategies

    return compile_with_simba


@pytest.mark.parametrize(("max_demos", "expected"), [(0, []), (2, ["append_a_demo_"])])
def test_simba_shortens_only_the_calls_that_become_demos(strategies_of_simba, max_demos, expected):
    """SIMBA is an optimizer of DSPy. Its strategy `append_a_demo_` makes a call a demo.

    The call may have a long context, so it is shortened. Other strategies see whole calls. Without
    demos, nothing is shortened.
    """
    strategies = strategies_of_simba(max_demos)

    shortening = [strategy.__name__ for strategy in strategies if shortens_calls(strategy)]
    assert shortening == expected


def test_the_three_demos_of_a_prompt_are_of_three_categories(make_history):
    """Eight questions are of category 4, one is of category 1, and one of category 2."""
    history = make_history(4)
    examples = [
        *eight_questions(history),
        question_about(history, "D1:1", category="1"),
        question_about(history, "D2:2", category="2"),
    ]

    compiled = compile_with(
        "labeled", build("turn-rag"), examples, settings={"max_labeled_demos": 3}
    )

    categories = {
        demo.question.rpartition("of category ")[2] for demo in labelled_demos(compiled.program)
    }
    assert categories == {"1?", "2?", "4?"}


def history_of_forty_turns(text: str) -> History:
    """Return a history of one session of forty turns: "number0 TEXT", "number1 TEXT" and so on.

    The session was on 3 January 2024.
    """
    turns = tuple(
        Turn(id=f"D1:{number}", speaker="Ann", text=f"number{number} {text}")
        for number in range(40)
    )
    session = Session(id="D1", time=datetime(2024, 1, 3), turns=turns)
    return History(id="long", items=(session,))


LONG_TEXT = "and so on and on " * 20
"""About 85 tokens."""


def questions_about_first_turns(history: History, count: int) -> list[dspy.Example]:
    """Return a question about each of the first turns of `history_of_forty_turns`."""
    return [
        question_about(
            history,
            f"D1:{number}",
            id=str(number),
            question=f"What of number{number}?",
            answer=f"number{number}",
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("optimizer", ["labeled", "knn", "bootstrap"])
def test_the_long_context_of_a_demo_is_cut_around_the_evidence(optimizer):
    """`full-context` recalls all forty turns, 3,400 tokens, and a demo may have 300 of them.

    All demos of a prompt together may have 2,000 tokens. With a threshold of 0, `bootstrap` makes a
    demo of every answer, right or wrong.
    """
    questions = questions_about_first_turns(history_of_forty_turns(LONG_TEXT), 12)
    settings = {**SETTINGS[optimizer], "demo_context_tokens": 300, "max_demo_tokens": 2000}

    compiled = compile_with(
        optimizer, build("full-context"), questions, settings=settings, threshold=0.0
    )

    demos = compiled.program.task.answer.demos
    assert demos
    for demo in demos:
        # An answer that is copied from a call may have a somewhat longer context.
        assert estimate_tokens(demo.context) <= 400
        turn_name = demo.question.removeprefix("What of ").removesuffix("?")
        assert f" {turn_name} " in demo.context


def test_a_prompt_shows_as_many_demos_as_may_have_their_tokens_and_a_note_says_so():
    """Each of six demos has a context of about 300 tokens, a question and an answer.

    So six demos have more than 2,000 tokens, and five have less.
    """
    questions = questions_about_first_turns(history_of_forty_turns(LONG_TEXT), 12)
    settings = {"max_labeled_demos": 6, "demo_context_tokens": 300, "max_demo_tokens": 2000}

    compiled = compile_with("labeled", build("full-context"), questions, settings=settings)

    answer = compiled.program.task.answer
    shown_demos = answer.select_demos({"question": "What of number3?", "context": ""})
    assert len(shown_demos) == 5
    assert compiled.notes == [
        "5 of 6 demos fit a prompt: they may have 2,000 tokens (max_demo_tokens)"
    ]


def test_dates_that_are_added_to_the_context_of_a_demo_count_toward_its_token_limit():
    """A context shows a date behind each relative time: "yesterday [2 January 2024]".

    The session was on the day after, 3 January. `full-context` recalls all forty turns, so the
    optimizer has to cut the context of each demo.
    """
    token_limit = 150
    history = history_of_forty_turns("came yesterday, yesterday, yesterday")

    compiled = compile_with(
        "labeled",
        build("full-context"),
        questions_about_first_turns(history, count=6),
        settings={"max_labeled_demos": 6, "demo_context_tokens": token_limit},
    )

    demos = compiled.program.task.answer.demos
    assert demos
    for demo in demos:
        assert "yesterday [2 January 2024]" in demo.context
        assert estimate_tokens(demo.context) <= token_limit


def test_a_model_with_a_small_window_gets_fewer_demos(examples):
    """The window is the number of tokens that a model can read, and demos are examples in a prompt.

    Eight demos have more than 2,560 tokens.
    """
    lm = language_model(meter=Meter())
    lm.window = 2560

    compiled = compile_with(
        "labeled", build("turn-rag"), examples, lm, settings={"max_labeled_demos": 8}
    )

    assert 0 < len(labelled_demos(compiled.program)) < 8
    (note,) = compiled.notes
    assert "the model's window of 2,560" in note


def test_if_no_question_is_recalled_with_all_of_its_evidence_half_of_it_is_enough_for_a_demo(
    make_history,
):
    """A demo shows a question with what is recalled for it, which should hold the evidence.

    There is no session D9, so turns such as D9:1 cannot be recalled.
    """
    history = make_history(4)
    half_recalled = question_about(history, "D1:1", evidence_ids=("D1:1", "D9:1"))
    also_half_recalled = question_about(history, "D2:1", evidence_ids=("D2:1", "D9:1"))
    a_third_recalled = question_about(history, "D3:1", evidence_ids=("D3:1", "D9:1", "D9:2"))
    examples = [a_third_recalled, half_recalled, also_half_recalled]

    compiled = compile_with("labeled", build("turn-rag"), examples)

    questions = texts_of_questions(labelled_demos(compiled.program))
    assert questions == {half_recalled.question, also_half_recalled.question}
    assert compiled.notes == [
        "labelled demos: no question was recalled with all of its evidence; they hold half or more"
    ]


def test_if_a_question_is_recalled_with_all_of_its_evidence_those_with_half_of_it_are_left_out(
    make_history,
):
    """A demo shows a question with what is recalled for it, which should hold the evidence.

    There is no session D9, so the turn D9:1 cannot be recalled.
    """
    history = make_history(4)
    half_recalled = question_about(history, "D1:1", evidence_ids=("D1:1", "D9:1"))
    all_recalled = question_about(history, "D3:3", evidence_ids=("D3:3",))

    compiled = compile_with("labeled", build("turn-rag"), [half_recalled, all_recalled])

    (demo,) = labelled_demos(compiled.program)
    assert demo.question == all_recalled.question
    assert compiled.notes == []


class ReaderThatFailsForOslo(EntryReader):
    """Recalls entries of a memory, but fails for questions about Oslo."""

    def recall(self, memory: Any, query: Any) -> Context:
        if "Oslo" in query.text:
            raise RuntimeError("cannot recall")
        return super().recall(memory, query)


def test_a_question_for_which_recalling_fails_does_not_become_a_demo(examples):
    """The program raises an error when it recalls for a question about Oslo."""
    assert any("Oslo" in example.question for example in examples)
    reader = ReaderThatFailsForOslo(10, min_score=ANY_COSINE, hybrid=True)
    program = MemoryProgram(Method(TurnWriter(), reader), QuestionAnswering())

    compiled = compile_with("labeled", program, examples, settings={"max_labeled_demos": 6})

    demos = labelled_demos(compiled.program)
    assert len(demos) == 6
    for demo in demos:
        assert "Oslo" not in demo.question


def example_with_sixty_ratings(number: int) -> dspy.Example:
    """Return a question how a user rates a film; the history has sixty long ratings."""
    ratings = tuple(
        Action(
            id=f"a{rating}",
            time=datetime(2025, 9, 1, 8),
            scene="movie",
            situation=f"title: film {rating} " + "drama " * 40,
            action="rated 4",
        )
        for rating in range(60)
    )
    example = dspy.Example(
        id=str(number),
        history=History(id="u", items=(Behavior.from_actions("b", ratings),)),
        recent=(),
        question=f"Film {number}?",
        options=["4", "5"],
        answer="4",
        evidence_ids=(),
    )
    return example.with_inputs("history", "recent", "question", "options", "evidence_ids")


def test_both_long_inputs_of_a_demo_are_shortened():
    """To predict what a user will do, a prompt shows a context and the user's latest records.

    By default, each may have 300 tokens in a demo.
    """
    examples = [example_with_sixty_ratings(number) for number in range(4)]
    benchmark = MovieLens(examples, Source("sample.json", "0" * 64, sample=True))
    program = build("turn-rag", "behavior-prediction")
    config = CompileConfig("labeled", settings={"max_labeled_demos": 2})

    with dspy.context(lm=language_model()):
        compiled = compile_program(program, benchmark, examples, config)

    demos = labelled_demos(compiled)
    assert len(demos) == 2
    for demo in demos:
        assert set(demo.keys()) == {"context", "records", "question", "options", "answer"}
        assert 0 < estimate_tokens(demo.records) <= 300
        assert estimate_tokens(demo.context) <= 300


def context_of(*tokens_of_hits: int) -> Context:
    """Return a context of the hits h0, h1, ..., the best first, with so many tokens each.

    They hold the turns t0, t1, ...
    """
    hits = tuple(
        Hit(id=f"h{number}", text="word" * tokens, sources=(f"t{number}",), kind="turn")
        for number, tokens in enumerate(tokens_of_hits)
    )
    return Context(hits=hits)


def remaining_hits(context: Context, evidence: tuple[str, ...]) -> list[str]:
    """Return the ids of the hits that are left when a context is shortened to 100 tokens."""
    shortened = shorten_context(context, evidence, 100)
    return [hit.id for hit in shortened.hits]


@pytest.mark.parametrize(
    ("evidence", "remaining"),
    [
        pytest.param(("t7",), ["h3", "h4", "h5", "h6", "h7", "h8"], id="one turn"),
        pytest.param(("t0", "t8"), ["h0", "h1", "h2", "h6", "h7", "h8"], id="two turns"),
    ],
)
def test_a_context_is_shortened_to_the_hits_nearest_in_rank_to_the_evidence(evidence, remaining):
    """A context has six hits at most. The hit h7 holds the turn t7, for example."""
    nine_short_hits = context_of(5, 5, 5, 5, 5, 5, 5, 5, 5)

    assert remaining_hits(nine_short_hits, evidence) == remaining


def test_of_long_hits_only_as_many_are_kept_as_fit_beside_the_evidence():
    """Two hits of 40 tokens fit into 100. The hit h4 holds the evidence."""
    context = context_of(40, 40, 40, 40, 40, 40)

    assert remaining_hits(context, evidence=("t4",)) == ["h3", "h4"]


@pytest.mark.parametrize(
    ("context", "evidence", "remaining"),
    [
        pytest.param(context_of(5, 5, 500, 5), ("t2",), ["h2"], id="too long itself"),
        pytest.param(context_of(500, 5), (), ["h0"], id="no known evidence: the best hit"),
        pytest.param(context_of(5, 5), ("t0",), ["h0", "h1"], id="short enough: all hits"),
    ],
)
def test_the_hit_with_the_evidence_is_always_kept(context, evidence, remaining):
    """A context of hits with so many tokens each is shortened to 100 tokens."""
    assert remaining_hits(context, evidence) == remaining

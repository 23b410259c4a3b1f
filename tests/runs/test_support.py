"""Runs with the metric `support`, which scores recalled memories and asks for no answer.

The score of a question is 1 if what the program recalls for it holds the words of the gold answer.
Only the first `support_tokens` tokens of that count, so that a program cannot store everything.

A memory consists of entries, and a writer is the part of a program that stores them. A compile
tunes prompts: the stage "write" is the prompts that write memories, and "read" the other ones.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import Entry, EntryReader, History, Item, Memory, Method, Update, UserError, Writer
from mempiler.data.benchmark import Benchmark
from mempiler.optimizers.metric_views import MetricViews
from mempiler.programs.program import MemoryProgram
from mempiler.programs.settings import Settings
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.html import render_page
from mempiler.runs.pages.page import run_page
from mempiler.runs.recorded_config import recorded_toml
from mempiler.runs.token_difference import tokens_of_questions
from pydantic import Field

from ..command_line import RunCommand, json_of, output_of
from .evaluations import own_questions


class Notebook(Memory):
    """A memory of notes."""

    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class Notes(Settings):
    """What a `NoteWriter` stores."""

    notes_by_session: tuple[tuple[str, ...], ...] = Field(
        default=(), description="the notes for the first session, for the second, and so on"
    )


class NoteWriter(Writer[Notebook, None]):
    """A writer that stores prepared notes, without a model."""

    Memory = Notebook

    def __init__(self, settings: Notes) -> None:
        super().__init__(settings)
        self.notes_by_session = settings.notes_by_session

    def update(self, memory: Notebook, item: Item, extraction: None) -> Update[Notebook]:
        session_number = int(item.id.removeprefix("D"))
        notes = list(memory.notes)
        for text in self.notes_by_session[session_number - 1]:
            note_id = f"n{len(notes) + 1}"
            notes.append(Entry(id=note_id, text=text, sources=(item.turns[-1].id,)))
        return Update(memory.replace(notes=tuple(notes)))


class NoteMethod(Method):
    """A method that writes notes by a writer, and recalls five of them."""

    def __init__(self, writer: Writer[Notebook, None]) -> None:
        super().__init__(writer, EntryReader(k=5))


def program_storing(*notes_by_session: list[str]) -> MemoryProgram:
    """Return a program that stores the first list of notes for the first session, and so on."""
    notes = Notes(notes_by_session=tuple(tuple(notes) for notes in notes_by_session))
    writer = NoteWriter(notes)
    return MemoryProgram(NoteMethod(writer), QuestionAnswering(), name="notebook")


def history_of_ann(*sessions: str) -> History:
    """Return sessions D1, D2, ..., in each of which Ann says one text, in the turn D1:1 or so."""
    messages = [[{"role": "user", "name": "Ann", "content": text}] for text in sessions]
    return History.parse(messages, id="ann")


def question(history: History, text: str, answer: str, evidence: str = "D1:1") -> dspy.Example:
    """Return a question about a history, with its gold answer and the turn that has the answer."""
    return dspy.Example(history=history, question=text, answer=answer, evidence=[evidence])


def question_about_lisbon() -> dspy.Example:
    """Return a question for tests to which its words do not matter."""
    return question(history_of_ann("I moved to Lisbon."), "Where does Ann live?", answer="Lisbon")


LISBON_IN_NOTES = ["Ann lives in Lisbon."]
"""Notes that answer `question_about_lisbon`."""


def evaluate(
    program: object, examples: Sequence[dspy.Example], **options: Any
) -> mempiler.Evaluation:
    """Score a program by the metric `support` with the offline engine."""
    options = {"metric": "support", "lm": "offline", "progress": False, **options}
    return mempiler.evaluate(program, examples, **options)


@pytest.fixture
def own_results_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test a results folder of its own.

    Commands may name a run as "last", which could otherwise be a run of another test.
    """
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))


# What a memory scores.


@pytest.mark.parametrize(
    ("notes", "score"),
    [
        pytest.param(["Ann lives in Lisbon.", "Ann's dog is called Rex."], 1.0, id="both facts"),
        pytest.param(["Ann lives in Lisbon."], 0.5, id="one of two facts"),
        pytest.param(["Ann lives in Oslo.", "Ann's dog is called Tom."], 0.0, id="inventions"),
    ],
)
def test_the_score_is_the_share_of_gold_answers_that_the_notes_contain(
    notes: list[str], score: float
) -> None:
    history = history_of_ann("I moved to Lisbon. My dog is called Rex.")
    examples = [
        question(history, "Where does Ann live?", answer="Lisbon"),
        question(history, "What is Ann's dog called?", answer="Rex"),
    ]

    evaluation = evaluate(program_storing(notes), examples)

    assert evaluation.score == score


@pytest.mark.parametrize(
    ("note", "score"),
    [
        pytest.param("Ann lives in Lisbon.", 1.0, id="the fact"),
        pytest.param(
            "Ann lives in Oslo, Quito, Hanoi, Accra, Perth, Turin, Dakar, Porto or Lisbon.",
            0.0,
            id="all possible answers",
        ),
        pytest.param(
            "It is so lovely today that I have been out all morning. I moved to Lisbon.",
            0.0,
            id="a copy of all that was said",
        ),
    ],
)
def test_only_the_first_tokens_of_a_note_count(note: str, score: float) -> None:
    """Here twelve tokens count. The long notes have more, and "Lisbon" at their end."""
    history = history_of_ann(
        "It is so lovely today that I have been out all morning. I moved to Lisbon."
    )
    example = question(history, "Where does Ann live?", answer="Lisbon")

    evaluation = evaluate(program_storing([note]), [example], support_tokens=12)

    assert evaluation.score == score


def test_a_question_without_an_answer_in_the_history_counts_in_no_score() -> None:
    """Bob is not mentioned in the history, so nothing can be recalled for the second question."""
    history = history_of_ann("I moved to Lisbon.")
    answerable = question(history, "Where does Ann live?", answer="Lisbon")
    unanswerable = dspy.Example(history=history, question="Who is Bob?", answer="Not mentioned")

    evaluation = evaluate(program_storing(["Ann lives in Lisbon."]), [answerable, unanswerable])

    assert len(evaluation.rows) == 2
    assert evaluation.score == 1
    assert evaluation.by_category()["all"]["n"] == 1


# Figures beside the score: notes of no use, and how much was stored.


def test_a_note_that_no_question_recalls_is_unused() -> None:
    """The question recalls the note about Lisbon. Six tokens count, so there is no room for more.

    The other of the two notes is of no use.
    """
    history = history_of_ann("I moved to Lisbon.")
    example = question(history, "Where does Ann live?", answer="Lisbon")
    notes = ["Ann lives in Lisbon and likes it there.", "The radio is broken."]

    evaluation = evaluate(program_storing(notes), [example], support_tokens=6)

    assert evaluation.aggregate["unused_entries"] == 1 / 2


class DiaryWriter(NoteWriter):
    """A writer that adds every session to one note, and keeps another that nobody needs."""

    def update(self, memory: Notebook, item: Item, extraction: None) -> Update[Notebook]:
        earlier_texts = [note.text for note in memory.notes if note.id == "diary"]
        diary_text = " ".join([*earlier_texts, item.turns[-1].content])
        notes = (
            Entry(id="diary", text=diary_text),
            Entry(id="motto", text="Carpe diem."),
        )
        return Update(memory.replace(notes=notes))


def test_a_note_that_a_later_session_changed_was_used() -> None:
    """The program keeps two notes, a diary and a motto, and no question recalls them.

    The second session has added to the diary, so only the motto is of no use.
    """
    history = history_of_ann("I moved to Lisbon.", "My dog is called Rex.")
    unrelated_question = dspy.Example(history=history, question="Zebra?", answer="zebra")
    diary = MemoryProgram(NoteMethod(DiaryWriter(Notes())), QuestionAnswering(), name="diary")

    evaluation = evaluate(diary, [unrelated_question], support_tokens=1)

    assert evaluation.aggregate["unused_entries"] == 1 / 2


@pytest.mark.parametrize(
    ("notes", "stored_words"),
    [
        pytest.param(["Ann: Lisbon"], 2, id="short"),
        pytest.param(["I moved to Lisbon", "I moved to Lisbon"], 8, id="copied twice"),
    ],
)
def test_stored_words_are_counted_for_each_word_that_was_said(
    notes: list[str], stored_words: int
) -> None:
    history = history_of_ann("I moved to Lisbon")
    said_words = 4
    example = question(history, "Where does Ann live?", answer="Lisbon")

    evaluation = evaluate(program_storing(notes), [example])

    assert evaluation.aggregate["stored_words_per_said_word"] == stored_words / said_words


def test_unused_and_stored_words_are_printed_and_recorded() -> None:
    evaluation = evaluate(program_storing(LISBON_IN_NOTES), [question_about_lisbon()])

    assert "of no use (unused_entries)" in str(evaluation)
    assert "words stored for each word said" in str(evaluation)
    assert evaluation.to_dict()["aggregate"].keys() == {
        "unused_entries",
        "stored_words_per_said_word",
    }


def test_with_another_metric_no_unused_or_stored_words_are_counted() -> None:
    evaluation = evaluate(program_storing(LISBON_IN_NOTES), [question_about_lisbon()], metric="f1")

    assert evaluation.aggregate == {}


# What is asked of models.


def test_no_model_is_asked_for_an_answer() -> None:
    """The program writes and recalls without a model, and the metric `support` needs no answer."""
    evaluation = evaluate(program_storing(LISBON_IN_NOTES), [question_about_lisbon()])

    assert sum(evaluation.calls.values()) == 0
    assert [row.answer for row in evaluation.rows] == [""]
    assert evaluation.failures == 0


def test_a_method_that_writes_with_a_model_asks_it_for_nothing_else() -> None:
    """Memory-R2 asks a model to write memories. `construction` counts the calls that wrote."""
    evaluation = evaluate("memory-r2", [question_about_lisbon()])

    assert evaluation.construction is not None
    assert evaluation.construction.calls > 0
    assert sum(evaluation.calls.values()) == evaluation.construction.calls


def test_a_plan_expects_calls_for_writing_and_none_for_recalling() -> None:
    """A plan says before a run how many calls it will make. Memory-R2 writes with a model."""
    plan = mempiler.plan(
        "memory-r2",
        testset=[question_about_lisbon()],
        optimizer=None,
        metric="support",
        progress=False,
    )

    assert plan.phases["recalling"].high == 0
    assert plan.phases["writing memories"].high > 0


# Tokens of the recalled text, by which programs of equal scores are compared.


def tokens_of_only_question(note: str) -> float:
    """Return the tokens that a question counts for, if a program stores and recalls a note."""
    evaluation = evaluate(program_storing([note]), [question_about_lisbon()])
    (tokens,) = tokens_of_questions(evaluation, evaluation.headline_rows)
    return tokens


def test_the_tokens_of_the_recalled_text_count_although_no_model_reads_it() -> None:
    tokens_of_short_note = tokens_of_only_question("Ann lives in Lisbon.")
    tokens_of_long_note = tokens_of_only_question("Ann lives in Lisbon." * 10)

    assert tokens_of_short_note > 0
    assert tokens_of_long_note > 3 * tokens_of_short_note


def prompt_tokens_objective(note: str) -> float:
    """Return GEPA's objective `prompt_tokens` for a program that stores and recalls a note."""
    benchmark = Benchmark.from_examples([question_about_lisbon()], "support")
    example = benchmark.examples[0]
    prediction = program_storing([note]).recalling_only()(**example.inputs())
    return MetricViews(benchmark).feedback(example, prediction).objective_scores["prompt_tokens"]


def test_gepa_prefers_a_program_that_recalls_a_shorter_text() -> None:
    """GEPA is an optimizer that looks for prompts with high scores and high objectives.

    The objective is the negative number of tokens, so it is higher for a shorter text.
    """
    objective_of_short_note = prompt_tokens_objective("Ann lives in Lisbon.")
    objective_of_long_note = prompt_tokens_objective("Ann lives in Lisbon." * 10)

    assert objective_of_long_note < objective_of_short_note < 0


# What reports say.


def evaluate_program_that_lost_the_dog() -> mempiler.Evaluation:
    """Evaluate a program that stored where Ann lives, but not that her dog is called Rex."""
    history = history_of_ann("I moved to Lisbon.", "My dog is called Rex.")
    examples = [
        question(history, "Where does Ann live?", answer="Lisbon", evidence="D1:1"),
        question(history, "What is Ann's dog called?", answer="Rex", evidence="D2:1"),
    ]
    return evaluate(program_storing(["Ann lives in Lisbon."], []), examples)


def test_a_question_is_called_supported_or_unsupported_instead_of_right_or_wrong() -> None:
    evaluation = evaluate_program_that_lost_the_dog()

    reasons = {row.question: row.reason for row in evaluation.rows}
    assert reasons == {
        "Where does Ann live?": "supported",
        "What is Ann's dog called?": "unsupported",
    }


@pytest.mark.usefixtures("own_results_folder")
def test_a_run_is_shown_with_the_number_of_questions_without_support(cli: RunCommand) -> None:
    """The program has stored where Ann lives, but not what her dog is called."""
    evaluate_program_that_lost_the_dog()

    output = output_of(cli, "show", "last")

    assert "--wrong: the questions without support (1)" in output
    assert "over all questions" in output
    assert "over all answers" not in output


@pytest.mark.usefixtures("own_results_folder")
def test_questions_without_support_are_listed_with_the_words_that_were_lost(
    cli: RunCommand,
) -> None:
    """The program has stored where Ann lives, but not that her dog is called Rex."""
    evaluate_program_that_lost_the_dog()

    output = output_of(cli, "show", "last", "--wrong")

    assert "support: 0% of the words of 'Rex'" in output
    assert "Never said in any entry about it: rex." in output


def test_the_page_calls_a_question_without_support_no_wrong_answer() -> None:
    evaluation = evaluate_program_that_lost_the_dog()

    html = render_page(run_page("evaluate", "a-run", {"score": evaluation}))

    assert "Which questions have no support" in html
    assert "without support or failed" in html
    assert "Why answers are wrong" not in html


# What is refused, and what is not.


EVALUATE_BY_SUPPORT = [
    *("evaluate", "turn-rag"),
    *("--benchmark", "locomo"),
    *("--metric", "support"),
    *("--test", "2"),
]


@pytest.mark.usefixtures("own_results_folder")
def test_a_run_is_resumed_with_the_default_budget_written_out(cli: RunCommand) -> None:
    """By default the first 300 tokens of the recalled text count."""
    output_of(cli, *EVALUATE_BY_SUPPORT)

    output_of(cli, *EVALUATE_BY_SUPPORT, "--support-tokens", "300", "--resume", "last")


@pytest.mark.usefixtures("own_results_folder")
def test_a_run_is_not_resumed_with_another_budget(cli: RunCommand) -> None:
    """By default the first 300 tokens of the recalled text count."""
    output_of(cli, *EVALUATE_BY_SUPPORT)

    exit_code, _, stderr = cli(*EVALUATE_BY_SUPPORT, "--support-tokens", "200", "--resume", "last")

    assert exit_code == 2
    assert "was started with support_tokens = 300, not 200" in stderr


@pytest.mark.usefixtures("own_results_folder")
def test_a_model_that_is_asked_nothing_needs_no_key(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turn RAG writes and recalls without a model."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    output_of(cli, *EVALUATE_BY_SUPPORT, "--lm", "anthropic/x")


@pytest.mark.usefixtures("own_results_folder")
def test_a_model_that_writes_needs_a_key_although_it_answers_nothing(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory-R2 asks a model to write memories."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    exit_code, _, stderr = cli(
        *("evaluate", "memory-r2"),
        *("--benchmark", "locomo"),
        *("--metric", "support"),
        *("--lm", "anthropic/x"),
        *("--test", "2"),
    )

    assert exit_code == 2
    assert "'anthropic/x': there is no key; set ANTHROPIC_API_KEY" in stderr


def test_a_system_that_answers_by_itself_is_refused() -> None:
    def agent(history: History, question: str) -> str:
        return "Lisbon"

    with pytest.raises(UserError, match="answers by itself and shows no memory"):
        evaluate(agent, [question_about_lisbon()])


class OldestLines:
    """A user's own store, whose search returns the oldest lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, session: Item) -> None:
        self.lines.extend(session.lines())

    def search(self, query: str, k: int) -> list[str]:
        return self.lines[:k]


def test_a_users_own_store_is_scored_by_what_its_search_returns() -> None:
    """A user may evaluate a class with `add` and `search`. It has no entries to be counted."""
    evaluation = evaluate(OldestLines, [question_about_lisbon()])

    assert evaluation.score == 1
    assert evaluation.aggregate == {}


def test_a_model_to_answer_is_refused() -> None:
    program = program_storing(LISBON_IN_NOTES)

    with pytest.raises(UserError, match="asks for no answer: --answer-lm has nothing to do"):
        evaluate(program, [question_about_lisbon()], answer_lm="offline")


def test_support_tokens_are_refused_with_another_metric() -> None:
    program = program_storing(LISBON_IN_NOTES)

    with pytest.raises(UserError, match="goes with the metric support alone"):
        evaluate(program, [question_about_lisbon()], metric="f1", support_tokens=20)


def test_support_tokens_of_0_are_refused() -> None:
    program = program_storing(LISBON_IN_NOTES)

    with pytest.raises(UserError, match="support_tokens = 0"):
        evaluate(program, [question_about_lisbon()], support_tokens=0)


@pytest.mark.parametrize(
    ("method", "stage", "advice"),
    [
        pytest.param("memory-r2", "all", "take --stage write$", id="writes with a model"),
        pytest.param("memory-r2", "read", "take --stage write$", id="recalls without a model"),
        pytest.param(
            "rgmem", "all", "take --stage write or --stage read$", id="writes and recalls with one"
        ),
        pytest.param(
            "turn-rag", "all", "turn-rag writes and recalls without a prompt", id="has no model"
        ),
    ],
)
def test_a_compile_refuses_a_stage_with_no_prompt_but_the_one_that_answers(
    method: str, stage: Any, advice: str
) -> None:
    """The metric asks for no answer, so it cannot tell whether the prompt that answers got better.

    A stage is a part of the prompts: those that write memories, those that read them, or all.
    """
    with pytest.raises(UserError, match=advice):
        mempiler.compile(method, benchmark="locomo", metric="support", stage=stage, progress=False)


def test_a_training_refuses_the_metric() -> None:
    with pytest.raises(UserError, match="asks for no answer, which rewards of a training do"):
        mempiler.train(benchmark="memory-env", metric="support", lm="local:tiny", progress=False)


def test_an_optimizer_sees_the_calls_that_wrote_a_memory_and_none_that_answers() -> None:
    """An optimizer runs a copy of the program, the student, and reads its calls in DSPy's trace."""
    program = mempiler.build("memory-r2")
    student = program.staged("write", answers=False)
    benchmark = Benchmark.from_examples([question_about_lisbon()])

    with dspy.context(lm=mempiler.language_model("offline"), trace=[]):
        prediction = student(**benchmark.examples[0].inputs())
        trace = list(dspy.settings.trace)

    traced_predictors = {predictor.path for predictor, _, _ in trace}
    assert traced_predictors
    assert traced_predictors <= program.writer_names()
    assert prediction.context.hits
    assert prediction.answer == ""


def test_without_answers_the_stage_read_leaves_out_the_prompt_that_answers() -> None:
    """RGMem asks a model while it recalls, so the stage still has prompts to tune."""
    with_answers = mempiler.build("rgmem").staged("read")
    without_answers = mempiler.build("rgmem").staged("read", answers=False)

    all_names = {name for name, _ in with_answers.named_predictors()}
    tuned_names = {name for name, _ in without_answers.named_predictors()}
    assert tuned_names
    assert all_names - tuned_names == {"task.answer"}


def feedback_to_writer(seen_turn: str) -> str:
    """Return the feedback that GEPA gives a writer on a call whose prompt had a certain turn.

    The question is what Ann's dog is called. The writer did not store that; it stored where she
    lives.
    """
    history = history_of_ann("I moved to Lisbon.", "My dog is called Rex.")
    question_about_dog = question(
        history, "What is Ann's dog called?", answer="Rex", evidence="D2:1"
    )
    benchmark = Benchmark.from_examples([question_about_dog], "support")
    example = benchmark.examples[0]
    prediction = program_storing(["Ann lives in Lisbon."], []).recalling_only()(**example.inputs())
    # A call is traced as predictor, inputs and outputs.
    calls: Any = [(None, {"dialogue": seen_turn}, None)]

    views = MetricViews(benchmark, writers=["writer"])
    return views.feedback(example, prediction, None, "writer", calls).feedback


def test_the_feedback_to_a_writer_names_the_words_that_it_did_not_store() -> None:
    """GEPA improves the prompt of a writer by feedback on its calls. This call lost "Rex"."""
    feedback = feedback_to_writer(seen_turn="[D2:1] Ann: My dog is called Rex.")

    assert "Never said in any entry about it: rex" in feedback
    assert "My dog is called Rex." in feedback


def test_the_feedback_on_a_call_that_saw_other_turns_says_that_it_was_not_concerned() -> None:
    feedback = feedback_to_writer(seen_turn="[D1:1] Ann: I moved to Lisbon.")

    assert feedback.startswith("This call did not see what the question was about")


@pytest.fixture(scope="module")
def questions_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with questions about six users."""
    return own_questions(tmp_path_factory.mktemp("support"))


@pytest.mark.usefixtures("own_results_folder")
def test_the_writing_of_a_memory_is_compiled_from_the_command_line(
    questions_file: str, cli: RunCommand
) -> None:
    """Memory-R2 writes memories with a model. No prompt that answers is asked."""
    result = json_of(
        cli,
        *("compile", "memory-r2"),
        *("--benchmark", "jsonl"),
        *("--data", questions_file),
        *("--metric", "support"),
        *("--support-tokens", "50"),
        *("--optimizer", "gepa"),
        *("--optimizer-set", "max_metric_calls=12"),
        *("--stage", "write"),
        *("--min-n", "8"),
        *("--train", "9"),
        *("--dev", "8"),
        *("--test", "8"),
    )

    assert result["before"]["score"] > 0
    asked_predictors = list(result["usage"]["call_outcomes"])
    assert asked_predictors
    for predictor_name in asked_predictors:
        assert predictor_name.startswith("method.writer.")

    # The number of tokens that count is recorded wherever the metric is.
    run = RunFolder.open("last")
    assert read_manifest(result["program"]).benchmark["support_tokens"] == 50
    assert run.read()["parameters"]["support_tokens"] == 50
    assert "support_tokens = 50" in recorded_toml(run)


def test_a_program_that_was_compiled_by_support_answers_questions_as_any_other(
    questions_file: str, tmp_path: Path
) -> None:
    """Only the compile leaves the answers out."""
    result = mempiler.compile(
        "memory-r2",
        benchmark="jsonl",
        data=questions_file,
        metric="support",
        optimizer=mempiler.optimizers.Gepa(max_metric_calls=12),
        stage="write",
        train=9,
        dev=8,
        test=8,
        min_n=8,
        force=True,
        progress=False,
    )
    result.save(tmp_path / "saved")
    loaded_program = mempiler.load(tmp_path / "saved")

    history = mempiler.benchmark("jsonl", questions_file).examples[0].history
    with dspy.context(lm=mempiler.language_model("offline")):
        assert result.program(history=history, question="What is fact 00?").answer
        assert loaded_program(history=history, question="What is fact 00?").answer

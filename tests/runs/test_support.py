"""Runs with the metric `support`, which scores recalled memories and asks for no answer.

The score of a question is 1 if what the program recalls for it holds the words of the gold answer.
Only the first `support_tokens` tokens of that count, so that a program cannot store everything.

A memory consists of entries, and a writer is the part of a program that stores them. A compile
tunes prompts: the stage "write" is the prompts that write memories, and "read" the other ones.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import Entry, EntryReader, History, Item, Memory, Method, Update, UserError, Writer
from mempiler.data.benchmark import Benchmark
from mempiler.optimizers.frontier import FrontierPoint
from mempiler.optimizers.metric_views import MetricViews
from mempiler.programs.program import MemoryProgram
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.html import render_page
from mempiler.runs.pages.page import run_page
from mempiler.runs.recorded_config import recorded_toml
from mempiler.runs.token_difference import tokens_of_questions

from ..command_line import RunCommand
from .evaluations import own_questions

SESSIONS = (
    ("Hi! Lovely weather today, is it not, I have been out all morning.", "I moved to Lisbon."),
    ("What a week, I am so tired of the office and of all the meetings.", "My dog is called Rex."),
    ("By the way, the news were boring again and the radio is broken.", "I play the accordion."),
)
"""What Ann says in three sessions: small talk, and then a fact."""
QUESTIONS = (
    ("Where does Ann live?", "Lisbon", "D1:2"),
    ("What is Ann's dog called?", "Rex", "D2:2"),
    ("What does Ann play?", "the accordion", "D3:2"),
)
"""Question, gold answer, and the turn with the evidence."""

# What the scripted writers below store of each session: its fact, something that nobody said, or a
# long list of words with the answer at its end.
FACTS = (
    "Ann lives in Lisbon.",
    "Ann's dog is called Rex.",
    "Ann plays the accordion.",
)
INVENTED = (
    "Ann lives in Oslo and loves it.",
    "Ann has a cat, Tom.",
    "Ann plays golf on Sundays.",
)
STUFFED = (
    "Ann lives in Oslo, Quito, Hanoi, Accra, Perth, Turin, Dakar, Porto, Malmo, Bergen or Lisbon.",
    "Ann's dog is called Tom, Max, Felix, Leo, Simba, Oscar, Milo, Oliver, Charlie, Jasper or Rex.",
    "Ann plays golf, chess, tennis, piano, cello, drums, violin, flute, viola, horn or accordion.",
)


class Notebook(Memory):
    """A memory of notes."""

    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


Script = Callable[[int, Item], Sequence[str]]
"""What a writer stores of a session: a function of its number, from 0, and the session."""


class ScriptedWriter(Writer[Notebook, None]):
    """A writer that stores what a script returns, without a model."""

    Memory = Notebook

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    def update(self, memory: Notebook, item: Item, extraction: None) -> Update[Notebook]:
        session_number = int(item.id.removeprefix("D")) - 1
        notes = list(memory.notes)
        for text in self.script(session_number, item):
            note_id = f"n{len(notes) + 1}"
            notes.append(Entry(id=note_id, text=text, sources=(item.turns[-1].id,)))
        return Update(memory.replace(notes=tuple(notes)))


class ScriptedMethod(Method):
    """A method with a scripted writer, which recalls five entries."""

    def __init__(self, writer: ScriptedWriter) -> None:
        super().__init__(writer, EntryReader(k=5))


def message(text: str) -> dict[str, str]:
    """Return a chat message by Ann."""
    return {"role": "user", "name": "Ann", "content": text}


def store_fact(number: int, item: Item) -> list[str]:
    """Store the fact of every session."""
    return [FACTS[number]]


def store_first_fact_only(number: int, item: Item) -> list[str]:
    """Store the fact of the first session alone."""
    return [FACTS[number]] if number == 0 else []


def store_invention(number: int, item: Item) -> list[str]:
    """Store what nobody said."""
    return [INVENTED[number]]


def store_all_possible_words(number: int, item: Item) -> list[str]:
    """Store every word that an answer may have."""
    return [STUFFED[number]]


def store_copies(number: int, item: Item) -> list[str]:
    """Store every session as it was said, and once more with the questions before it."""
    session_text = " ".join(turn.content for turn in item.turns)
    return [
        f"Ann said: {session_text}",
        f"What does Ann's dog play, where does Ann live? {session_text}",
    ]


def program_with(script: Script) -> MemoryProgram:
    """Return a program whose writer stores what a script returns."""
    return MemoryProgram(
        ScriptedMethod(ScriptedWriter(script)), QuestionAnswering(), name=script.__name__
    )


def ann_history() -> History:
    """Return the history of the three sessions."""
    sessions = [[message(text) for text in session] for session in SESSIONS]
    return History.parse(sessions, id="ann")


@pytest.fixture(scope="module")
def examples() -> list[dspy.Example]:
    """Three questions about the facts of the three sessions."""
    history = ann_history()
    return [
        dspy.Example(history=history, question=question, answer=answer, evidence=[turn_id])
        for question, answer, turn_id in QUESTIONS
    ]


def evaluate(
    program: object, examples: Sequence[dspy.Example], **options: Any
) -> mempiler.Evaluation:
    """Score a program by the metric `support` with the offline engine."""
    options = {"metric": "support", "lm": "offline", "progress": False, **options}
    return mempiler.evaluate(program, examples, **options)


def support_score(script: Script, examples: Sequence[dspy.Example], support_tokens: int) -> float:
    """Return the score of a scripted writer, if so many recalled tokens count."""
    evaluation = evaluate(program_with(script), examples, support_tokens=support_tokens)
    assert evaluation.score is not None
    return evaluation.score


def test_memories_are_ranked_as_a_person_would(examples: list[dspy.Example]) -> None:
    """Facts are best and inventions are worst.

    Copies of all that was said are between them, as is the first fact alone.
    """
    facts = support_score(store_fact, examples, support_tokens=60)
    first_fact_only = support_score(store_first_fact_only, examples, support_tokens=60)
    copies = support_score(store_copies, examples, support_tokens=60)
    inventions = support_score(store_invention, examples, support_tokens=60)

    assert facts == 1
    assert facts > copies > inventions
    assert facts > first_fact_only > inventions


def test_an_entry_with_all_possible_words_does_not_fit_into_the_budget(
    examples: list[dspy.Example],
) -> None:
    """Each entry of this writer has more than 20 tokens, and the answer at its end."""
    assert support_score(store_fact, examples, support_tokens=20) == 1
    assert support_score(store_all_possible_words, examples, support_tokens=20) == 0


def test_facts_are_stored_in_few_words_that_are_all_used(examples: list[dspy.Example]) -> None:
    evaluation = evaluate(program_with(store_fact), examples, support_tokens=20)

    assert evaluation.aggregate["unused_entries"] == 0
    assert evaluation.aggregate["stored_words_per_said_word"] < 1


def test_a_copier_stores_many_words_that_are_never_used(examples: list[dspy.Example]) -> None:
    evaluation = evaluate(program_with(store_copies), examples, support_tokens=20)

    assert evaluation.aggregate["unused_entries"] > 0.3
    # Every session is stored twice.
    assert evaluation.aggregate["stored_words_per_said_word"] > 2


@pytest.fixture
def own_results_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test a results folder of its own.

    Commands may name a run as "last", which could otherwise be a run of another test.
    """
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))


@pytest.mark.usefixtures("own_results_folder")
def test_a_question_without_an_answer_in_the_history_counts_in_no_score(
    examples: list[dspy.Example],
    cli: RunCommand,
) -> None:
    """There is nothing to recall for it. Three questions have an answer, and one has none."""
    unanswerable = dspy.Example(
        history=examples[0].history, question="Who is Bob?", answer="Not mentioned"
    )

    evaluation = evaluate(program_with(store_fact), [*examples, unanswerable])

    assert len(evaluation.rows) == 4
    assert evaluation.score == 1
    figures = evaluation.by_category()["all"]
    assert figures["n"] == 3
    assert figures["score"] == 1
    assert figures["in_score"] is True
    # The page of the run has the same figures.
    _, page, _ = cli("show", "last")
    assert "not in score" not in page


def test_a_question_costs_no_call(examples: list[dspy.Example]) -> None:
    evaluation = evaluate(program_with(store_fact), examples)

    assert sum(evaluation.calls.values()) == 0
    assert {row.answer for row in evaluation.rows} == {""}
    assert evaluation.failures == 0


def test_the_same_program_answers_if_the_metric_needs_an_answer(
    examples: list[dspy.Example],
) -> None:
    evaluation = evaluate(program_with(store_fact), examples, metric="f1")

    assert evaluation.calls["task"] == len(examples)


def test_a_method_that_writes_with_a_model_asks_it_for_nothing_else(
    examples: list[dspy.Example],
) -> None:
    """Memory-R2 asks a model to write memories. `construction` counts the calls that wrote."""
    evaluation = evaluate("memory-r2", examples)

    assert evaluation.construction is not None
    assert evaluation.construction.calls > 0
    assert sum(evaluation.calls.values()) == evaluation.construction.calls


def test_a_plan_expects_no_call_for_recalling(examples: list[dspy.Example]) -> None:
    """A plan says before a run how many calls each of its phases will make."""
    plan = mempiler.plan(
        "memory-r2", testset=examples, optimizer=None, metric="support", progress=False
    )

    assert plan.phases["recalling"].high == 0
    assert plan.phases["writing memories"].high > 0


class DiaryWriter(ScriptedWriter):
    """A writer that adds every session to one note, and keeps another that nobody needs."""

    def update(self, memory: Notebook, item: Item, extraction: None) -> Update[Notebook]:
        earlier_texts = [note.text for note in memory.notes if note.id == "diary"]
        diary_text = " ".join([*earlier_texts, item.turns[-1].content])
        notes = (
            Entry(id="diary", text=diary_text),
            Entry(id="motto", text="Carpe diem."),
        )
        return Update(memory.replace(notes=notes))


def test_an_entry_that_a_later_session_changed_was_used() -> None:
    """An entry is of use if it is recalled, or if a later session builds on it."""
    unrelated_question = dspy.Example(history=ann_history(), question="Zebra?", answer="zebra")
    diary = MemoryProgram(
        ScriptedMethod(DiaryWriter(store_fact)), QuestionAnswering(), name="diary"
    )

    evaluation = evaluate(diary, [unrelated_question], support_tokens=1)

    # Of the two entries, the diary was used, and the motto was not.
    assert evaluation.aggregate["unused_entries"] == 0.5


def test_the_figures_of_the_metric_are_printed_and_recorded(examples: list[dspy.Example]) -> None:
    evaluation = evaluate(program_with(store_copies), examples, support_tokens=20)

    assert "of no use (unused_entries)" in str(evaluation)
    assert "words stored for each word said" in str(evaluation)
    assert evaluation.to_dict()["aggregate"].keys() == {
        "unused_entries",
        "stored_words_per_said_word",
    }


def test_other_metrics_have_no_figures_of_support(examples: list[dspy.Example]) -> None:
    assert evaluate(program_with(store_copies), examples, metric="f1").aggregate == {}


def test_without_answers_a_question_is_called_neither_right_nor_wrong(
    examples: list[dspy.Example],
) -> None:
    evaluation = evaluate(program_with(store_first_fact_only), examples)

    reasons = [row.reason for row in evaluation.rows]
    assert sorted(reasons) == ["supported", "unsupported", "unsupported"]


def test_a_longer_context_counts_more_tokens_although_nothing_answers(
    examples: list[dspy.Example],
) -> None:
    with_facts = evaluate(program_with(store_fact), examples)
    with_copies = evaluate(program_with(store_copies), examples)

    tokens_of_facts = tokens_of_questions(with_facts, with_facts.headline_rows)
    tokens_of_copies = tokens_of_questions(with_copies, with_copies.headline_rows)
    assert len(tokens_of_facts) == len(examples)
    for short_context, long_context in zip(tokens_of_facts, tokens_of_copies, strict=True):
        assert 0 < short_context < long_context / 3


def prompt_tokens_objective(script: Script, benchmark: Benchmark) -> float:
    """Return the objective by which GEPA prefers programs whose contexts are short."""
    example = benchmark.examples[0]
    prediction = program_with(script).recalling_only()(**example.inputs())
    return MetricViews(benchmark).feedback(example, prediction).objective_scores["prompt_tokens"]


def test_gepa_prefers_the_shorter_of_two_contexts(examples: list[dspy.Example]) -> None:
    """GEPA is an optimizer: it looks for prompts with a high score, and other high objectives."""
    benchmark = Benchmark.from_examples(examples, "support")

    objective_of_facts = prompt_tokens_objective(store_fact, benchmark)
    objective_of_copies = prompt_tokens_objective(store_copies, benchmark)

    # GEPA takes more for better, so the tokens count as negative numbers.
    assert objective_of_facts < 0
    assert objective_of_copies < objective_of_facts * 3


@pytest.mark.parametrize(
    ("metric", "title"),
    [
        ("support", "tokens of recalled context and prompts, a question"),
        ("f1", "tokens of prompts, a question"),
    ],
)
def test_the_page_of_a_frontier_names_the_tokens_that_count(
    examples: list[dspy.Example], metric: str, title: str
) -> None:
    """The page of a compile draws the programs that GEPA tried, by their scores and tokens."""
    candidate = FrontierPoint(
        number=0,
        parents=(),
        instructions={},
        score=0.5,
        n=3,
        prompt_tokens=40.0,
        on_frontier=True,
    )
    evaluation = evaluate(program_with(store_fact), examples, metric=metric)

    html = render_page(run_page("compile", "a-run", {"before": evaluation}, frontier=(candidate,)))

    assert title in html


@pytest.mark.usefixtures("own_results_folder")
def test_questions_without_support_are_shown_with_the_words_that_were_lost(
    examples: list[dspy.Example],
    cli: RunCommand,
) -> None:
    evaluate(program_with(store_first_fact_only), examples)

    _, page, _ = cli("show", "last")
    assert "--wrong: the questions without support (2)" in page
    assert "over all questions" in page
    assert "over all answers" not in page

    _, unsupported, _ = cli("show", "last", "--wrong")
    assert "support: 0% of the words of 'Rex'" in unsupported
    assert "Never said in any entry about it: rex." in unsupported
    # Nothing answered, so no answer is spoken of.
    assert "answer" not in unsupported.replace("gold answer's words", "")

    # The list names a question in a command, as in "mempiler show last --question ID: ...".
    question_id = unsupported.partition("--question ")[2].split(": ")[0]
    _, details, _ = cli("show", "last", "--question", question_id)
    assert details.count("Never said in any entry about it") == 1


def test_a_question_without_support_is_no_wrong_answer_on_the_page(
    examples: list[dspy.Example],
) -> None:
    evaluation = evaluate(program_with(store_first_fact_only), examples)

    html = render_page(run_page("evaluate", "a-run", {"score": evaluation}))

    assert "Which questions have no support" in html
    assert "without support or failed" in html
    assert "Why answers are wrong" not in html


@pytest.mark.usefixtures("own_results_folder")
def test_a_run_is_resumed_with_the_default_budget_written_out(
    cli: RunCommand,
) -> None:
    command = [
        *("evaluate", "turn-rag"),
        *("--benchmark", "locomo"),
        *("--metric", "support"),
        *("--test", "2"),
    ]
    exit_code, _, stderr = cli(*command)
    assert exit_code == 0, stderr

    # The default budget.
    exit_code, _, stderr = cli(*command, "--support-tokens", "300", "--resume", "last")
    assert exit_code == 0, stderr

    exit_code, _, stderr = cli(*command, "--support-tokens", "200", "--resume", "last")
    assert exit_code == 2
    assert "was started with support_tokens = 300, not 200" in stderr


@pytest.mark.usefixtures("own_results_folder")
def test_only_a_model_that_is_asked_something_needs_a_key(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    options = ["--benchmark", "locomo", "--metric", "support", "--lm", "anthropic/x", "--test", "2"]

    # This method writes and recalls without a model.
    exit_code, _, stderr = cli("evaluate", "turn-rag", *options)
    assert exit_code == 0, stderr

    exit_code, _, stderr = cli("evaluate", "memory-r2", *options)
    assert exit_code == 2
    assert "'anthropic/x': there is no key; set ANTHROPIC_API_KEY" in stderr


def test_a_system_that_answers_by_itself_is_refused(examples: list[dspy.Example]) -> None:
    def agent(history: History, question: str) -> str:
        return "Lisbon"

    with pytest.raises(UserError, match="answers by itself and shows no memory"):
        evaluate(agent, examples)


def test_the_users_own_store_is_searched(examples: list[dspy.Example]) -> None:
    """A user may evaluate a class with `add` and `search`."""

    class Store:
        """A store that returns the oldest lines."""

        def __init__(self) -> None:
            self.lines: list[str] = []

        def add(self, session: Item) -> None:
            self.lines.extend(session.lines())

        def search(self, query: str, k: int) -> list[str]:
            return self.lines[:k]

    evaluation = evaluate(Store, examples)

    assert evaluation.score == 1
    assert evaluation.aggregate == {}
    assert sum(evaluation.calls.values()) == 0


def test_a_model_to_answer_is_refused(examples: list[dspy.Example]) -> None:
    with pytest.raises(UserError, match="asks for no answer: --answer-lm has nothing to do"):
        evaluate(program_with(store_fact), examples, answer_lm="offline")


def test_support_tokens_are_refused_with_another_metric(examples: list[dspy.Example]) -> None:
    with pytest.raises(UserError, match="goes with the metric support alone"):
        evaluate(program_with(store_fact), examples, metric="f1", support_tokens=20)


def test_support_tokens_of_0_are_refused(examples: list[dspy.Example]) -> None:
    with pytest.raises(UserError, match="support_tokens = 0"):
        evaluate(program_with(store_fact), examples, support_tokens=0)


@pytest.mark.parametrize(
    ("method", "stage", "advice"),
    [
        ("memory-r2", "all", "take --stage write$"),
        ("memory-r2", "read", "take --stage write$"),
        ("rgmem", "all", "take --stage write or --stage read$"),
        ("turn-rag", "all", "turn-rag writes and recalls without a prompt"),
    ],
)
def test_a_compile_is_refused_a_stage_with_the_prompt_that_answers(
    method: str, stage: Any, advice: str
) -> None:
    """The metric asks for no answer.

    So it cannot tell whether the prompt that answers got better.
    """
    with pytest.raises(UserError, match=advice):
        mempiler.compile(method, benchmark="locomo", metric="support", stage=stage, progress=False)


def test_a_training_refuses_the_metric() -> None:
    with pytest.raises(UserError, match="asks for no answer, which rewards of a training do"):
        mempiler.train(benchmark="memory-env", metric="support", lm="local:tiny", progress=False)


def test_an_optimizer_sees_the_calls_that_wrote_and_recalls_without_answering(
    examples: list[dspy.Example],
) -> None:
    """What an optimizer tunes is the student; it learns of its calls from DSPy's trace."""
    program = mempiler.build("memory-r2")
    student = program.staged("write", answers=False)
    inputs = Benchmark.from_examples(examples).examples[0].inputs()

    with dspy.context(lm=mempiler.language_model("offline"), trace=[]):
        prediction = student(**inputs)
        trace = list(dspy.settings.trace)

    assert prediction.answer == ""
    assert prediction.context.hits
    traced_predictors = {predictor.path for predictor, _, _ in trace}
    assert traced_predictors
    assert traced_predictors <= program.writer_names()
    assert "task.answer" not in dict(student.named_parameters())


def test_the_stage_read_tunes_the_prompts_that_recall_and_not_the_one_that_answers() -> None:
    """RGMem asks a model while it recalls.

    So its stage "read" has prompts to tune besides the answer.
    """
    with_answers = mempiler.build("rgmem").staged("read")
    without_answers = mempiler.build("rgmem").staged("read", answers=False)

    all_names = {name for name, _ in with_answers.named_predictors()}
    tuned_names = {name for name, _ in without_answers.named_predictors()}
    assert tuned_names
    assert all_names - tuned_names == {"task.answer"}


def writer_feedback(examples: Sequence[dspy.Example], seen_turn_id: str) -> str:
    """Return the feedback that GEPA gives a writer on a call that saw a certain turn.

    The writer did not store Rex, whom the question is about.
    """
    benchmark = Benchmark.from_examples(examples, "support")
    question_about_rex = benchmark.examples[1]
    program = program_with(store_first_fact_only)
    prediction = program.recalling_only()(**question_about_rex.inputs())
    # A call is traced as predictor, inputs and outputs.
    calls: Any = [(None, {"dialogue": f"[{seen_turn_id}] Ann: words"}, None)]

    views = MetricViews(benchmark, writers=["writer"])
    return views.feedback(question_about_rex, prediction, None, "writer", calls).feedback


def test_a_writer_reads_which_words_were_lost(examples: list[dspy.Example]) -> None:
    """GEPA improves the prompt of a writer by feedback on its calls."""
    # This turn says that the dog is called Rex.
    feedback = writer_feedback(examples, seen_turn_id="D2:2")

    assert "Never said in any entry about it: rex" in feedback
    assert "My dog is called Rex." in feedback


def test_a_writer_that_saw_other_turns_reads_that_it_was_not_concerned(
    examples: list[dspy.Example],
) -> None:
    # This turn is of another session.
    feedback = writer_feedback(examples, seen_turn_id="D1:1")

    assert feedback.startswith("This call did not see what the question was about")


@pytest.fixture(scope="module")
def questions_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with questions about six users."""
    return own_questions(tmp_path_factory.mktemp("support"))


@pytest.fixture
def compile_command(questions_file: str) -> list[str]:
    """A command that compiles how Memory-R2 writes, in a few seconds."""
    return [
        *("compile", "memory-r2"),
        *("--benchmark", "jsonl"),
        *("--data", questions_file),
        *("--metric", "support"),
        *("--optimizer", "gepa"),
        *("--optimizer-set", "max_metric_calls=12"),
        *("--stage", "write"),
        *("--min-n", "8"),
        *("--train", "9"),
        *("--dev", "8"),
        *("--test", "8"),
        "--json",
    ]


@pytest.mark.usefixtures("own_results_folder")
def test_the_writing_of_a_memory_is_compiled_from_the_command_line(
    compile_command: list[str],
    cli: RunCommand,
) -> None:
    exit_code, stdout, stderr = cli(*compile_command, "--support-tokens", "50")
    assert exit_code == 0, stderr
    result = json.loads(stdout)
    assert result["before"]["score"] > 0
    assert "unused_entries" in result["before"]["aggregate"]
    # No prompt that answers was asked.
    for predictor_name in result["usage"]["call_outcomes"]:
        assert predictor_name.startswith("method.writer.")
    assert result["usage"]["call_outcomes"]

    # The budget is recorded wherever the metric is.
    run = RunFolder.open("last")
    assert read_manifest(result["program"]).benchmark["support_tokens"] == 50
    assert run.read()["parameters"]["support_tokens"] == 50
    assert "support_tokens = 50" in recorded_toml(run)

    # A run is resumed with the same budget, and with no other.
    _, stdout, _ = cli(*compile_command, "--support-tokens", "50", "--resume", "last")
    resumed = json.loads(stdout)
    assert resumed["before"]["score"] == result["before"]["score"]

    exit_code, _, stderr = cli(*compile_command, "--support-tokens", "60", "--resume", "last")
    assert exit_code == 2
    assert "was started with support_tokens = 50, not 60" in stderr


def test_the_compiled_program_answers_questions(questions_file: str, tmp_path: Path) -> None:
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

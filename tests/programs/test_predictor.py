"""Predictors: the demos that they show, what is recorded of their calls, and streamed answers.

A predictor is one prompt of a program: instructions, fields and demos, which are worked examples.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import dspy
import numpy as np
import pytest
from dspy.utils import DummyLM
from dspy.utils.exceptions import AdapterParseError
from mempiler import Store, UserError, Writer, build, predictor
from mempiler.engines.lm import language_model
from mempiler.errors import AnswerChangedError
from mempiler.programs.adapter import adapter
from mempiler.programs.answer_stream import AnswerStream
from mempiler.programs.predictor import Predictor, predictors_of, replace_predictors
from mempiler.programs.prompts_text import prompts_text
from mempiler.programs.recording import record_failure, record_rejected, recording
from mempiler.programs.settings import Settings
from mempiler.programs.state import dump_predictor
from mempiler.programs.streaming import send_answer_to
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.programs.threads import gather
from mempiler.records import Failure
from mempiler.signatures.answering import AnswerFromContext

from tests.stub_server import StubServer


def test_the_error_without_a_model_says_what_to_pass() -> None:
    """A user has configured no language model, and calls a predictor."""
    with pytest.raises(UserError, match=r"^no language model: pass lm=dspy\.LM"):
        predictor(AnswerFromContext)(context="", question="Where?")


# Demos: worked examples that a prompt shows before the question


@pytest.mark.parametrize(
    ("question", "nearest", "answers"),
    [
        pytest.param("When did Eve move to Rome?", 2, ["May 2023", "June 2022"], id="two-nearest"),
        pytest.param("Which instrument does Eve play?", 1, ["cello"], id="one-nearest"),
        pytest.param("Zzz?", 2, ["May 2023", "cello"], id="none-is-near"),
        pytest.param(
            "anything", 9, ["May 2023", "cello", "whippet", "June 2022"], id="more-than-there-are"
        ),
        pytest.param(
            "anything", None, ["May 2023", "cello", "whippet", "June 2022"], id="no-limit"
        ),
    ],
)
def test_the_nearest_demos_are_shown_in_their_order(
    question: str, nearest: int | None, answers: list[str]
) -> None:
    """Only the demos whose words are nearest to the question are shown, which saves tokens.

    `nearest` is how many; if no demo is near, the first ones are shown.
    """
    answer_predictor = predictor(AnswerFromContext)
    answer_predictor.nearest = nearest
    answer_predictor.demos = [
        dspy.Example(question="When did Ann move to Lisbon?", answer="May 2023"),
        dspy.Example(question="What instrument does Bob play?", answer="cello"),
        dspy.Example(question="Which dog breed does Cleo own?", answer="whippet"),
        dspy.Example(question="When did Dan move to Oslo?", answer="June 2022"),
    ]

    demos = answer_predictor.select_demos({"context": "", "question": question})

    assert [demo.answer for demo in demos] == answers


class MusicEmbedder:
    """An embedding model that only knows whether a text is about music."""

    name = "music"
    dimension = 2

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        vectors: list[tuple[int, int]] = []
        for text in texts:
            is_about_music = "cello" in text or "instrument" in text
            vectors.append((1, 0) if is_about_music else (0, 1))
        return np.asarray(vectors, np.float32)


def test_demos_are_near_by_the_embedding_model_of_the_program() -> None:
    """A demo is a worked example. Here a prompt shows only the one that is nearest to the question.

    The embedding model gives the same vector to all questions about music: those with the words
    "cello" or "instrument".
    """
    program = build("turn-rag", embedder=MusicEmbedder())
    program.task.answer.nearest = 1
    program.task.answer.demos = [
        dspy.Example(question="When did Ann move to Lisbon?", answer="May 2023"),
        dspy.Example(question="What instrument does Bob play?", answer="viola"),
    ]
    lm = DummyLM([{"answer": "Eve's"}])

    with dspy.context(lm=lm):
        history = [[{"role": "user", "content": "Eve has a cello."}]]
        program(history=history, question="Whose cello is that?")

    prompt = str(lm.history[-1]["messages"])
    assert "What instrument does Bob play?" in prompt
    assert "When did Ann move to Lisbon?" not in prompt


def test_prompts_as_text_show_instructions_fields_and_demos_of_every_predictor() -> None:
    """A user reads and compares the prompts of a program as one text."""
    program = build("memory-r2")
    states = {
        name: dump_predictor(program_predictor)
        for name, program_predictor in program.all_predictors().items()
    }

    text = prompts_text(states)

    for name, state in states.items():
        assert f"{name}\n===" in text
        assert state.instructions in text
        for field in state.fields:
            assert f"{field.kind} {field.name} ({field.type}): {field.desc}" in text


def test_prompts_as_text_say_which_demos_a_program_has_made() -> None:
    """A demo is a worked example. DSPy marks those that a program has made as augmented."""
    answer_predictor = predictor(AnswerFromContext)
    answer_predictor.demos = [dspy.Example(question="Who?\nWhere?", answer="Ada", augmented=True)]

    text = prompts_text({"task.answer": dump_predictor(answer_predictor)})

    assert "Demo 1 of 1, made by the program\n---" in text
    assert "question: Who?\nWhere?\nanswer: Ada" in text


# Parts of a method, such as a writer: settings, and calls that fail


class GreetingSettings(Settings):
    words: Any = "hey"


def test_a_setting_that_has_no_json_form_is_refused() -> None:
    """Settings are saved as JSON, which has no form for the value `object()`."""
    with pytest.raises(UserError, match=r"the setting words = .* cannot be saved"):
        GreetingSettings(words=object())


class AskingWriter(Writer):
    """A writer with a predictor, and another one two modules below."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = predictor(AnswerFromContext)
        self.inner: Any = dspy.Module()
        self.inner.think = dspy.ChainOfThought(AnswerFromContext)


@pytest.mark.parametrize("path", ["ask", "inner.think"])
def test_an_unreadable_answer_is_a_failure_of_its_predictor(scripted: Any, path: str) -> None:
    """`try_call` returns None in place of an error, and records where the call failed.

    The writer has one predictor of its own, `ask`, and one inside another module, `inner.think`.
    """
    writer = AskingWriter()
    module_to_call = attrgetter(path)(writer)
    plain_adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    lm = scripted(lambda kind, text, n: "junk")

    with dspy.context(lm=lm, adapter=plain_adapter), recording() as record:
        prediction = writer.try_call(module_to_call, context="", question="Who?")

    assert prediction is None
    (failure,) = record.failures
    assert failure.kind == "parse"
    assert failure.where == path
    assert "\n" not in failure.message


class PolitePredictor(Predictor):
    """Asks every question politely."""

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        return super().forward(question=f"{kwargs['question']}, please?")


def test_an_asynchronous_call_of_a_subclass_runs_the_forward_of_the_subclass(scripted: Any) -> None:
    """The subclass adds ", please?" to every question."""
    lm = scripted(lambda kind, text, n: {"answer": "Lisbon"})
    polite_predictor = PolitePredictor("question -> answer")

    with dspy.context(lm=lm):
        prediction = asyncio.run(polite_predictor.acall(question="Where"))

    assert prediction.answer == "Lisbon"
    ((_, prompt),) = lm.engine.prompts
    assert "Where, please?" in prompt


# Plain predictors of DSPy, which a module of a user may have, are replaced by ours, which record
# their calls


class Pair(NamedTuple):
    first: Any
    second: Any


DEMO = dspy.Example(question="What instrument does Bob play?", answer="viola")


def plain_predictor() -> dspy.Predict:
    """Return a predictor of DSPy with settings, a demo and a model of its own."""
    plain = dspy.Predict(AnswerFromContext, temperature=0.5)
    plain.demos = [DEMO]
    plain.lm = DummyLM([])
    return plain


def module_with(**attributes: Any) -> Any:
    """Return a module that has some attributes."""
    module = dspy.Module()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def test_plain_predictors_are_replaced_wherever_dspy_finds_them() -> None:
    """The module of a user may have plain predictors of DSPy; ours record their calls.

    They may be attributes, or stand in lists, dictionaries, tuples and modules below.
    """
    module = module_with(
        attribute=plain_predictor(),
        steps=[plain_predictor(), dspy.ChainOfThought(AnswerFromContext)],
        by_name={"b": plain_predictor()},
        pair=Pair(plain_predictor(), 1),
    )
    paths_before = list(predictors_of(module))

    replace_predictors(module)

    assert type(module.attribute) is Predictor
    assert type(module.steps[0]) is Predictor
    assert type(module.steps[1].predict) is Predictor
    assert type(module.by_name["b"]) is Predictor
    assert type(module.pair.first) is Predictor
    assert list(predictors_of(module)) == paths_before


def test_a_module_that_refers_to_itself_is_not_followed_for_ever() -> None:
    module = module_with(attribute=plain_predictor())
    module.itself = module

    replace_predictors(module)

    assert type(module.attribute) is Predictor


def test_a_predictor_in_several_places_is_replaced_by_a_single_one() -> None:
    """An optimizer that changes the predictor in one place changes it in all.

    Plain predictors of DSPy are replaced by ours, which record their calls.
    """
    shared = plain_predictor()
    module = module_with(
        attribute=shared, steps=[shared], by_name={"b": shared}, pair=Pair(shared, 1)
    )

    replace_predictors(module)

    assert type(module.attribute) is Predictor
    assert module.steps[0] is module.attribute
    assert module.by_name["b"] is module.attribute
    assert module.pair.first is module.attribute


def test_other_values_of_a_module_are_not_replaced() -> None:
    """Plain predictors are those of DSPy; ours record their calls."""
    mempiler_predictor = predictor(AnswerFromContext)
    numbers = (1, 2)
    module = module_with(mempiler_predictor=mempiler_predictor, numbers=numbers)

    replace_predictors(module)

    assert module.mempiler_predictor is mempiler_predictor
    assert module.numbers is numbers


def test_a_new_predictor_has_what_the_plain_one_has() -> None:
    """A plain predictor of DSPy is replaced by ours, which records its calls.

    It has a demo, a language model of its own, and a temperature of 0.5.
    """
    plain = plain_predictor()
    module = module_with(attribute=plain)

    replace_predictors(module)

    new_predictor = module.attribute
    assert new_predictor.demos == [DEMO]
    assert new_predictor.lm is plain.lm
    assert new_predictor.config == {"temperature": 0.5}
    assert new_predictor.stage == plain.stage


def test_a_new_predictor_shares_no_signature_with_the_plain_one() -> None:
    """DSPy's optimizer InferRules edits the instructions of a signature class in place.

    The plain predictor, which ours replaces, must not change by that.
    """
    plain = plain_predictor()
    module = module_with(attribute=plain)

    replace_predictors(module)

    assert module.attribute.signature.equals(AnswerFromContext)
    assert module.attribute.signature is not plain.signature


# Recordings: `with recording() as record` lists the calls of predictors and the failures in a block


class NameThing(dspy.Signature):
    """Name a thing."""

    thing: str = dspy.InputField()
    name: str = dspy.OutputField()


def things_of(calls: Sequence[Any]) -> list[str]:
    """Return the inputs of recorded calls of `NameThing`."""
    return [call.inputs["thing"] for call in calls]


def test_concurrent_calls_are_recorded_in_the_order_of_the_program(scripted: Any) -> None:
    """Recordings of two runs can be compared, whichever call ends first."""

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        """Answer late if the thing is a sloth."""
        if "sloth" in text:
            time.sleep(0.02)
        return {"name": "x"}

    name_thing = predictor(NameThing)

    def name_two_sloths() -> None:
        name_thing(thing="old sloth")
        name_thing(thing="young sloth")

    def name_a_hare() -> None:
        name_thing(thing="hare")

    with dspy.context(lm=scripted(reply), adapter=adapter()), recording() as record:
        # Both run at the same time, and the hare is named first.
        gather([name_two_sloths, name_a_hare])

    assert things_of(record.calls) == ["old sloth", "young sloth", "hare"]


def test_a_corrected_answer_is_another_completion_of_the_same_call(scripted: Any) -> None:
    """An answer that cannot be read is asked for once more, within the same call.

    The first answer of the model is "junk", and the second one is well-formed.
    """
    name_thing = predictor(NameThing)
    lm = scripted(lambda kind, text, n: "junk" if n == 1 else {"name": "x"})

    with dspy.context(lm=lm, adapter=adapter()), recording(keep_completions=True) as record:
        name_thing(thing="x")

    (call,) = record.calls
    unreadable, corrected = call.completions
    assert unreadable.text == "junk"
    assert corrected.text.startswith("[[ ## name")
    assert call.error is None
    assert [message["role"] for message in unreadable.messages] == ["system", "user"]


def test_answers_that_stay_unreadable_are_kept_as_they_came(scripted: Any) -> None:
    """Whoever looks for the fault can see both answers: the first, and the repeated one.

    The model answers twice with "junk", from which no output can be read.
    """
    name_thing = predictor(NameThing)
    lm = scripted(lambda kind, text, n: "junk")

    with (
        dspy.context(lm=lm, adapter=adapter()),
        recording(keep_completions=True) as record,
        pytest.raises(AdapterParseError),
    ):
        name_thing(thing="x")

    (call,) = record.calls
    assert [completion.text for completion in call.completions] == ["junk", "junk"]
    assert call.error is not None


def test_rejected_operations_are_counted_at_the_latest_call_of_their_predictor(
    scripted: Any,
) -> None:
    """A writer rejects what it cannot carry out, such as the change of an unknown fact.

    Here it rejects two operations of the latest answer of a predictor, which names things.
    """
    name_thing = predictor(NameThing)
    other_predictor = predictor(NameThing)

    with dspy.context(lm=scripted(lambda kind, text, n: {"name": "x"})), recording() as record:
        name_thing(thing="first")
        name_thing(thing="second")
        other_predictor(thing="third")
        record_rejected(name_thing, 2)

    assert things_of(record.calls) == ["first", "second", "third"]
    assert [call.rejected_operations for call in record.calls] == [0, 2, 0]


def test_calls_within_an_inner_recording_are_not_in_the_outer_one(scripted: Any) -> None:
    """A recording lists the calls of predictors in its block, and the failures.

    To write a memory is such an inner block: its calls belong to the memory, not to a question.
    """
    name_thing = predictor(NameThing)

    with dspy.context(lm=scripted(lambda kind, text, n: {"name": "x"})), recording() as outer:
        name_thing(thing="before")
        with recording() as inner:
            name_thing(thing="within")
            record_failure(Failure(kind="error", where="x", message="y"))
        name_thing(thing="after")

    assert things_of(outer.calls) == ["before", "after"]
    assert outer.failures == []
    assert things_of(inner.calls) == ["within"]
    assert len(inner.failures) == 1


def test_an_inner_recording_keeps_no_prompts_that_it_does_not_want(scripted: Any) -> None:
    """Inner calls may write a memory, and are then kept as long as the memory.

    So their large prompts are only kept where the inner recording asks for them.
    """
    name_thing = predictor(NameThing)

    with (
        dspy.context(lm=scripted(lambda kind, text, n: {"name": "x"})),
        recording(keep_completions=True) as outer,
    ):
        name_thing(thing="before")
        with recording() as inner:
            name_thing(thing="within")

    assert len(outer.calls[0].completions) == 1
    assert len(inner.calls[0].completions) == 0


# Streamed answers

MESSAGES = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]


def model_of(server: StubServer) -> Any:
    """Return the language model that a stub server plays."""
    return language_model(server.model, api_base=server.url, cache=False, retries=0, deadline=10)


def streamed_requests(server: StubServer) -> list[bool]:
    """Return for every request to a server whether its answer was to be streamed."""
    return [bool(body.get("stream")) for _, _, body in server.requests]


@pytest.mark.parametrize("task", ["question-answering", "personal-response"])
@pytest.mark.parametrize("method", ["turn-rag", "pgr"])
def test_only_the_answer_is_streamed(store: Store, method: str, task: str) -> None:
    """A user sees the words of the answer as they come, and nothing of the calls before it.

    PGR asks the model for facts, steps and a summary before the answer; turn-rag asks nothing else.
    """
    sent_words: list[str] = []
    with StubServer() as server:
        memory = build(method, task).memory(store, "ada", lm=model_of(server))
        with send_answer_to(AnswerStream(sent_words.append)):
            memory.add(MESSAGES)
            answer = memory.ask("Where did I move?").answer
        *earlier_calls, call_for_answer = streamed_requests(server)

    assert call_for_answer is True
    assert bool(earlier_calls) is (method == "pgr")
    assert not any(earlier_calls)
    assert answer != ""
    assert "".join(sent_words) == answer


class AnsweringInCapitals(QuestionAnswering):
    """Changes the answer after the model has written it."""

    def build_outputs(self, prediction: Any, query: Any) -> Any:
        prediction.answer = prediction.answer.upper()
        return prediction


class AskedQuestion(NamedTuple):
    """What came of one question under a listener for streamed words."""

    answer: str
    sent_words: list[str]
    streamed: list[bool]
    """For every request to the model, whether its answer was to be streamed."""


def ask_for_stream(program: Any, store: Store, completion: str, **query: Any) -> AskedQuestion:
    """Ask a program where Ada moved, and listen for streamed words; a model has one completion."""
    sent_words: list[str] = []
    with StubServer(answer=lambda body: completion) as server:
        memory = program.memory(store, "ada", lm=model_of(server))
        memory.add(MESSAGES, remember=False)
        with send_answer_to(AnswerStream(sent_words.append)):
            answer = memory.ask("Where did I move?", **query).answer
        return AskedQuestion(answer, sent_words, streamed_requests(server))


def test_an_answer_that_its_task_changes_is_not_streamed(store: Store) -> None:
    """Words that a user has seen cannot be taken back, so only a final answer may be streamed.

    Here the task writes the answer of the model in capitals.
    """
    program = build("turn-rag")
    program.task = AnsweringInCapitals()

    question = ask_for_stream(program, store, "[[ ## answer ## ]]\nto Lisbon")

    assert question.answer == "TO LISBON"
    assert question.sent_words == []
    assert question.streamed == [False]


def test_a_choice_is_not_streamed(store: Store) -> None:
    """The answer is one of the given options, and only the whole text tells which."""
    program = build("turn-rag", "multiple-choice")

    question = ask_for_stream(
        program, store, "[[ ## answer ## ]]\n(a)", options=["(a) Lisbon", "(b) Porto"]
    )

    assert question.answer
    assert question.sent_words == []
    assert question.streamed == [False]


def test_an_answer_under_the_compact_adapter_is_not_streamed(store: Store) -> None:
    """This adapter asks for the bare answer, without a header before it.

    Other adapters have the model write "[[ ## answer ## ]]" first. Here nothing tells whether the
    first words belong to the answer.
    """
    program = build("turn-rag", adapter="compact")

    question = ask_for_stream(program, store, "To Lisbon.")

    assert question.answer == "To Lisbon."
    assert question.sent_words == []
    assert question.streamed == [False]


def test_python_gets_the_words_before_the_model_has_ended(store: Store) -> None:
    """`astream` yields the words of an answer as they come.

    The server sends the later words only once the first ones have reached the reader.
    """
    first_words_came = threading.Event()

    def wait_for_first_words(event_number: int) -> None:
        # The events before are those of the header, "[[ ## answer ## ]]", and of the first words.
        if event_number >= 7:
            assert first_words_came.wait(10)

    async def read_stream(memory: Any) -> list[str]:
        parts: list[str] = []
        async for part in memory.astream("Where did I move?"):
            first_words_came.set()
            parts.append(part)
        return parts

    def answer(body: Any) -> str:
        return "[[ ## answer ## ]]\nTo Lisbon. In spring."

    with StubServer(answer=answer, between=wait_for_first_words) as server:
        memory = build("turn-rag").memory(store, "ada", lm=model_of(server))
        memory.add(MESSAGES, remember=False)
        parts = asyncio.run(read_stream(memory))

    assert parts == ["To", " Lisbon.", " In", " spring."]


@pytest.mark.parametrize(
    ("attempts", "sent_parts"),
    [
        pytest.param(["To Lisbon"], ["To Lisbon"], id="one-attempt"),
        pytest.param(["To Lis", "To Lisbon"], ["To Lis", "bon"], id="goes-on"),
        pytest.param(["To Lisbon", "To Lis"], ["To Lisbon"], id="breaks-earlier"),
        pytest.param(
            ["To Lis", "To Porto", "To Lisbon"], ["To Lis", "bon"], id="says-something-else"
        ),
        pytest.param(["", "To"], ["To"], id="begins-empty"),
    ],
)
def test_an_attempt_goes_on_where_the_words_of_earlier_ones_ended(
    attempts: list[str], sent_parts: list[str]
) -> None:
    """A call that breaks is made again, and words that the user has must not be sent twice."""
    parts: list[str] = []
    stream = AnswerStream(parts.append)

    for attempt in attempts:
        receive_text = stream.begin_attempt(layout="headers")
        receive_text(f"[[ ## answer ## ]]\n{attempt}")

    assert parts == sent_parts


def test_the_remainder_of_an_answer_is_what_was_not_sent() -> None:
    """Words of an answer are sent to the user as the model writes them, and the rest at the end."""
    stream = AnswerStream(lambda words: None)
    receive_text = stream.begin_attempt(layout="headers")
    receive_text("[[ ## answer ## ]]\nTo Lisbon")

    assert stream.remainder("To Lisbon, she said.") == ", she said."


def test_a_final_answer_that_contradicts_the_words_that_were_sent_is_refused() -> None:
    """Words that a user has seen cannot be taken back."""
    stream = AnswerStream(lambda words: None)
    receive_text = stream.begin_attempt(layout="headers")
    receive_text("[[ ## answer ## ]]\nTo Lisbon")

    with pytest.raises(AnswerChangedError, match="another one"):
        stream.remainder("In Lisbon")

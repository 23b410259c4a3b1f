"""Predictors: demos nearest to their inputs, parts, what is recorded of calls; the words of an answer as it comes."""

import asyncio
import copy
import threading
from typing import Any, NamedTuple

import dspy
import numpy as np
import pytest
from dspy.utils import DummyLM
from dspy.utils.exceptions import AdapterParseError
from mempiler import Store, UserError, build, predictor
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.errors import AnswerChangedError
from mempiler.programs._component import Component
from mempiler.programs._correcting_adapter import CorrectingAdapter
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

POOL = [
    dspy.Example(question="When did Ann move to Lisbon?", answer="May 2023"),
    dspy.Example(question="What instrument does Bob play?", answer="cello"),
    dspy.Example(question="Which dog breed does Cleo own?", answer="whippet"),
    dspy.Example(question="When did Dan move to Oslo?", answer="June 2022"),
]


def test_without_a_model_the_line_says_what_to_pass() -> None:
    with pytest.raises(UserError, match=r"^no language model: pass lm=dspy\.LM"):
        predictor(AnswerFromContext)(context="", question="Where?")


@pytest.mark.parametrize(
    ("question", "nearest", "answers"),
    [
        ("When did Eve move to Rome?", 2, ["May 2023", "June 2022"]),
        ("Which instrument does Eve play?", 1, ["cello"]),
        ("Zzz?", 2, ["May 2023", "cello"]),
        ("anything", 9, ["May 2023", "cello", "whippet", "June 2022"]),
        ("anything", None, ["May 2023", "cello", "whippet", "June 2022"]),
    ],
)
def test_the_nearest_demos_are_shown_in_the_order_of_the_pool(question, nearest, answers):
    made = predictor(AnswerFromContext)
    made.demos, made.nearest = POOL, nearest
    assert [
        demo.answer for demo in made.select_demos({"context": "", "question": question})
    ] == answers


class ByTopic:
    """Vectors of two words that share no letters: a model that knows what is meant."""

    name, dimension = "by-topic", 2

    def embed(self, texts):
        return np.asarray(
            [(1, 0) if "cello" in text or "instrument" in text else (0, 1) for text in texts],
            np.float32,
        )


def test_an_embedding_model_of_the_program_adds_what_is_meant():
    program = build("turn-rag", embedder=ByTopic())
    answer = program.task.answer
    answer.demos, answer.nearest = POOL, 1
    lm = DummyLM([{"answer": "Eve's"}])
    with dspy.context(lm=lm):
        program(
            history=[[{"role": "user", "content": "Eve has a cello."}]],
            question="Whose cello is that?",
        )
    shown = str(lm.history[-1]["messages"])
    assert [demo.question in shown for demo in POOL] == [False, True, False, False]


def test_every_predictor_has_its_instructions_fields_and_demos_in_the_text():
    program = build("memory-r2")
    predictor = program.all_predictors()["task.answer"]
    predictor.signature = predictor.signature.with_instructions("Answer.\n```\nas code\n```")
    predictor.demos = [dspy.Example(question="Who?\nWhere?", answer="Ada", augmented=True)]
    states = {name: dump_predictor(each) for name, each in program.all_predictors().items()}
    said = prompts_text(states)
    for name, state in states.items():
        assert f"{name}\n===" in said
        assert state.instructions in said
        assert all(
            f"{each.kind} {each.name} ({each.type}): {each.desc}" in said for each in state.fields
        )
    assert "Demo 1 of 1, made by the program\n---" in said
    assert "question: Who?\nWhere?\nanswer: Ada" in said


class Volume(Settings):
    loud: bool = True
    words: Any = "hey"


class Shouting(Component):
    settings: Volume

    def __init__(self, settings: Volume | None = None, embedder: Any = None) -> None:
        super().__init__(settings or Volume())
        self.embedder = embedder


class Bare(Component):
    pass


def test_the_config_of_a_component_is_its_settings() -> None:
    words = ["a", {"b": None}]
    assert Shouting().config == {"loud": True, "words": "hey"}
    assert Shouting(Volume(loud=False, words=words)).config == {"loud": False, "words": words}
    assert Bare().config == {}


def test_a_copy_of_a_component_shares_its_embedder() -> None:
    part = Shouting(Volume(loud=False), embedder())
    twin = copy.deepcopy(part)
    assert twin.config == part.config
    assert twin.embedder is part.embedder


def test_a_setting_that_has_no_json_form_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"^Volume: the setting words = .* cannot be saved; use numbers, texts"
    ):
        Volume(words=object())


class Asking(Component):
    def __init__(self) -> None:
        super().__init__()
        self.one = predictor(AnswerFromContext)
        self.inner = Bare()
        self.inner.two = dspy.ChainOfThought(AnswerFromContext)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("name", "where"), [("one", "one"), ("two", "inner.two")])
def test_output_that_cannot_be_read_is_a_failure_of_its_predictor(
    scripted: Any, name: str, where: str
) -> None:
    part = Asking()
    asked: Any = part.one if name == "one" else part.inner.two  # pyright: ignore[reportAttributeAccessIssue]
    adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
    with dspy.context(lm=scripted(lambda *_: "junk"), adapter=adapter), recording() as record:
        assert part.try_call(asked, context="", question="Who?") is None
    assert [(failure.kind, failure.where) for failure in record.failures] == [("parse", where)]
    assert "\n" not in record.failures[0].message


class PolitePredictor(Predictor):
    """Asks every question politely."""

    def forward(self, **kwargs: Any) -> dspy.Prediction:
        return super().forward(question=f"{kwargs['question']}, please?")


def test_acall_of_a_subclass_runs_its_own_forward(scripted: Any) -> None:
    lm = scripted(lambda kind, text, n: {"answer": "Lisbon"})
    polite = PolitePredictor("question -> answer")
    with dspy.context(lm=lm):
        assert asyncio.run(polite.acall(question="Where")).answer == "Lisbon"
    [(_, prompt)] = lm.engine.prompts
    assert "Where, please?" in prompt


class Pair(NamedTuple):
    first: Any
    second: Any


def plain_predictor() -> dspy.Predict:
    """A predictor of DSPy with settings, a demo and a model of its own."""
    plain = dspy.Predict(AnswerFromContext, temperature=0.5)
    plain.demos = [POOL[0]]
    plain.lm = DummyLM([])
    return plain


def module_with(**attributes: Any) -> Any:
    module = Bare()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def test_plain_predictors_are_replaced_wherever_dspy_finds_them() -> None:
    module = module_with(
        attribute=plain_predictor(),
        steps=[plain_predictor(), dspy.ChainOfThought(AnswerFromContext)],
        by_name={"b": plain_predictor()},
        pair=Pair(plain_predictor(), 1),
    )
    module.itself = module  # a circle
    paths = list(predictors_of(module))

    replace_predictors(module)

    assert type(module.attribute) is Predictor
    assert type(module.steps[0]) is Predictor
    assert type(module.steps[1].predict) is Predictor
    assert type(module.by_name["b"]) is Predictor
    assert type(module.pair.first) is Predictor
    assert type(module.pair) is Pair
    assert list(predictors_of(module)) == paths


def test_predictor_in_several_places_is_replaced_by_a_single_one() -> None:
    shared = plain_predictor()
    module = module_with(
        attribute=shared, steps=[shared], by_name={"b": shared}, pair=Pair(shared, 1)
    )

    replace_predictors(module)

    assert module.attribute is module.steps[0] is module.by_name["b"] is module.pair.first


def test_only_plain_predictors_are_replaced() -> None:
    ours = predictor(AnswerFromContext)
    numbers = (1, 2)
    module = module_with(ours=ours, numbers=numbers)

    replace_predictors(module)

    assert module.ours is ours
    assert module.numbers is numbers


def test_new_predictor_has_what_the_plain_one_has() -> None:
    plain = plain_predictor()
    module = module_with(attribute=plain)

    replace_predictors(module)

    new = module.attribute
    assert new.demos == [POOL[0]]
    assert new.lm is plain.lm
    assert new.config == {"temperature": 0.5}
    assert new.stage == plain.stage


def test_new_predictor_has_a_signature_of_its_own() -> None:
    plain = plain_predictor()
    module = module_with(attribute=plain)

    replace_predictors(module)

    # InferRules edits instructions on the class.
    assert module.attribute.signature.equals(AnswerFromContext)
    assert module.attribute.signature is not plain.signature


def test_plain_predictor_itself_does_not_change() -> None:
    plain = plain_predictor()

    replace_predictors(module_with(attribute=plain))

    assert type(plain) is dspy.Predict


class Name(dspy.Signature):
    """Name a thing."""

    thing: str = dspy.InputField()
    name: str = dspy.OutputField()


def test_calls_come_in_program_order_whatever_ran_at_the_same_time(scripted: Any) -> None:
    import time

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        time.sleep(0.02 * ("b" in text))
        return {"name": "x"}

    ask = predictor(Name)
    with (
        dspy.context(lm=scripted(reply), adapter=CorrectingAdapter()),
        recording(keep_completions=True) as record,
    ):
        ask(thing="first")
        gather([lambda: (ask(thing="b one"), ask(thing="b two")), lambda: ask(thing="c")])
        ask(thing="last")
    assert [call.inputs["thing"] for call in record.calls] == [
        "first",
        "b one",
        "b two",
        "c",
        "last",
    ]
    assert all(call.completions[0].text.startswith("[[ ## name") for call in record.calls)


def test_a_correction_is_a_completion_of_the_same_call_and_what_stays_unreadable_is_kept_raw(
    scripted: Any,
) -> None:
    one, other = predictor(Name), predictor(Name)
    lm = scripted(lambda kind, text, n: "junk" if n in (1, 4, 5) else {"name": "x"})
    with (
        dspy.context(lm=lm, adapter=CorrectingAdapter()),
        recording(keep_completions=True) as record,
    ):
        for ask in (one, one):
            ask(thing="x")
        with pytest.raises(AdapterParseError):
            other(thing="x")
        record_rejected(one, 2)
    assert [[each.text[:4] for each in call.completions] for call in record.calls] == [
        ["junk", "[[ #"],
        ["[[ #"],
        ["junk", "junk"],
    ]
    assert [call.error is None for call in record.calls] == [True, True, False]
    assert [call.rejected_operations for call in record.calls] == [0, 2, 0]
    assert [message["role"] for message in record.calls[0].completions[0].messages] == [
        "system",
        "user",
    ]


def test_an_inner_recording_keeps_what_it_hears_to_itself_and_no_prompts_that_it_does_not_want(
    scripted: Any,
) -> None:
    """Steps that write a memory outlive the question that needed it first: their prompts must not."""
    ask = predictor(Name)
    with (
        dspy.context(lm=scripted(lambda *_: {"name": "x"})),
        recording(keep_completions=True) as outer,
    ):
        ask(thing="before")
        with recording() as inner:
            ask(thing="within")
            record_failure(Failure(kind="error", where="x", message="y"))
        ask(thing="after")
    assert [(call.inputs["thing"], len(call.completions)) for call in outer.calls] == [
        ("before", 1),
        ("after", 1),
    ]
    assert [(call.inputs["thing"], len(call.completions)) for call in inner.calls] == [
        ("within", 0)
    ]
    assert len(inner.failures) == 1
    assert outer.failures == []


SAID = [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]
ANSWER = "[[ ## answer ## ]]\nTo Lisbon."


def named(server: StubServer) -> Any:
    return language_model(server.model, api_base=server.url, cache=False, retries=0, deadline=10)


@pytest.mark.parametrize(
    ("method", "task", "calls"),
    [
        ("turn-rag", "question-answering", 1),
        ("turn-rag", "personal-response", 1),
        ("pgr", "personal-response", 3),
    ],
)
def test_only_the_predictor_of_the_task_is_heard(
    store: Store, method: str, task: str, calls: int
) -> None:
    with StubServer() as server:
        memory = build(method, task).memory(store, "ada", lm=named(server))
        memory.add(SAID, remember=False)
        sent: list[str] = []
        with send_answer_to(AnswerStream(sent.append)):
            memory.remember()
            written = len(server.requests)
            answer = memory.ask("Where did I move?").answer
        streams = [bool(body.get("stream")) for _, _, body in server.requests]
        assert len(streams) - written >= calls
        assert [n for n, stream in enumerate(streams) if stream] == [len(streams) - 1]
        assert "".join(sent) == answer != ""


class Loud(QuestionAnswering):
    """Makes something else of the answer."""

    def build_outputs(self, found: Any, query: Any) -> Any:
        found.answer = found.answer.upper()
        return found


@pytest.mark.parametrize(
    ("task", "adapter", "query"),
    [
        (Loud(), "chat", {}),
        ("multiple-choice", "chat", {"options": ["(a) Lisbon", "(b) Porto"]}),
        (None, "compact", {}),
    ],
    ids=["made", "choice", "adapter"],
)
def test_answers_that_are_not_given_as_written_are_not_sent(store, task, adapter, query) -> None:
    said = {"compact": "To Lisbon."}.get(adapter, "[[ ## answer ## ]]\n(a)")
    with StubServer(answer=lambda body: said) as server:
        program = build(
            "turn-rag", task if isinstance(task, str) else "question-answering", adapter=adapter
        )
        program.task = task if isinstance(task, QuestionAnswering) else program.task
        memory, sent = program.memory(store, "ada", lm=named(server)), list[str]()
        memory.add(SAID, remember=False)
        with send_answer_to(AnswerStream(sent.append)):
            assert memory.ask("Where did I move?", **query).answer
        assert sent == []
        assert [bool(body.get("stream")) for _, _, body in server.requests] == [False]


def test_python_gets_the_words_before_the_model_has_ended(store: Store) -> None:
    heard = threading.Event()

    def between(n: int) -> None:
        if n >= 7:
            assert heard.wait(10)

    async def asked(memory: Any) -> list[str]:
        parts = []
        async for part in memory.astream("Where did I move?"):
            heard.set()
            parts.append(part)
        return parts

    with StubServer(answer=lambda body: f"{ANSWER} In spring.", between=between) as server:
        memory = build("turn-rag").memory(store, "ada", lm=named(server))
        memory.add(SAID, remember=False)
        assert asyncio.run(asked(memory)) == ["To", " Lisbon.", " In", " spring."]


@pytest.mark.parametrize(
    ("attempts", "sent"),
    [
        (["To Lisbon"], ["To Lisbon"]),
        (["To Lis", "To Lisbon"], ["To Lis", "bon"]),
        (["To Lisbon", "To Lis"], ["To Lisbon"]),
        (["To Lis", "To Porto", "To Lisbon"], ["To Lis", "bon"]),
        (["", "To"], ["To"]),
    ],
)
def test_attempts_go_on_where_they_say_the_same(attempts: list[str], sent: list[str]) -> None:
    found: list[str] = []
    words = AnswerStream(found.append)
    for attempt in attempts:
        words.begin_attempt("headers")(f"[[ ## answer ## ]]\n{attempt}")
    assert found == sent
    assert words.remainder("To Lisbon, she said.") == "To Lisbon, she said.".removeprefix(
        "".join(sent)
    )
    with pytest.raises(AnswerChangedError, match="another one"):
        words.remainder("In Lisbon")

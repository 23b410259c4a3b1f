"""A question's prompts are the same, byte for byte: in evaluate, compile, the rewards of training, Python and HTTP."""

import asyncio
from typing import Any

import dspy
import httpx
import pytest
from mempiler import Store, UserMemory, build
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.optimizers.logo_grpo.reward import answer
from mempiler.programs.names import METHODS
from mempiler.runs.evaluate import evaluate
from mempiler.serving.app import make_app
from mempiler.serving.bodies import Question
from mempiler.serving.service import Service
from mempiler.serving.settings import Settings

CASES = [
    *((name, "locomo") for name in METHODS if name not in ("pramem", "h2memory")),
    ("pramem", "movielens"),
    pytest.param("h2memory", "palbench.restate", marks=pytest.mark.slow),
    ("logs+session-rag", "palbench.select"),
    ("pgr+turn-rag", "locomo"),
]

SMALLER = {"pramem": {"rounds": 2}}
"""Settings that save time; the paths get the same ones."""


def evaluated(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    evaluate(program, questions, [example], dspy.settings.lm.meter)


def compiled(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    if program.named_predictors():
        teleprompter = dspy.BootstrapFewShot(max_bootstrapped_demos=1, max_labeled_demos=0, max_rounds=1)
        teleprompter.compile(program.staged("read"), trainset=[example])


def rewarded(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    memory = program.remember(example.history).memory
    answer(program, example.history, memory, [example], lambda example, prediction: 0.0)


def from_python(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    stored(program, example, store, "python").ask(**fields_of(example))


def over_http(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    user = stored(program, example, store, "http").owner.user
    service = Service(program, store, dspy.settings.lm, settings=Settings(writers=0))

    async def post() -> httpx.Response:
        app = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
            return await client.post(f"/v1/users/{user}/ask", json=fields_of(example))

    answered = asyncio.run(post())
    assert answered.status_code == 200, answered.text


def stored(program: Any, example: dspy.Example, store: Store, user: str) -> UserMemory:
    """The memory of a user whose sessions are the example's history."""
    memory = program.memory(store, user=user)
    for item in example.history:
        memory.add(item, remember=False)
    memory.remember()
    return memory


def fields_of(example: dspy.Example) -> dict[str, Any]:
    return {key: value for key, value in example.inputs().items() if key not in ("history", "focus")}


@pytest.mark.parametrize(("method", "name"), CASES)
def test_the_prompts_of_a_question_are_the_same_on_every_path(method, name, listening, tmp_path) -> None:
    questions = benchmark(name)
    example = next(each for each in questions.examples if questions.counts(each))
    # Asked at a date: a service would say the present one.
    dated = dspy.Example({"date": "2 June 2031, Monday", **example})
    example = dated.with_inputs("date", *example.inputs().keys())
    heard: dict[str, list[str]] = {}
    ways = [evaluated, compiled, rewarded, from_python]
    ways += [over_http] if fields_of(example).keys() <= Question.model_fields.keys() else []
    with Store(tmp_path / "memories.sqlite") as store:
        for way in ways:
            engine = listening()
            lm = MeteredLM("offline/test", Meter(), engine=engine, cache=False, temperature=0.0)
            with dspy.context(lm=lm, trace=None, disable_history=True):
                way(build(method, questions.task, embedder(), **SMALLER.get(method, {})), questions, example, store)
            heard[way.__name__] = sorted(engine.prompts)
    first = heard.pop("evaluated")
    assert first
    assert {way: prompts == first for way, prompts in heard.items()} == dict.fromkeys(heard, True)

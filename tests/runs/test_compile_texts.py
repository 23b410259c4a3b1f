"""The texts of a memory system are compiled: the rules by which it writes, without Mempiler's code.

`Notes` is the user's own store. For each session it asks the model which lines to keep, and its
text "rules" says which. The model obeys: it keeps places only if the rules say so. GEPA asks it for
better rules, too, and it proposes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import dspy
import mempiler
import pytest
from mempiler import Session, Turn, UserError
from mempiler.optimizers import Gepa

from ..scripted_engine import ScriptedEngine

FIRST_RULES = "Keep what people and animals are called."
BETTER_RULES = "Keep every place."

CITIES = ["Lisbon", "Oslo", "Quito", "Hanoi", "Dakar", "Perth", "Turin", "Kyoto", "Leeds", "Porto"]


class Notes:
    """A store of the lines that its model keeps."""

    TEXTS: ClassVar = {"rules": FIRST_RULES}

    def __init__(self, texts: dict[str, str]) -> None:
        self.rules = texts["rules"]
        self.notes: list[str] = []

    def add(self, session: Any) -> None:
        """Keep what the model answers to the rules and the session."""
        lines = [f"{turn.speaker}: {turn.text}" for turn in session.turns]
        prompt = "\n".join([self.rules, *lines])
        [kept] = dspy.settings.lm(prompt)
        self.notes.extend(kept.splitlines())

    def search(self, query: str, k: int) -> list[str]:
        """Return the newest notes."""
        return self.notes[-k:]


def reply(kind: str, text: str, number: int) -> str | dict[str, Any]:
    """Answer as a model that obeys its instructions.

    Args:
        kind: The first output field; "" for a call of the store, which has no fields.
        text: The prompt.
        number: Which call of the kind it is.
    """
    if kind == "new_instruction":
        return json.dumps({"new_instruction": BETTER_RULES})
    if kind == "answer":
        known_cities = [city for city in CITIES if city in text]
        return {"answer": known_cities[-1] if known_cities else "unknown"}
    return keep_lines(text)


def keep_lines(prompt: str) -> str:
    """Return the lines of a prompt that the rules in it say to keep."""
    wanted_word = "moved" if BETTER_RULES in prompt else "called"
    lines = [line for line in prompt.splitlines() if line.startswith("User")]
    return "\n".join(line for line in lines if wanted_word in line)


def obedient_model() -> dspy.LM:
    """Return the model of these tests."""
    return dspy.LM("scripted/obedient", engine=ScriptedEngine(reply), cache=False)


def question(number: int) -> dspy.Example:
    """Return a question about the only session of a user."""
    city = CITIES[number % len(CITIES)]
    texts = [f"I moved to {city} in May.", "My dog is called Rex."]
    messages = [
        {"role": "user", "name": f"User{number}", "content": text, "time": "2024-05-01"}
        for text in texts
    ]
    return dspy.Example(
        history=messages,
        question=f"Where did User{number} move?",
        answer=city,
        evidence=["D1:1"],
        user=f"user-{number}",
    )


def questions(count: int, first: int = 0) -> list[dspy.Example]:
    """Return questions to `count` users."""
    return [question(number) for number in range(first, first + count)]


def compile_notes(store: object = Notes, **options: Any) -> mempiler.CompileResult:
    """Compile the texts of a store with GEPA."""
    options = {
        "optimizer": Gepa(max_metric_calls=12),
        "stage": "write",
        "lm": obedient_model(),
        **options,
    }
    return mempiler.compile(
        store,
        trainset=questions(9),
        valset=questions(20, first=9),
        testset=questions(4, first=29),
        metric="exact",
        progress=False,
        **options,
    )


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    """The engine of the model with which `compiled_notes` was made; it keeps the prompts."""
    return ScriptedEngine(reply)


@pytest.fixture(scope="module")
def compiled_notes(engine: ScriptedEngine) -> mempiler.CompileResult:
    """The store `Notes` after GEPA has found better rules for it."""
    return compile_notes(lm=dspy.LM("scripted/obedient", engine=engine, cache=False))


def prompts_for_better_rules(engine: ScriptedEngine) -> list[str]:
    """Return the prompts in which GEPA asked for better rules."""
    return [text for kind, text in engine.prompts if kind == "new_instruction"]


def rules_of(program: Any) -> str:
    """Return the rules of a program; for optimizers they are the instruction of a predictor."""
    return program.all_predictors()["method.writer.texts.rules"].signature.instructions


def test_better_rules_for_a_users_store_raise_the_score(
    compiled_notes: mempiler.CompileResult,
) -> None:
    """The questions ask where people have moved. The first rules of the store keep no places."""
    assert compiled_notes.promoted
    assert compiled_notes.before.score == 0.0
    assert compiled_notes.after.score == 1.0
    assert rules_of(compiled_notes.program) == "Keep every place."


def test_a_loaded_program_has_the_compiled_rules_and_answers_by_them(
    compiled_notes: mempiler.CompileResult, tmp_path: Path
) -> None:
    compiled_notes.save(tmp_path / "program")

    program = mempiler.load(tmp_path / "program", allow_code=True)

    assert rules_of(program) == "Keep every place."
    example = question(50)
    with dspy.context(lm=obedient_model()):
        answer = program(history=example.history, question=example.question).answer
    assert answer == example.answer


def test_exported_code_makes_a_store_with_the_compiled_rules(
    compiled_notes: mempiler.CompileResult,
) -> None:
    """An export is Python code that makes a variable `store`. The compiled rules keep places."""
    variables: dict[str, Any] = {}
    exec(compiled_notes.export(), variables)
    store = variables["store"]
    turn = Turn(id="D1:1", speaker="User1", text="I moved to Oslo in May.")

    with dspy.context(lm=obedient_model()):
        store.add(Session(id="D1", turns=(turn,)))

    assert store.search("Where did User1 move?", k=5) == ["User1: I moved to Oslo in May."]


def test_gepa_shows_the_rules_and_the_calls_of_the_store_when_it_asks_for_better_rules(
    compiled_notes: mempiler.CompileResult, engine: ScriptedEngine
) -> None:
    """A call is shown with what the store asked, and with what the model answered."""
    assert compiled_notes.promoted

    first_prompt = prompts_for_better_rules(engine)[0]
    assert "Keep what people and animals are called." in first_prompt
    assert ": I moved to " in first_prompt
    assert "My dog is called Rex." in first_prompt


class WordyNotes(Notes):
    """A store that puts 5,000 characters before its rules, and as many behind them."""

    def add(self, session: Any) -> None:
        padding = "Be brief. " * 500
        dspy.settings.lm("\n".join([padding, self.rules, padding, session.turns[0].text]))


def test_gepa_shows_the_rules_although_they_are_cut_out_of_a_long_call() -> None:
    """GEPA shows the beginning and the end of a long call. `WordyNotes` has its rules between.

    They must still be shown as the rules to improve.
    """
    engine = ScriptedEngine(reply)

    compile_notes(WordyNotes, lm=dspy.LM("scripted/obedient", engine=engine, cache=False))

    first_prompt = prompts_for_better_rules(engine)[0]
    assert "Be brief." in first_prompt
    assert "[...]" in first_prompt
    assert first_prompt.count("Keep what people and animals are called.") == 1


def test_an_optimizer_that_makes_demos_cannot_compile_the_texts_of_a_store() -> None:
    """Demos are examples in a prompt. The store makes its prompts itself, so it has none."""
    with pytest.raises(UserError, match=r"bootstrap changes no texts; .* optimizer='gepa'"):
        compile_notes(optimizer="bootstrap")

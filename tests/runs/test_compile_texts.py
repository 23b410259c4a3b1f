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
    """The engine of the model with which `result` was made; it keeps the prompts."""
    return ScriptedEngine(reply)


@pytest.fixture(scope="module")
def result(engine: ScriptedEngine) -> mempiler.CompileResult:
    """The compiled texts of `Notes`."""
    return compile_notes(lm=dspy.LM("scripted/obedient", engine=engine, cache=False))


def prompts_of_reflection(engine: ScriptedEngine) -> list[str]:
    """Return the prompts in which GEPA asked for better rules."""
    return [text for kind, text in engine.prompts if kind == "new_instruction"]


def rules_of(program: Any) -> str:
    """Return the rules of a program; for optimizers they are the instruction of a predictor."""
    return program.all_predictors()["method.writer.texts.rules"].signature.instructions


def test_better_rules_raise_the_score(result: mempiler.CompileResult) -> None:
    """The first rules keep no places, and the questions ask for places."""
    assert result.promoted
    assert result.before.score == 0.0
    assert result.after.score == 1.0
    assert rules_of(result.program) == "Keep every place."


def test_a_saved_program_keeps_the_compiled_rules(
    result: mempiler.CompileResult, tmp_path: Path
) -> None:
    result.save(tmp_path / "program")

    program = mempiler.load(tmp_path / "program", allow_code=True)

    assert rules_of(program) == "Keep every place."
    example = question(50)
    with dspy.context(lm=obedient_model()):
        answer = program(history=example.history, question=example.question).answer
    assert answer == example.answer


def test_exported_code_makes_a_store_with_the_compiled_rules(
    result: mempiler.CompileResult,
) -> None:
    """An export is Python code with a variable `store`. The new rules keep every place."""
    variables: dict[str, Any] = {}
    exec(result.export(), variables)
    store = variables["store"]
    turn = Turn(id="D1:1", speaker="User1", text="I moved to Oslo in May.")
    session = Session(id="D1", turns=(turn,))

    with dspy.context(lm=obedient_model()):
        store.add(session)

    assert store.search("Where did User1 move?", k=5) == ["User1: I moved to Oslo in May."]


def test_the_reflection_is_shown_the_calls_of_the_store(
    result: mempiler.CompileResult, engine: ScriptedEngine
) -> None:
    """GEPA's reflection sees the present rules, what the store asked, and what it was answered."""
    assert result.promoted

    first_reflection = prompts_of_reflection(engine)[0]
    assert "Keep what people and animals are called." in first_reflection
    assert ": I moved to " in first_reflection
    assert "My dog is called Rex." in first_reflection


class WordyNotes(Notes):
    """A store whose prompt is so long that its middle, with the rules, is cut out for GEPA."""

    def add(self, session: Any) -> None:
        padding = "Be brief. " * 500
        dspy.settings.lm("\n".join([padding, self.rules, padding, session.turns[0].text]))


def test_the_reflection_is_shown_the_rules_even_if_they_are_cut_out_of_a_prompt() -> None:
    engine = ScriptedEngine(reply)

    compile_notes(WordyNotes, lm=dspy.LM("scripted/obedient", engine=engine, cache=False))

    first_reflection = prompts_of_reflection(engine)[0]
    assert "Be brief." in first_reflection
    assert "[...]" in first_reflection
    assert first_reflection.count("Keep what people and animals are called.") == 1


def test_an_optimizer_of_demos_is_refused_for_texts() -> None:
    """Demos are examples in a prompt; the prompts of a user's store are its own."""
    with pytest.raises(UserError, match=r"bootstrap changes no texts; .* optimizer='gepa'"):
        compile_notes(optimizer="bootstrap")

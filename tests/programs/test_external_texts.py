"""The texts of a memory system are predictors, and its model calls are recorded as their calls.

A system is a store of the user's with `add` and `search`. It declares its texts in `TEXTS` and
takes them as `texts`. A store is written once for each history and value of the texts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import dspy
import pytest
from mempiler import History, UserError, build
from mempiler.engines.lm import language_model
from mempiler.programs.cache import WriteCall
from mempiler.programs.external.export import export_system
from mempiler.programs.external.program import build_external_program
from mempiler.programs.program import MemoryProgram

MakeHistory = Callable[..., History]
"""The fixture `make_history`: `make_history(3)` has sessions D1 to D3 of six turns each."""


class Lines:
    """A store of lines; `search` gives the newest."""

    TEXTS: ClassVar[Any] = {"rules": "Keep names."}

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.lines: list[str] = []

    def add(self, session: Any) -> None:
        self.lines += session.lines()

    def search(self, query: str, k: int) -> Any:
        return self.lines[-k:]


def build_system(target: Any, name: str = "mine:Store") -> MemoryProgram:
    """Return the program of a system that errors call "mine:Store"."""
    return build_external_program(target, name, "question-answering")


def set_text(program: MemoryProgram, text_name: str, text: str) -> None:
    """Change a text as an optimizer does: a text is the instructions of a predictor."""
    predictor: Any = program.all_predictors()[f"method.writer.texts.{text_name}"]
    predictor.signature = predictor.signature.with_instructions(text)


def write(program: MemoryProgram, history: History) -> tuple[WriteCall, ...]:
    """Write the store of a history, and return its model calls as an optimizer gets them."""
    with dspy.context(lm=language_model("offline")):
        return program.remember(history).write_calls


# The texts that a store is given.


def test_a_store_is_given_its_default_texts_to_the_letter(make_history: MakeHistory) -> None:
    """DSPy strips instructions, but as long as nobody has changed a text, it stays as it is."""
    texts_of_stores: list[dict[str, str]] = []

    class Remembering(Lines):
        TEXTS: ClassVar = {"rules": "\n  Keep names.\n", "style": ""}

        def __init__(self, texts: dict[str, str]) -> None:
            texts_of_stores.append(texts)
            super().__init__(texts)

    write(build_system(Remembering), make_history(1))

    assert texts_of_stores == [{"rules": "\n  Keep names.\n", "style": ""}]


def test_a_changed_text_writes_the_store_anew(make_history: MakeHistory) -> None:
    """A text of a store, such as its rules, may change what it keeps of a session."""
    rules_of_stores: list[str] = []

    class Remembering(Lines):
        def __init__(self, texts: dict[str, str]) -> None:
            rules_of_stores.append(texts["rules"])
            super().__init__(texts)

    program = build_system(Remembering)
    write(program, make_history(1))
    set_text(program, "rules", "Keep dates.")
    write(program, make_history(1))
    # The same history with the same rules needs no further store.
    write(program, make_history(1))

    assert rules_of_stores == ["Keep names.", "Keep dates."]


def test_each_candidate_is_searched_in_its_own_store(make_history: MakeHistory) -> None:
    """Two candidates of an optimizer are asked in turns, while the stores of both are open."""

    class TextStore(Lines):
        def search(self, query: str, k: int) -> list[str]:
            return [self.texts["rules"]]

    first = build_system(TextStore)
    second = first.deepcopy()
    set_text(second, "rules", "Keep dates.")

    recalled_texts: list[str] = []
    with dspy.context(lm=language_model("offline")):
        for program in (first, second, first):
            prediction = program(history=make_history(1), question="Where?")
            recalled_texts += [hit.text for hit in prediction.context.hits]

    assert recalled_texts == ["Keep names.", "Keep dates.", "Keep names."]


def test_a_function_that_makes_stores_may_have_texts(make_history: MakeHistory) -> None:
    """The function is given a folder for the store, and the texts."""
    rules_of_stores: list[str] = []

    def make(folder: Path, texts: dict[str, str]) -> Lines:
        assert folder.is_dir()
        rules_of_stores.append(texts["rules"])
        return Lines(texts)

    make.TEXTS = {"rules": "Keep names."}  # pyright: ignore[reportFunctionMemberAccess]
    write(build_system(make), make_history(1))

    assert rules_of_stores == ["Keep names."]


def test_a_parameter_called_texts_that_has_a_default_is_left_alone(
    make_history: MakeHistory,
) -> None:
    """A store that was written before there were texts may use the name for something else."""

    class Old(Lines):
        TEXTS: ClassVar = None

        def __init__(self, texts: Any = ("its own",)) -> None:
            assert texts == ("its own",)
            super().__init__({})

    program = build_system(Old)
    write(program, make_history(1))

    assert list(program.all_predictors()) == ["task.answer"]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        pytest.param(None, "takes texts but declares none", id="no declaration"),
        pytest.param("Keep names.", "give a dict of names and texts", id="a text alone"),
        pytest.param({"rules": 5}, r"TEXTS\['rules'\] = 5", id="a number"),
        pytest.param({"the rules": ""}, "TEXTS has the name 'the rules'", id="no Python name"),
        pytest.param({"save": ""}, "TEXTS has the name 'save'", id="a name that modules have"),
    ],
)
def test_texts_that_are_declared_wrongly_are_refused(texts: Any, reason: str) -> None:
    """A store declares its texts in `TEXTS`, by names that an optimizer can use."""

    class Wrong(Lines):
        TEXTS: ClassVar = texts

    with pytest.raises(UserError, match=f"^mine:Store: .*{reason}"):
        build_system(Wrong)


# The calls that an optimizer learns from.


class Asking(Lines):
    """A store that asks the model about each session, with its text before the lines."""

    def add(self, session: Any) -> None:
        super().add(session)
        dspy.settings.lm("\n".join([self.texts["rules"], *session.lines()]))


def test_model_calls_of_a_store_are_calls_of_its_text(make_history: MakeHistory) -> None:
    """An optimizer of a text learns from the model calls that a store has made with it.

    This store sends its rules, "Keep names.", and the lines of each session to the model.
    """
    first_session, second_session = make_history(sessions=2, turns=2).items

    first_call, second_call = write(build_system(Asking), make_history(sessions=2, turns=2))

    assert first_call.predictor == "texts.rules"
    assert first_call.inputs["added_turns"] == ["D1:1", "D1:2"]
    first_message = "\n".join(["Keep names.", *first_session.lines()])
    assert first_call.inputs["prompt"] == f"user: {first_message}"
    assert first_call.prediction.completion

    assert second_call.predictor == "texts.rules"
    assert second_call.inputs["added_turns"] == ["D2:1", "D2:2"]
    second_message = "\n".join(["Keep names.", *second_session.lines()])
    assert second_call.inputs["prompt"] == f"user: {second_message}"


def test_a_text_gets_the_calls_that_hold_it(make_history: MakeHistory) -> None:
    """An optimizer of a text learns from the model calls whose prompts have this text."""

    class TwoTexts(Lines):
        TEXTS: ClassVar = {"rules": "Keep names.", "summary": "Sum up  the day."}

        def add(self, session: Any) -> None:
            super().add(session)
            dspy.settings.lm(f"{self.texts['rules']} {session.id}")
            # The line break and the single spaces make no difference.
            dspy.settings.lm(f"Sum up\nthe day. {session.id}")

    calls = write(build_system(TwoTexts), make_history(1))

    prompts = {call.predictor: call.inputs["prompt"] for call in calls}
    assert len(calls) == 2
    assert prompts["texts.rules"] == "user: Keep names. D1"
    assert prompts["texts.summary"] == "user: Sum up\nthe day. D1"


def test_a_text_that_is_in_no_prompt_gets_all_calls(make_history: MakeHistory) -> None:
    """An empty text stands in no prompt, but had a part in what the prompts lack."""

    class Empty(Asking):
        TEXTS: ClassVar = {"rules": ""}

    calls = write(build_system(Empty), make_history(2))

    assert [call.inputs["added_turns"][0] for call in calls] == ["D1:1", "D2:1"]


def test_the_middle_of_a_long_prompt_is_cut_out(make_history: MakeHistory) -> None:
    """An optimizer shows a model the prompts of a store, of each at most 4,000 characters."""

    class Long(Lines):
        def add(self, session: Any) -> None:
            dspy.settings.lm(f"{'a' * 9000} {self.texts['rules']} {'b' * 9000}")
            super().add(session)

    [call] = write(build_system(Long), make_history(1))

    prompt = call.inputs["prompt"]
    assert len(prompt) == 4000
    assert prompt.startswith("user: aaa")
    assert "[...]" in prompt
    assert prompt.endswith("bbb")


def test_calls_come_in_one_order_whatever_order_they_end_in(make_history: MakeHistory) -> None:
    """A resumed run must show an optimizer the same calls in the same order, or it pays again."""

    class Forward(Lines):
        words = ("x", "y")

        def add(self, session: Any) -> None:
            super().add(session)
            for word in self.words:
                dspy.settings.lm(f"Keep names. {word}")

    class Backward(Forward):
        words = ("y", "x")

    prompts_of_stores: list[list[str]] = []
    for store_class in (Forward, Backward):
        calls = write(build_system(store_class), make_history(1))
        prompts_of_stores.append([call.inputs["prompt"] for call in calls])

    assert prompts_of_stores[0] == prompts_of_stores[1]


# Exports.


def test_an_export_is_code_whatever_a_model_wrote() -> None:
    """A text may hold quotes, backslashes and line breaks, and pose as code."""
    text = 'Keep \'names\' and "dates".\n"""\nimport os; os._exit(1) # \\'
    program = build_system(Lines, name="__main__:Lines")
    set_text(program, "rules", text)

    variables: dict[str, Any] = {}
    exec(export_system(program), variables)

    assert variables["texts"] == {"rules": text}


def test_a_system_may_declare_the_code_of_its_export() -> None:
    """An export is code that sets up the system with the texts that an optimizer has found."""

    class Exporting(Lines):
        EXPORT = "memory = configure(rules=$rules)"

    program = build_system(Exporting)
    set_text(program, "rules", "Keep dates.")

    assert export_system(program) == "memory = configure(rules='Keep dates.')\n"


def test_code_of_an_export_with_unknown_names_is_refused() -> None:
    """The store has the text "rules", and no text "ruls"."""

    class Exporting(Lines):
        EXPORT = "memory = configure(rules=$ruls)"

    with pytest.raises(UserError, match=r"EXPORT cannot be filled in \('ruls'\); .*\$rules"):
        export_system(build_system(Exporting))


def test_a_program_without_texts_cannot_be_exported() -> None:
    """ "turn-rag" is a method of this package, and no memory system of a user."""
    with pytest.raises(UserError, match="turn-rag has no texts or numbers of a memory system"):
        export_system(build("turn-rag"))

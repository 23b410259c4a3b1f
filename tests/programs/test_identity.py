"""Who a program and its writer are: what changes their digests and what does not."""

import copy
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.memory.memory import Memory
from mempiler.programs.catalog import build
from mempiler.programs.identity import program_digest, rollout, writer_digest, writer_key
from mempiler.programs.method import Writer
from mempiler.programs.program import MemoryProgram
from pydantic import create_model


def made(**config: Any) -> MemoryProgram:
    return build("memory-r2", embedder=embedder(), **config)


@pytest.mark.parametrize(
    ("other", "writes_like", "same"),
    [
        (lambda: made(), True, True),
        (lambda: copy.deepcopy(made()), True, True),
        (lambda: made(read_top=3), True, False),
        (lambda: made(related=2), False, False),
        (lambda: build("memory-r2", "multiple-choice", embedder=embedder()), True, False),
        (lambda: made(adapter="json"), True, False),
        (lambda: build("pgr+memory-r2", embedder=embedder()), True, False),
        (lambda: build("fact-store", embedder=embedder()), False, False),
        (lambda: build("memory-r2", embedder=TextEmbedder("other", embedder().embed, 384)), False, True),
    ],
    ids=["again", "copy", "reading setting", "writing setting", "task", "adapter", "policy", "method", "embedder"],
)
def test_what_a_program_is_and_what_its_writer_is(
    other: Callable[[], MemoryProgram], writes_like: bool, same: bool
) -> None:
    one, two = other(), made()
    assert (writer_digest(one.method.writer) == writer_digest(two.method.writer)) is writes_like
    assert (program_digest(one) == program_digest(two)) is same


def test_an_instruction_changes_a_writer_and_changing_it_back_makes_it_the_same() -> None:
    writer = made().method.writer
    extract = writer.predictors_below()["extract"]
    before, own = writer_digest(writer), extract.signature.instructions
    extract.signature.instructions = "Do as you like."  # in place, as InferRules does
    assert writer_digest(writer) != before
    extract.signature.instructions = own
    assert writer_digest(writer) == before


def test_class_and_memory_of_a_writer_count() -> None:
    kept, shaped = (create_model("Kept", __base__=Memory, **{name: (str, "")}) for name in ("one", "other"))
    kinds = [type(name, (Writer,), {"Memory": kind}) for name, kind in (("A", kept), ("B", kept), ("A", shaped))]
    assert len({writer_digest(kind()) for kind in kinds}) == 3


def test_a_rollout_has_a_key_of_its_own_and_so_has_the_code_of_a_writer(
    monkeypatch: pytest.MonkeyPatch, scripted: Any, fact_replies: Any
) -> None:
    writer = made().method.writer
    with dspy.context(lm=scripted(fact_replies)):
        identity, keys = writer_digest(writer), [writer_key(writer)]
        for name in (0, 1, 0):
            with rollout(name):
                keys.append(writer_key(writer))
        monkeypatch.setattr("mempiler.programs.identity._source_digest", lambda kind: "other")
        keys.append(writer_key(writer))
        assert writer_digest(writer) == identity
    assert keys[1] == keys[3]
    assert len(set(keys)) == 4

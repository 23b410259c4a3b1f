"""The oracle engine beside its jobs: what it fills where there is none, its error rate, its name and label."""

import dspy
import pytest
from mempiler.data.catalog import BENCHMARKS
from mempiler.engines.models import is_oracle, language_model, shown
from mempiler.engines.oracle import AsyncOracleEngine, OracleEngine
from mempiler.engines.prices import token_prices
from mempiler.errors import UserError
from mempiler.runs.report import heading
from mempiler.runs.results import Evaluation
from pydantic import BaseModel


class Part(BaseModel):
    name: str
    size: int
    more: list[str] = []


class Unheard(dspy.Signature):
    """Nobody's job."""

    text: str = dspy.InputField()
    said: str = dspy.OutputField()
    parts: list[Part] = dspy.OutputField()
    part: Part = dspy.OutputField()
    maybe: Part | None = dspy.OutputField()
    sure: bool = dspy.OutputField()
    share: float = dspy.OutputField()


ADAPTERS = {"chat": dspy.ChatAdapter(use_json_adapter_fallback=False), "json": dspy.JSONAdapter()}


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_what_nobody_knows_is_as_empty_as_its_type_allows(adapter: dspy.Adapter) -> None:
    with dspy.context(lm=language_model("oracle"), adapter=adapter):
        found = dspy.Predict(Unheard)(text="Green ideas sleep.")
    assert (found.said, found.parts, found.maybe, found.sure, found.share) == ("unknown", [], None, False, 0.0)
    assert found.part == Part(name="", size=0)


def test_plain_text_is_answered_too() -> None:
    assert language_model("oracle")("hello") == ["unknown"]


@pytest.mark.parametrize("name", ["oracle:x", "oracle:-0.1", "oracle:1.5", "oracle:nan"])
def test_a_rate_is_a_number_from_0_to_1(name: str) -> None:
    with pytest.raises(UserError, match=r"no error rate; say oracle, or oracle:0\.05"):
        language_model(name)


@pytest.mark.parametrize(
    ("name", "table"), [("oracle", "oracle"), ("oracle:0.05", "oracle:0.05"), ("offline", "offline")]
)
def test_tables_name_it_as_the_command_line_does(name: str, table: str) -> None:
    assert shown(language_model(name).model) == table
    assert token_prices(language_model(name).model) == (0.0, 0.0)


def test_it_is_found_by_its_own_names_alone() -> None:
    assert not any(map(is_oracle, ("offline", "oracles", "openai/oracle", "offline/extractive-1")))


def test_every_heading_says_what_it_is() -> None:
    said = {"program": "pgr", "benchmark": "world.pgr", "embedder": None, "rows": (), "calls": {}, "tokens": {}}
    found = Evaluation(**said, lm="oracle:0.1", comparable=False, cost=None, write_failures=0, seconds=0.0)
    assert heading(found).endswith("LM oracle:0.1 (test instrument, not a model)")


def test_copies_and_their_asynchronous_twin_have_its_rate() -> None:
    engine = OracleEngine.load_state(OracleEngine(0.25).dump_state())
    assert engine.rate == 0.25
    assert AsyncOracleEngine(engine).dump_state() == {"rate": 0.25}


def test_worlds_are_among_the_benchmarks() -> None:
    assert all(entry[1].startswith("mempiler.data.worlds.") for name, entry in BENCHMARKS.items() if "world." in name)

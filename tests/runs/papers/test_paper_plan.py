"""Plans of papers: what a run then takes lies in them, and nothing is made or asked before."""

import json

import pytest
from mempiler.cli import app
from mempiler.engines.meter import Meter
from mempiler.runs.papers.arrangement import plan_paper
from mempiler.runs.papers.paper import read_paper
from mempiler.runs.papers.reproduction import reproduce
from mempiler.runs.setup import Setup

SETUP = Setup(benchmark="", test=8, threads=2)


def test_what_a_run_takes_lies_in_its_plan(make_paper):
    paper, meter = make_paper(), Meter()
    plan, _ = plan_paper(paper, SETUP)
    reproduce(paper, SETUP, meter=meter)
    used = meter.read()
    assert plan.calls.low <= sum(used.calls.values()) <= plan.calls.high
    assert plan.tokens.low <= used.input_tokens + used.output_tokens <= plan.tokens.high


def test_seeds_multiply_what_samples_alone(make_paper):
    once, thrice = (plan_paper(make_paper(), SETUP, seeds=seeds)[0] for seeds in (1, 3))
    assert once == thrice
    named = Setup(benchmark="", test=8, lm="openai/gpt-4.1-mini")
    asked = [plan_paper(make_paper(), named, seeds=seeds)[0] for seeds in (1, 3)]
    assert asked[1].calls.high == pytest.approx(3 * asked[0].calls.high)
    assert asked[0].usd is not None
    assert 0 < asked[0].usd.low < asked[0].usd.high


def test_compiles_and_trainings_are_planned():
    setup = Setup(benchmark="", test=4, dev=2, train=4)
    plan, notes = plan_paper(read_paper("memory-r2"), setup, ["ladder-tiny"])
    scored, _ = plan_paper(_untuned("memory-r2"), setup, ["ladder-tiny"])
    assert plan.calls.high > scored.calls.high
    assert not any("LoGo-GRPO" in note for note in notes)
    assert any(note.startswith("not counted: the tuning of SFT, tiny: the provider of") for note in notes)


def test_the_command_prints_a_plan_and_makes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    words = ["reproduce", "pgr", "--section", "implexconv", "--plan", "--test", "3", "--lm", "openai/gpt-4.1-mini"]
    app.main([*words, "--judge-lm", "openai/gpt-4.1", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert set(found["phases"]) == {"implexconv"}
    assert found["calls"]["low"] > 0
    assert "not counted: calls of the judge" in found["notes"]
    app.main(words, standalone_mode=False)
    assert "implexconv" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def _untuned(name):
    paper = read_paper(name)
    plain = {
        label: variant.model_copy(update={"tuned": None, "settings": {"read_top": n}})
        for n, (label, variant) in enumerate(paper.variants.items(), 1)
    }
    return paper.model_copy(update={"variants": plain})

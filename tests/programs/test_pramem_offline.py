"""PraMem runs through on the offline engine: practice fills the pool, and the compiled reader chooses an option.

What it scores there says nothing: the engine weighs no records against one another.
"""

import dspy
from mempiler import build
from mempiler.data.movielens.benchmark import MovieLens
from mempiler.engines.models import language_model
from mempiler.optimizers.compile import Compilation, compile_program


def test_ten_rounds_of_practice_fill_the_pool_and_every_answer_is_an_option():
    benchmark = MovieLens.load(users=3)
    split = benchmark.split(train=8)
    with dspy.context(lm=language_model("offline")):
        program = build("pramem", task=benchmark.task, rounds=10)
        compiled = compile_program(program, benchmark, split.train, Compilation("bootstrap", stage="read"))
        said = [(example, compiled(**example.inputs())) for example in split.dev]
    assert any(predictor.demos for predictor in compiled.predictors())
    for example, found in said:
        records = {*example.history.turns, *(record.id for record in example.history)}
        assert found.answer in example.options
        assert len(found.memory.journal) == 10
        assert found.memory.pool
        assert all(source in records for proposal in found.memory.pool for source in proposal.sources)

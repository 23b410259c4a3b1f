"""PraMem learns: on an invented user, compiled PraMem beats compiled truncation, both on the offline engine."""

import dspy
from mempiler import build
from mempiler.data.movielens.benchmark import MovieLens
from mempiler.engines.models import language_model
from mempiler.optimizers.compile import Compilation, compile_program
from mempiler.runs.statistics import paired


def test_ten_rounds_of_practice_beat_the_newest_records_alone():
    benchmark = MovieLens.load(users=3)
    split = benchmark.split(train=8)
    scores = []
    for method, settings in (("pramem", {"rounds": 10}), ("truncation", {})):
        with dspy.context(lm=language_model("offline")):
            program = build(method, task=benchmark.task, **settings)
            compiled = compile_program(program, benchmark, split.train, Compilation("bootstrap", stage="read"))
            scores.append([benchmark.score(example, compiled(**example.inputs())).value for example in split.dev])
    difference = paired(*scores, [benchmark.group(example) for example in split.dev])
    assert difference.interval is not None
    assert difference.interval.low > 0

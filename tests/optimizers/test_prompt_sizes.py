"""What optimizers ask the prompt LM must not carry whole histories."""

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.models import language_model
from mempiler.engines.offline import OfflineEngine
from mempiler.optimizers.compile import Compilation, compile_program
from mempiler.programs.catalog import build


class Listening(OfflineEngine):
    """The offline engine, keeping what it was asked."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def complete(self, request):
        self.asked.append("\n".join(message.text for message in request.messages))
        return super().complete(request)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mipro", {"num_candidates": 3, "num_trials": 1, "max_tries": 6}),
        ("simba", {"bsize": 8, "num_candidates": 2, "max_steps": 2}),
        ("copro", {"breadth": 2, "depth": 1}),
        ("gepa", {"max_metric_calls": 20}),
        ("infer-rules", {"num_candidates": 1, "max_tries": 6}),
    ],
)
def test_proposals_see_no_whole_history(name, settings):
    found = benchmark("locomo")
    train = [example for example in found.examples if found.counts(example)][:24]
    # Words of a turn that belong to no question's evidence: only a whole history would show them all.
    history = train[0].history
    evidence = {turn for example in train for turn in example.focus}
    elsewhere = [turn.text for id, (turn, _) in history.turns.items() if id not in evidence and len(turn.text) > 30]
    engine = Listening()
    prompt_lm = MeteredLM("offline/listening", Meter(), "prompt", engine=engine, temperature=0.0, cache=False)
    with dspy.context(lm=language_model()):
        compile_program(build("turn-rag", k=3), found, train, Compilation(name, settings=settings), prompt_lm)
    shown = max((sum(words in asked for words in elsewhere) for asked in engine.asked), default=0)
    assert shown < len(elsewhere) / 2
    assert all("turns=(" not in asked for asked in engine.asked)
    if name in ("mipro", "copro", "gepa"):
        assert engine.asked

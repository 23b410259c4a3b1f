"""Win rates: whose responses a judge prefers, of two runs that answered the same queries."""

from typing import Any

import pytest
from mempiler.data.judge import PreferenceJudge
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.programs.adapter import adapter
from mempiler.runs.compare import Recorded, preferences, recorded
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.setup import Setup


@pytest.fixture(scope="module")
def two_runs() -> list[Recorded]:
    """Runs of two methods that answer the same four queries otherwise."""
    setup = Setup(benchmark="memoryquest", options={"metric": "evidence"}, test=4, seed=1)
    made = [run_evaluate(method, setup, "all") for method in ("no-memory", "full-context")]
    return [recorded(str(each.run_id)) for each in made]


@pytest.mark.parametrize(
    ("says", "rate", "tied", "counts"),
    [
        ("the second run's", 1.0, 0.0, (4, 0, 0)),
        ("the first run's", 0.0, 0.0, (0, 0, 4)),
        ("what stands first", 0.5, 0.0, (0, 4, 0)),
        ("tie", 0.0, 1.0, (0, 4, 0)),
    ],
)
def test_the_win_rate_counts_whose_responses_are_preferred(
    stub: Any, two_runs: list[Recorded], says: str, rate: float, tied: float, counts: tuple[int, ...]
) -> None:
    floor, rival = ({row.answer.strip() for row in run.evaluation.rows} for run in two_runs)
    assert not floor & rival

    def answer(body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        text = asked.split("[[ ## response_w3k8 ## ]]")[1].split("[[ ## response_t5n1 ## ]]")[0]
        first = text.strip() in rival
        choices = {
            "the second run's": "w3k8" if first else "t5n1",
            "the first run's": "t5n1" if first else "w3k8",
            "what stands first": "w3k8",
            "tie": "tie",
        }
        return f"[[ ## reasoning ## ]]\nSo.\n\n[[ ## choice ## ]]\n{choices[says]}\n\n[[ ## completed ## ]]"

    server = stub(answer=answer)
    judge = PreferenceJudge(language_model(server.model, Meter(), "judge", server.url), adapter("chat"))
    found = preferences(two_runs[0], two_runs[1], judge)
    assert (found.n, found.rate, found.tied) == (4, rate, tied)
    assert (found.wins, found.ties, found.losses) == counts

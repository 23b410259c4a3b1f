"""RGMem in its world: the right answers are there to be had, and every mechanism is needed for its questions.

Claims and what they predict are in `runs/recipes/claims/rgmem.py`; here they are measured with few users.
"""

import pytest
from mempiler.data.catalog import benchmark
from mempiler.grammar.rgmem import read_question, read_signals
from mempiler.memory.tokens import tokens
from mempiler.runs.recipes.claims.claim import Arm

USERS = 5
CLAIMS = (
    *("w/o L0", "w/o L1", "w/o RG", "R_K1 never fires", "R_K2, so R_K3, never fires", "silent: R_K3"),
    *("theta_inf 1, theta_sum 2", "facts 1", "conclusions 5", "nodes 1"),
)


@pytest.fixture(scope="module")
def bench(benches):
    return benches("rgmem", USERS)


@pytest.fixture(scope="module")
def world():
    return benchmark("world.rgmem", users=USERS)


def test_with_all_mechanisms_every_answer_is_right(bench):
    assert set(bench.means({}).values()) == {1.0}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_mechanism_matters_to_its_questions_and_to_no_others(unborne, name):
    assert unborne(name) == []


def test_the_score_over_the_threshold_has_its_peak_at_three(bench):
    """Figure 4: below it noise turns traits, above it they turn too late."""
    changed = ({"theta_inf": t, "theta_sum": 2 * t} if t != 3 else {} for t in (1, 2, 3, 4, 6))
    curve = [sum(bench.means(settings).values()) for settings in changed]
    assert curve[0] < curve[1] < curve[2] > curve[3] > curve[4]


def test_without_rg_more_is_recalled_for_less(bench):
    """Table 4: the flat summaries are longer."""

    def tokens_of(settings):
        rows = bench.scored(Arm("rgmem", settings)).rows
        return sum(row.context_tokens for row in rows) / len(rows)

    assert tokens_of({"use_rg": False}) > 1.5 * tokens_of({})


def test_a_seed_gives_the_same_world_and_another_one_another(world):
    again, other = benchmark("world.rgmem", users=USERS), benchmark("world.rgmem", users=USERS, seed=1)
    assert world.source.sha256 == again.source.sha256 != other.source.sha256


def test_no_question_finds_a_signal_by_its_words(world):
    """What has to be drawn from signals must not be found by search."""
    said = {
        term
        for history in world.histories
        for turn, _ in history.turns.values()
        if read_signals(turn.text)
        for term in tokens(turn.text)
    }
    assert [each.question for each in world.examples if said & set(tokens(each.question))] == []


def test_evidence_is_what_decides(world):
    """A reason is that of all signals since the turn; an episode is that of one signal."""
    for each in world.examples:
        texts = [each.history.turns[id][0].text for id in each.evidence]
        assert texts, each.id
        question = read_question(each.question)
        if question.kind == "reason":
            assert {signal.reason for text in texts for signal in read_signals(text)} == {each.answer}
        if question.kind == "lately":
            assert [signal.thing for text in texts for signal in read_signals(text)] == [each.answer]


def test_a_trait_is_neither_the_last_signal_nor_most_of_them(world):
    """So that neither recency nor counting gives the answer."""
    last, most, n = 0, 0, 0
    for each in world.examples:
        if read_question(each.question).kind == "latest":
            signs = [s.drawn for id in each.evidence for s in read_signals(each.history.turns[id][0].text)]
            last += signs[-1] == (each.answer == "drawn")
            most += (2 * sum(signs) > len(signs)) == (each.answer == "drawn")
            n += 1
    assert 0.2 < last / n < 0.8
    assert 0.2 < most / n < 0.8

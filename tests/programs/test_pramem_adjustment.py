"""Consensus as code checks it: support, invented ids, targets, downgrades; what is not adopted stays word for word."""

import pytest
from mempiler.programs.pramem.adjustment import adjust, adjusted
from mempiler.programs.pramem.memory import ExperienceMemory, Proposal
from mempiler.programs.pramem.samples import PracticeSettings
from mempiler.signatures.pramem import ExperienceChange


def memory(pool=6):
    start = ExperienceMemory().with_entries("pattern", [("Likes jazz", ("a1",))])
    start = start.with_entries("alert", [("I overrate likes", ("a2",))])
    proposals = tuple(
        Proposal(id=f"p-{n}", action="add pattern", content=f"said  {n} ", trigger="t", sources=(f"r{n}", "all"))
        for n in range(1, pool + 1)
    )
    return start.changed(pool=proposals, issued={**start.issued, "p": pool})


def change_of(action, target=None, text="", proposals=()):
    return ExperienceChange(action=action, experience_id=target, text=text, proposal_ids=list(proposals))


def ids(*numbers):
    return tuple(f"p-{n}" for n in numbers)


def test_three_supporters_make_an_entry_with_their_sources_and_leave_the_pool():
    start = memory()
    after = adjusted(start, [change_of("add pattern", text="Skips ads", proposals=ids(1, 3, 5))])
    new = after.patterns[-1]
    assert (new.id, new.text, new.sources, new.support) == (
        "pattern-2",
        "Skips ads",
        ("r1", "all", "r3", "r5"),
        ids(1, 3, 5),
    )
    assert after.pool == tuple(p for p in start.pool if p.id in ids(2, 4, 6))
    assert after.counts == {"added": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_of("add pattern", text="x", proposals=ids(1, 2)), "too little support"),
        (change_of("add pattern", text="x"), "too little support"),
        (change_of("add pattern", text="x", proposals=("p-1", "p-1", "p-1")), "too little support"),
        (change_of("add pattern", text="x", proposals=(*ids(1, 2), "p-99")), "invented proposal"),
        (change_of("add pattern", text="x", proposals=(*ids(1, 2, 3), "p-99")), "invented proposal"),
        (change_of("add alert", text="  ", proposals=ids(1, 2, 3)), "empty text"),
        (change_of("modify", "pattern-1", " null ", ids(1, 2, 3)), "empty text"),
        (change_of("modify", "pattern-9", "x", ids(1, 2, 3)), "unknown entry"),
        (change_of("remove", None, "", ids(1, 2, 3)), "unknown entry"),
        (change_of("downgrade", "alert-1", "", ids(1, 2)), "too little support"),
    ],
)
def test_a_change_without_what_it_needs_is_refused_and_counted(change, reason):
    start = memory()
    after = adjusted(start, [change])
    assert after == start.counted({f"refused: {reason}": 1})


@pytest.mark.parametrize(("distinct", "outcome"), [(True, "refused: too little support"), (False, "added")])
def test_proposals_of_one_record_are_one_supporter_if_records_count(distinct, outcome):
    start = memory()
    same = tuple(proposal.model_copy(update={"sources": ("r1",)}) for proposal in start.pool)
    change = change_of("add pattern", text="x", proposals=ids(1, 2, 3))
    settings = PracticeSettings(distinct_records=distinct)
    assert adjusted(start.changed(pool=same), [change], settings).counts == {outcome: 1}


def test_a_modified_entry_keeps_its_id_its_sources_and_the_old_wording():
    after = adjusted(memory(), [change_of("modify", "pattern-1", "Likes slow jazz", ids(1, 2, 3))])
    (entry,) = after.patterns
    assert (entry.id, entry.text, entry.earlier) == ("pattern-1", "Likes slow jazz", ("Likes jazz",))
    assert entry.sources == ("a1", "r1", "all", "r2", "r3")


def test_a_removed_entry_is_gone_and_a_downgraded_one_is_a_proposal_in_its_own_words():
    start = memory()
    removed = adjusted(start, [change_of("remove", "alert-1", proposals=ids(1, 2, 3))])
    assert (removed.alerts, len(removed.pool)) == ((), 3)
    downgraded = adjusted(start, [change_of("downgrade", "alert-1", proposals=ids(1, 2, 3))])
    assert downgraded.alerts == ()
    back = downgraded.pool[-1]
    assert (back.id, back.action, back.content, back.sources) == ("p-7", "add alert", "I overrate likes", ("a2",))
    assert downgraded.counts == {"downgraded": 1}


def test_a_text_that_is_there_already_is_supported_and_not_repeated():
    after = adjusted(memory(), [change_of("add pattern", text="likes  jazz", proposals=ids(1, 2, 3))])
    assert [part.text for part in after.patterns] == ["Likes jazz"]
    assert after.patterns[0].support == ids(1, 2, 3)
    assert after.counts == {"merged": 1}


def test_without_consensus_every_proposal_is_carried_out():
    start = memory(2)
    more = Proposal(id="p-3", action="remove", target="alert-1")
    odd = Proposal(id="p-4", action="modify", target="alert-1", content="too late")
    start = start.changed(pool=(*start.pool, more, odd))
    after = adjust(lambda *_, **__: None, PracticeSettings(consensus=False), start)
    assert [part.text for part in after.patterns] == ["Likes jazz", "said 1", "said 2"]
    assert (after.alerts, after.pool) == ((), ())
    assert after.counts == {"added": 2, "removed": 1, "refused: unknown entry": 1}

"""What is searched for: terms of a text; who said it, and when; and what a reranker does with the first hits."""

import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.fusion import score_by_words
from mempiler.memory.search.index import Index
from mempiler.memory.search.months import month_nearness, month_number
from mempiler.memory.search.neighbours import Neighbours
from mempiler.memory.search.passages import passages
from mempiler.memory.search.speakers import Speakers
from mempiler.memory.search.tokens import FUNCTION_WORDS, clear_word_cache, tokens
from mempiler.memory.search.weights import SignalWeights
from mempiler.memory.text_slots import CURRENT_SLOT
from mempiler.records.context_variables import set_context


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("?! ... —", []),
        (" ".join(sorted(FUNCTION_WORDS)), []),
        ("She was running in parks, he runs", ["run", "park", "run"]),
        ("Caroline: I moved_on 2023-05-08!", ["carolin", "move", "2023", "05", "08"]),
        ("ＬＩＳＢＯＮ ﬁnally", ["lisbon", "final"]),
        ("café CAFÉ Straßen", ["café", "café", "straßen"]),
        ("Ann's S", ["ann", "s", "s"]),
        ("Привет мир", ["привет", "мир"]),
        ("我喜欢在周末打篮球", ["喜欢", "周末", "篮球", "打篮球"]),
        ("Ann喜欢parks", ["ann", "喜欢", "park"]),
        # Long runs keep their terms.
        ("あ" * 40 + " ｶﾞ running " + "=" * 100 + "e\u0301" + "\u0301" * 100, ["あ" * 40, "ガ", "run", "é"]),
        ("喜欢" * 400, ["喜欢"] * 400),
        ("x" * 63 + "s " + "x" * 64 + "s", ["x" * 63, "x" * 64 + "s"]),
    ],
)
def test_a_text_becomes_stems_and_chinese_words_without_function_words(text, terms):
    assert tokens(text) == terms


@given(st.text())
def test_any_text_gives_terms_without_function_words_or_blanks(text):
    terms = tokens(text)
    assert all(term and not term.isspace() for term in terms)
    assert tokens(f"The {text} of") == terms


def test_threads_get_the_same_stems():
    words = [f"{stem}{n}{end}" for stem in ("walk", "paint") for n in range(60) for end in ("x s", " ed", "y ing")]
    expected = list(map(tokens, words))
    clear_word_cache()
    with ThreadPoolExecutor(8) as pool:
        assert all(found == expected for found in pool.map(lambda _: list(map(tokens, words)), range(8)))


MARKS = "a" + "\u0301\u0316" * 60_000
HOSTILE = ("火" * 60_000, "y" * 600_000, MARKS, "a" + "\u0301\uff9e" * 60_000)


@pytest.mark.parametrize("text", HOSTILE, ids=["Chinese", "letter", "marks", "half-width marks"])
def test_hostile_text_is_cut_at_once(text):
    tokens("火 first: jieba reads its dictionary")
    started = time.process_time()
    assert tokens(text)
    # Each took 10 to 50 seconds in jieba, the stemmer or Python's normal forms, which take the square of the length.
    assert time.process_time() - started < 4


def test_long_words_are_not_kept():
    tracemalloc.start()
    try:
        tokens(" ".join(f"{n}{'x' * 20_000}" for n in range(200)))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


NAMES = ("Ann Lee", "Bob", "user", "小满", None, "Speaker 1", "Speaker 2")


def speakers(*names: str | None) -> Speakers:
    found = Speakers()
    assert [found.register(name) for name in names] == list(range(len(names)))
    return found


@pytest.mark.parametrize(
    ("query", "asked", "left"),
    [
        ("What does Ann's dog eat?", ["Ann Lee"], "What does dog eat?"),
        ("What did ANN LEE say?", ["Ann Lee"], "What did say?"),
        ("Did Ann meet Bob?", [], "Did meet ?"),
        ("Is it annual?", [], "Is it annual?"),
        ("What did I say about jazz?", ["user"], "What did I say about jazz?"),
        ("What did Bob tell me?", ["Bob"], "What did tell me?"),
        ("我喜欢什么？", ["user"], "我喜欢什么？"),
        ("小满喜欢什么？", ["小满"], "喜欢什么？"),
        ("What did speaker 2 say?", ["Speaker 2"], "What did say?"),
        ("What did the speaker say?", [], "What did the speaker say?"),
        ("Ann?", ["Ann Lee"], "?"),
        ("Bob", ["Bob"], "Bob"),
    ],
)
def test_a_question_asks_for_the_words_of_the_one_who_is_named_or_of_the_user(query, asked, left) -> None:
    known = speakers(*NAMES)
    assert known.target_speakers(query) == [known.numbers[name] for name in asked]
    assert known.without_names(query) == left


def test_a_first_name_that_two_share_names_nobody() -> None:
    assert speakers("Ann Lee", "Ann May").target_speakers("What did Ann say?") == []
    assert speakers("Ann Lee", "Ann May").target_speakers("What did Ann May say?") == [1]


@pytest.mark.parametrize(
    ("query", "near"),
    [
        ("What did Ann do in May 2023?", [0, 1, 0.4, 0]),
        ("What happened on 5 May, 2023?", [0, 1, 0.4, 0]),
        ("Where was she on June 3rd, 2023?", [0, 0, 1, 0]),
        ("2023年5月去了哪里？", [0, 1, 0.4, 0]),
        ("What happened on 2023-05-07?", [0, 1, 0.4, 0]),
        ("Who came in May?", [0, 1, 0.4, 1]),
        ("Who came in 2023?", [0, 0.3, 0.3, 0]),
        ("In May 2023 or in May 2022?", [0, 1, 0.4, 1]),
        ("May I come, or may she march?", None),
        ("Who came?", None),
    ],
)
def test_months_and_years_that_a_question_names(query: str, near: list[float] | None) -> None:
    times = [None, datetime(2023, 5, 7), datetime(2023, 6, 1), datetime(2022, 5, 1)]
    found = month_nearness(query, np.array([month_number(time) for time in times]), next_month=0.4, year=0.3)
    assert (found if found is None else found.tolist()) == near


def test_neighbours_share_scores_as_they_were_whatever_changes_later() -> None:
    neighbours = Neighbours({1: 0.5, -1: 0.2})
    for row, dialogue in enumerate(["a", "b", "", "a", ""]):
        neighbours.set_dialogue(row, dialogue)
    smoothing, rows = neighbours.smoothing(), np.array([3, 0, 2])
    neighbours.set_dialogue(3, "b")
    neighbours.set_dialogue(5, "a")
    scores = smoothing.smoothed(np.array([10.0, 10, 10, 0, 0]))
    chosen = smoothing.smoothed(np.array([0.0, 10, 10]), rows, factor=2.0)
    later = neighbours.smoothing().smoothed(np.array([10.0, 10, 10, 0, 0, 0]))
    assert scores.tolist() == [10, 10, 10, 5, 0]
    assert chosen.tolist() == [10, 10, 10]
    assert later.tolist() == [10, 10, 10, 5, 0, 5]


def test_a_row_that_scores_exactly_the_least_score_is_a_hit_with_and_without_a_bonus() -> None:
    word_scores = np.array([1.0, 2.0, 3.0])
    for bonus in (None, np.array([2.0, 0.0, 0.0])):
        query_scores = score_by_words(word_scores, bonus, min_score=2.0)
        is_hit = query_scores.scores >= query_scores.lowest_hit_score
        assert is_hit.tolist() == [False, True, True]


def test_long_texts_are_searched_by_passages() -> None:
    words = " ".join(f"w{n}" for n in range(600))
    found = passages(f"Ann: {words}\nshort", "Ann")
    assert (" ".join(found), found[-1], max(map(len, found)) <= 900) == (f"{words} short", "short", True)
    assert (passages("我" * 1000, None), passages("", None)) == (["我" * 900, "我" * 100], [""])


@pytest.mark.parametrize("embedder", [None, TextEmbedder("same", lambda texts: np.ones((len(texts), 2)), 2)])
def test_turns_of_the_speaker_and_the_month_come_first(embedder: TextEmbedder | None) -> None:
    index = Index(embedder, hybrid=True)
    index.add(
        Entry(id=f"{who} {month}", text="Jazz is fine", speaker=who, time=datetime(2023, month, 1))
        for who in ("Ann", "Bob")
        for month in (3, 5)
    )
    index.add([Entry(id="other", text="Rain", speaker="Bob", time=datetime(2023, 5, 2))])
    first, *rest = (hit.id for hit in index.search(["What did Bob say of jazz in May 2023?"], 5)[0])
    assert (first, set(rest[:2]) <= {"Bob 3", "Ann 5", "other"}) == ("Bob 5", True)
    assert ("other" in rest) == (embedder is not None)


class Backwards:
    """A reranker that likes long texts."""

    name = "backwards"
    asked: tuple[str, ...] = ()

    def words(self, query: str) -> Sequence[str]:
        return ["jazz", "fine", "of"]

    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
        self.asked += (query,)
        assert weights["jazz"] > weights["fine"] > weights["of"] == 0
        return np.array([float(sum(map(len, each))) for each in texts])


def test_the_first_hits_are_ranked_again_and_the_rest_stay_behind_them() -> None:
    embedder = TextEmbedder("same", lambda texts: np.array([[1.0, len(t) % 7] for t in texts]), 2)
    reranker = embedder.reranker = Backwards()
    entries = [Entry(id=str(n), text="fine " * (12 - n) + "jazz" * (n < 3), tags={DIALOGUE: "a"}) for n in range(9)]
    plain = Index(TextEmbedder("plain", embedder._compute, 2), hybrid=True)
    index = Index(embedder, hybrid=True, weights=SignalWeights(reranked_hits=4))
    for each in (plain, index):
        each.add([*entries, Entry(id="speaker", text="fine", speaker="Ann")])
    before, after = ([hit.id for hit in each.search(["Ann's jazz"], 9)[0]] for each in (plain, index))
    assert set(after[:4]) == set(before[:4])
    assert after[:4] != before[:4]
    assert after[4:] == before[4:]
    assert reranker.asked == ("jazz",)
    hits = index.search(["Ann's jazz"], 9)[0]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert index.search(["Ann's jazz"], 3)[0] == hits[:3]
    assert Index(embedder).search(["jazz"], 3) == [[]]


def test_long_texts_are_worked_on_in_turns_and_short_ones_wait_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = list[str]()
    at_once = list[int]()
    lock = threading.Lock()

    class Cutter:
        def cut_for_search(self, run: str) -> list[str]:
            inside.append(run)
            at_once.append(len(inside))
            time.sleep(0.002)
            return [inside.pop()]

    def number_of_terms(text: str) -> int:
        with set_context(CURRENT_SLOT, lambda: lock):
            return len(tokens(text))

    monkeypatch.setattr("mempiler.memory.search.tokens.chinese_cutter", Cutter)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(number_of_terms, ["我" * 5_000] * 4)) == [10] * 4
    assert max(at_once) == 1
    with lock:
        assert number_of_terms("篮球") == 1


def test_an_index_takes_turns_for_many_short_texts_and_none_within_a_turn() -> None:
    turns = list[str]()

    @contextmanager
    def turn() -> Iterator[None]:
        assert turns.count("begins") == turns.count("ends")
        turns.append("begins")
        yield
        turns.append("ends")

    long = Entry(id="long", text="jazz " * 1000)
    short = [Entry(id=str(n), text="fine words " * 50) for n in range(20)]
    with set_context(CURRENT_SLOT, turn):
        Index().add(short[:1])
        assert turns == []
        Index().add([long, *short])
    # One for the long text, and one for every four of the others.
    assert turns.count("begins") == turns.count("ends") == 6


def words(number: int) -> str:
    """Words that are all different."""
    return " ".join(f"word{n}x" for n in range(number))


def test_a_text_of_very_many_words_has_stems_at_its_beginning_alone() -> None:
    assert tokens(f"running {words(4_990)} jumping")[-1] == "jump"
    # Of a word that was stemmed before, the stem is known.
    assert tokens(f"running {words(5_010)} jumping running")[-2:] == ["jumping", "run"]
    assert tokens("running parks " * 6_000) == ["run", "park"] * 6_000


def test_a_long_chinese_text_is_cut_at_its_beginning_and_has_pairs_behind() -> None:
    sentence = "我喜欢在周末打篮球。"
    terms = tokens(sentence * 2_000)
    assert terms[:4] == ["喜欢", "周末", "篮球", "打篮球"]
    assert terms[-7:] == ["喜欢", "欢在", "在周", "周末", "末打", "打篮", "篮球"]


def test_a_question_as_long_as_a_book_is_looked_through_at_its_beginning_alone() -> None:
    speakers, index, begun = Speakers(), Index(), time.process_time()
    index.add([Entry(id="f1", text="Ann likes jazz"), Entry(id="f2", text="I moved to Lisbon")])
    book = "Lisbon " + "我们昨天在北京的公园里打篮球" * 40_000 + " jazz"
    assert [hit.id for hit in index.search([book], 2)[0]] == ["f2"]
    assert len(index.semantic_queries([book])[0]) == 10_000
    for n in range(3000):
        speakers.register(f"name{n}")
    question = "What did name7 say in May 2024? "
    months = np.array([month_number(datetime(2024, 5, 1)), 1])
    for rest in ("2024年" * 100_000, " ".join(f"{n % 28 + 1} May {1900 + n % 200}" for n in range(50_000))):
        assert speakers.target_speakers(question + rest) == [7]
        assert "name7" not in speakers.without_names(question + rest)
        assert (found := month_nearness(question + rest, months, next_month=0.4, year=0.3)) is not None
        assert found[0] == 1
    assert time.process_time() - begun < 5

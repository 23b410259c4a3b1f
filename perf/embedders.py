"""What the embedders of this process cost and find on a LoCoMo file, and the thresholds that go with them.

    cost       ms of CPU for a turn and for a question, each for the first time, nothing read from a cache
    recall     share of a question's evidence turns among the best 5 and 20 turns of its conversation, categories 1-4,
               by cosine alone and by the sum of the z-scores of cosine and BM25; and of the facts with that evidence
               that a model wrote when LoCoMo was made (its "observation")
    --choose   thresholds for those facts, chosen on the first conversation, checked on the others

A model whose weights are other than those of its name (rebuilt ones, say) is measured from a folder.

Usage:
    $ python perf/embedders.py locomo10.json
    $ python perf/embedders.py locomo10.json --only offline minilm e5=FOLDER --choose
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import MODELS, TextEmbedder, embedder
from mempiler.engines.onnx.encoder import Encoder
from mempiler.memory.index import Entry
from mempiler.memory.sparse import SparseIndex
from mempiler.memory.turns import TurnMemory
from mempiler.records import History

BEST = 5
"""Facts a question, as PGR takes them."""
BEYOND = {"related": 0.5, "near": 0.95, "named": 0.999}
"""A threshold is the cosine below which this share of the facts of other conversations lies."""
CLOSE = 0.5
"""The same of the evidence itself, for what is to be close to the question."""
SAME = 1e-4
"""Share of the pairs of facts of a conversation that may pass for the same, where most do: a merge is not undone."""


class Conversation:
    """Texts to search, questions with evidence among them, and the places of the evidence."""

    def __init__(self, examples: Sequence, entries: Sequence[Entry]) -> None:
        self.id, self.entries = examples[0].history.id, entries
        told = [(each, self._places(each.evidence)) for each in examples if each.category != "5"]
        self.questions = [each.question for each, places in told if places]
        self.evidence = [places for _, places in told if places]

    def _places(self, evidence: Sequence[str]) -> list[int]:
        return [place for place, entry in enumerate(self.entries) if set(entry.sources) & set(evidence)]

    def cosines(self, vectors: TextEmbedder) -> np.ndarray:
        """[questions, turns]."""
        return vectors.embed_queries(self.questions) @ vectors.embed([entry.text for entry in self.entries]).T

    def bm25(self) -> np.ndarray:
        """[questions, turns]."""
        index, found = SparseIndex(), np.zeros((len(self.questions), len(self.entries)))
        index.add(self.entries)
        places = {entry.id: place for place, entry in enumerate(self.entries)}
        for row, hits in enumerate(index.search(self.questions, k=len(self.entries))):
            for hit in hits:
                found[row, places[hit.id]] = hit.score
        return found

    def recall(self, scores: np.ndarray, k: int) -> list[float]:
        """Share of the evidence in the best k, by question."""
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return [float(np.isin(gold, row).mean()) for gold, row in zip(self.evidence, best, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost and recall of the embedders of this process.")
    parser.add_argument("data", help="a LoCoMo file")
    parser.add_argument("--only", nargs="+", default=["offline", *MODELS], help="names, or NAME=FOLDER")
    parser.add_argument("--choose", action="store_true", help="choose thresholds, too")
    arguments = parser.parse_args()
    found: dict[str, list] = {}
    for example in benchmark("locomo", arguments.data).examples:
        found.setdefault(example.history.id, []).append(example)
    talks = [Conversation(examples, _turns(examples[0].history)) for examples in found.values()]
    facts = _facts(arguments.data)
    told = [Conversation(examples, facts[id]) for id, examples in found.items() if facts.get(id)]
    print(
        f"{'':<10}{'ms/turn':>9}{'ms/query':>9}{'turns@5':>9}{'@20':>7}{'+BM25@5':>9}{'@20':>7}{'facts@5':>9}{'@20':>7}"
    )
    bm25 = [_recalls(part, [talk.bm25() for talk in part]) for part in (talks, told)]
    print(f"{'bm25':<10}{'':>18}{bm25[0]}{'':>16}{bm25[1]}")
    for name in arguments.only:
        _row(name, talks, told)
    for name in arguments.only if arguments.choose else ():
        _thresholds(name, told)


def _turns(history: History) -> Sequence[Entry]:
    memory = TurnMemory()
    for item in history.items:
        memory = memory.with_session(item)
    return memory.turns


def _facts(path: str) -> dict[str, list[Entry]]:
    """What a model wrote down of the conversations when LoCoMo was made: facts with the turns that they are from."""
    found: dict[str, list[Entry]] = {}
    for talk in json.loads(Path(path).read_text(encoding="utf-8")):
        entries = found.setdefault(talk["sample_id"], [])
        for speakers in talk.get("observation", {}).values():
            for fact, turns in (pair for pairs in speakers.values() for pair in pairs):
                sources = tuple(turns) if isinstance(turns, list) else (turns,)
                entries.append(Entry(id=str(len(entries)), text=fact, sources=sources))
    return found


def made(name: str) -> TextEmbedder:
    """The embedder of a name, or NAME=FOLDER; it remembers texts for this run alone."""
    name, _, folder = name.partition("=")
    if not folder:
        return embedder(name, threads=1)
    about, files = MODELS[name], (Path(folder) / "model.onnx", Path(folder) / "tokenizer.json")
    encode = Encoder(*files, about.longest, threads=1)
    return TextEmbedder(name, encode, 0, about.unrelated, query=about.query, passage=about.passage)


def _row(name: str, talks: Sequence[Conversation], told: Sequence[Conversation]) -> None:
    vectors = made(name)
    if name in MODELS:
        vectors._disk = None
    vectors.embed(["the files are read"])
    turns = _timed(vectors.embed, [entry.text for talk in talks for entry in talk.entries])
    asked = [question for talk in talks for question in talk.questions]
    query = _timed(lambda texts: [vectors.embed_queries([text]) for text in texts], asked)
    cosines = [talk.cosines(vectors) for talk in talks]
    both = [_z(scores) + _z(talk.bm25()) for scores, talk in zip(cosines, talks, strict=True)]
    found = [_recalls(talks, cosines), _recalls(talks, both), _recalls(told, [talk.cosines(vectors) for talk in told])]
    print(f"{name.partition('=')[0]:<10}{turns:>9.2f}{query:>9.2f}{''.join(found)}")


def _timed(call: Callable[[list[str]], object], texts: list[str]) -> float:
    start, texts = time.process_time(), list(dict.fromkeys(texts))
    call(texts)
    return (time.process_time() - start) * 1000 / len(texts)


def _recalls(talks: Sequence[Conversation], scores: Sequence[np.ndarray]) -> str:
    at = [np.mean([r for t, s in zip(talks, scores, strict=True) for r in t.recall(s, k)]) for k in (5, 20)]
    return f"{at[0]:>9.3f}{at[1]:>7.3f}"


def _z(scores: np.ndarray) -> np.ndarray:
    deviation = scores.std(axis=1, keepdims=True)
    return (scores - scores.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1)


def _thresholds(name: str, talks: Sequence[Conversation]) -> None:
    """Prints what is chosen on the first conversation, and what it does on every one."""
    vectors = made(name)
    facts = [vectors.embed([entry.text for entry in talk.entries]) for talk in talks]
    asked = [vectors.embed_queries(talk.questions) for talk in talks]
    own = [questions @ rows.T for questions, rows in zip(asked, facts, strict=True)]
    others = [np.hstack([asked[n] @ rows.T for m, rows in enumerate(facts) if m != n]) for n in range(len(talks))]
    evidence = [_evidence(talk, scores) for talk, scores in zip(talks, own, strict=True)]
    chosen = {rule: np.quantile(others[0], share) for rule, share in BEYOND.items()}
    chosen["close"] = np.quantile(evidence[0], CLOSE)
    print(f"\n{name.partition('=')[0]}: share of the evidence in the best {BEST}, and of facts of others, that passes")
    for rule, at in chosen.items():
        passes = [((a >= at).mean(), (b >= at).mean()) for a, b in zip(evidence, others, strict=True)]
        told = "   ".join(f"{talk.id} {a:.2f} {b:.3f}" for talk, (a, b) in zip(talks, passes, strict=True))
        print(f"  {rule:<8} {at:.2f}   {told}")
    same = [np.quantile((rows @ rows.T)[np.triu_indices(len(rows), 1)], 1 - SAME) for rows in facts]
    print(f"  {'same':<8} {max(same):.2f}   reached by 1 of {1 / SAME:,.0f} pairs of facts or fewer")


def _evidence(talk: Conversation, scores: np.ndarray) -> np.ndarray:
    """Cosines of the evidence that is among the best."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :BEST]
    rows = enumerate(zip(talk.evidence, best, strict=True))
    return np.array([scores[n, place] for n, (gold, row) in rows for place in gold if place in row])


if __name__ == "__main__":
    main()

"""PersonaMem v1: multiple-choice questions to an assistant that should know its user by now (Jiang et al. 2025).

The genuine files are `questions_{32k,128k,1M}.csv` and `shared_contexts_{32k,128k,1M}.jsonl` of the hub set
bowen-upenn/PersonaMem (RGMem's tables are of 128k: `--option length=128k`); `reader` says how they are
read. The sample that is bundled is our own, in the
same form.

An example holds `history`, `question`, `options`, `focus` (inputs; there is no evidence, so it is empty), `answer`
("(c)"), `category` (the skill), `topic`, `user` and `id` (labels).

Limits: the score is the official one, so an answer that repeats an option without its letter is wrong. One of
four options is right by chance. The released files hold six of the paper's seven skills
once the two names of recalling facts are one; a skill that a file has not is shown with n = 0, and never filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ...errors import DataError, UnknownNameError, UserError
from ..benchmark import Benchmark
from ..dataset import Note, Reading, Source, refuse_fatal
from ..samples import given_or_sample
from ..scorer import Scorer
from .reader import SKILLS, read_personamem, skill_of
from .release import questions_of
from .scorer import RightLetter


class PersonaMem(Benchmark):
    """PersonaMem v1: the share of questions answered with the right letter."""

    name = "personamem"
    task = "multiple-choice"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": RightLetter}
    categories = SKILLS
    expected = tuple(SKILLS)

    @classmethod
    def read(cls, path: Path, note: Note, contexts: str | Path | None = None, length: str | None = None) -> Reading:
        return read_personamem(questions_of(path, length), note, Path(contexts) if contexts else None)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        categories: str | Iterable[str] | None = None,
        contexts: str | Path | None = None,
        length: str | None = None,
        **options: Any,
    ) -> PersonaMem:
        """Reads the genuine files at `path`, or the bundled sample when it is None.

        Args:
            path: A file of questions_32k.csv's form, or the folder of the released files.
            categories: The skills to keep, by their names in the file, e.g. "suggest_new_ideas"; all when None.
            contexts: The file of the contexts; the one beside the questions if None.
            length: Which of the released files, "32k", "128k" or "1M"; needed for a folder that holds several.
            **options: None are known; any is refused.

        Raises:
            DataError: A file is not of this form, or holds no question of these skills.
            UnknownNameError: A skill, a length or an option that does not exist.
            UserError: The bundled sample is asked for by a length.
        """
        cls.refuse_options(options, ("categories", "contexts", "length"))
        kept = _kept(categories)
        if path is None and (length is not None or contexts is not None):
            raise UserError(
                "the bundled sample has one length and its own contexts; give the genuine files with --data"
            )
        # The sample as a folder: the contexts must come along.
        with given_or_sample(path, "") as (where, sample):
            file = where / "personamem_questions.csv" if sample else questions_of(where, length)
            examples = read_personamem(file, refuse_fatal(file), Path(contexts) if contexts else None).examples
            chosen = [example for example in examples if kept is None or example.category in kept]
            if examples and not chosen:
                raise DataError(f"{file}: no question of the skill {', '.join(sorted(kept or ()))}; choose others")
            return cls(chosen, Source.of(file, sample))

    def group(self, example: dspy.Example) -> str:
        """The persona: its contexts are about the same person."""
        return example.user


def _kept(categories: str | Iterable[str] | None) -> frozenset[str] | None:
    if categories is None:
        return None
    kept = {skill_of(str(part)) for part in (categories.split(",") if isinstance(categories, str) else categories)}
    for skill in sorted(kept - SKILLS.keys()):
        raise UnknownNameError("PersonaMem skill", skill, SKILLS)
    return frozenset(kept)

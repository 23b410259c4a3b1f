"""The form of PersonaMem v1, and a reader for it: a CSV of multiple-choice questions beside a JSONL of long contexts.

    questions_32k.csv            persona_id, question_id, question_type, user_question_or_message, correct_answer "(c)",
                                 all_options "['(a) ...', ...]", shared_context_id, end_index_in_shared_context, ...
    shared_contexts_32k.jsonl    {"<shared_context_id>": [{"role": "system", "content": "..."}, ...]}     (one per line)

Columns go by name, never by place, and by older names too; `all_options` is a Python list, not JSON. A question is
asked after the first `end_index_in_shared_context` messages of its context. The contexts are read line by line, and
only those that a question needs are parsed: the file of the 1M setting does not fit into every memory.

A message of the role "system" begins a session and stays in it as a turn of the speaker "system" (it tells the
persona). Histories that end at different messages of one context share the sessions before, and with them their
prefixes: a memory that was written for one question goes on from there for a later one.

Limits: a context without further system messages is one long session, and then nothing is shared but equal ends.
A file without persona ids is grouped by context, so that two contexts of one persona may be in different parts.
"""

from __future__ import annotations

import csv
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import dspy

from ...errors import DataError
from ...records import History
from ...records.json_input import decode, refuse_other_than_file, unreadable
from ..blocks import Blocks
from ..cells import literal, whole_number
from ..dataset import Finding, Note, Reading
from .release import contexts_beside

SKILLS: Mapping[str, str] = MappingProxyType(
    {
        "recall_user_shared_facts": "recall facts",
        "acknowledge_latest_user_preferences": "latest preference",
        "track_full_preference_evolution": "track evolution",
        "recalling_the_reasons_behind_previous_updates": "revisit reasons",
        "provide_preference_aligned_recommendations": "aligned recommendation",
        "suggest_new_ideas": "suggest new ideas",
        "generalizing_to_new_scenarios": "new scenarios",
    }
)
"""The seven skills of the paper by the name in the files, with what tables call them."""

_SKILL_WORDS = (
    ("latest", "acknowledge_latest_user_preferences"),
    ("reasons", "recalling_the_reasons_behind_previous_updates"),
    ("facts", "recall_user_shared_facts"),
    ("evolution", "track_full_preference_evolution"),
    ("recommendation", "provide_preference_aligned_recommendations"),
    ("new_ideas", "suggest_new_ideas"),
    ("scenario", "generalizing_to_new_scenarios"),
)
_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "question": ("user_question_or_message", "question", "user_question"),
        "answer": ("correct_answer", "answer"),
        "options": ("all_options", "options"),
        "context": ("shared_context_id", "context_id"),
        "end": ("end_index_in_shared_context", "end_index"),
        "skill": ("question_type", "type"),
        "user": ("persona_id", "persona"),
        "id": ("question_id", "id"),
        "topic": ("topic",),
    }
)
_NEEDED = ("question", "answer", "options", "context", "end", "skill")
_LETTER = re.compile(r"\s*\(?([a-d])\)?\s*", re.IGNORECASE)
_OPTION = re.compile(r"\s*\(([a-d])\)", re.IGNORECASE)
_CONTEXT_KEY = re.compile(r'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')
_LONGEST_CELL = 2**24


def read_personamem(path: Path, note: Note, contexts: Path | None = None) -> Reading:
    """Reads a CSV of questions and the contexts it needs, telling `note` everything that is odd.

    Args:
        path: The questions.
        note: A row with a fatal finding is skipped if it does not raise.
        contexts: The contexts; the file beside the questions (see `contexts_beside`) if None.

    Raises:
        DataError: The file of the questions is missing, is of another kind, or lacks a column.
    """
    rows = [_Row(line, row, note) for line, row in read_csv(path, _columns)]
    needed = {row.cells["context"] for row in rows}
    try:
        found = read_contexts(contexts or contexts_beside(path), needed, note)
    except DataError as error:
        # The questions are read nevertheless, so that a check says what is wrong with them.
        note(Finding("no contexts", "contexts", str(error).removeprefix(f"{path}: "), fatal=True))
        found = None
    histories: dict[tuple[str, int], History] = {}
    examples: dict[str, dspy.Example] = {}
    for row in rows:
        example = row.example(found, histories)
        if example is None:
            continue
        if example.id in examples:
            row.fault("duplicate id", "id", f"{example.id!r} is used twice")
            continue
        examples[example.id] = example
    return Reading(tuple(histories.values()) if found else (), tuple(examples.values()))


def read_csv(
    path: Path, rename: Callable[[Path, Sequence[str]], dict[str, str]]
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with the line each ends on; absent cells are "".

    Args:
        path: The file.
        rename: Called with the path and the header; gives the new name of each column that is wanted. Columns that
            it leaves out keep theirs.

    Raises:
        DataError: The file is missing, empty, no UTF-8 text or no CSV.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    try:
        refuse_other_than_file(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if not reader.fieldnames:
                raise DataError(f"{path}: the file is empty; expected a CSV with a header")
            names = rename(path, tuple(reader.fieldnames))
            for row in reader:
                if None in row or None in row.values():
                    cells = sum(value is not None for key, value in row.items() if key) + len(row.get(None) or ())
                    wanted = f"the header {len(reader.fieldnames)}; mend the line"
                    raise DataError(f"{path}: line {reader.line_num} has {cells} cells, {wanted}")
                yield reader.line_num, {names.get(key, key): value or "" for key, value in row.items() if key}
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a CSV: {error}") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def read_contexts(path: Path, needed: Iterable[str], note: Note) -> dict[str, Blocks]:
    """The messages of the contexts with these ids; the others are passed over without parsing them."""
    wanted = set(needed)
    found: dict[str, Blocks] = {}
    try:
        refuse_other_than_file(path)
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                key = _CONTEXT_KEY.match(line)
                if key is not None and literal(key[1]) not in wanted:
                    continue
                if line.strip():
                    found |= _context(path, number, line, note)
                if wanted <= found.keys():
                    break
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; it holds the contexts of the questions") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    return found


def skill_of(name: str) -> str:
    """The skill that a `question_type` denotes: both names of recalling facts are one, and spellings differ."""
    plain = re.sub(r"\W+", "_", name.strip().lower())
    if plain in SKILLS:
        return plain
    return next((skill for word, skill in _SKILL_WORDS if word in plain), plain)


def _columns(path: Path, names: Sequence[str]) -> dict[str, str]:
    known = {name.strip().lower(): name for name in names}
    found = {}
    for field, aliases in _ALIASES.items():
        name = next((known[alias] for alias in aliases if alias in known), None)
        if name is not None:
            found[name] = field
        elif field in _NEEDED:
            raise DataError(f"{path}: has no column {aliases[0]!r}; its columns are {', '.join(names)}")
    return found


def _context(path: Path, number: int, line: str, note: Note) -> dict[str, Blocks]:
    try:
        value = decode(line)
    except json.JSONDecodeError as error:
        where = f"{path.name}, line {number}, column {error.colno}"
        note(Finding("broken line", where, f"not valid JSON ({error.msg}); is the line cut short?", fatal=True))
        return {}
    except ValueError as error:
        note(Finding("broken line", f"{path.name}, line {number}", str(error), fatal=True))
        return {}
    contexts = value if isinstance(value, dict) else {}
    if not contexts or not all(isinstance(messages, list) for messages in contexts.values()):
        message = f"expected {{context id: [messages]}}, got {reprlib.repr(value)}"
        note(Finding("malformed context", f"{path.name}, line {number}", message, fatal=True))
        return {}
    try:
        return {id: Blocks(messages) for id, messages in contexts.items()}
    except DataError as error:
        note(Finding("malformed context", f"{path.name}, line {number}", str(error), fatal=True))
        return {}


class _Row:
    """One row on its way to an example; keeps its line for its findings."""

    def __init__(self, line: int, cells: Mapping[str, str], note: Note) -> None:
        self.line, self.cells, self.note = line, cells, note

    def fault(self, kind: str, column: str, message: str, fatal: bool = True) -> None:
        name = _ALIASES[column][0]
        self.note(Finding(kind, f"line {self.line}, column {name!r}", message, fatal))

    def example(
        self, contexts: Mapping[str, Blocks] | None, histories: dict[tuple[str, int], History]
    ) -> dspy.Example | None:
        question, options, answer = self.cells["question"].strip(), self.options(), self.answer()
        if not question:
            self.fault("missing question", "question", "is empty")
        history = self.history(contexts, histories)
        if not question or options is None or answer is None or history is None:
            return None
        if answer not in [found[1].lower() for option in options if (found := _OPTION.match(option))]:
            self.fault("answer without option", "answer", f"no option begins with ({answer})")
            return None
        return dspy.Example(
            id=self.cells.get("id") or f"{history.id[:12]}:{self.line}",
            history=history,
            question=question,
            options=options,
            answer=f"({answer})",
            category=self.skill(),
            topic=self.cells.get("topic", ""),
            user=self.cells.get("user") or history.id,
            focus=(),
            evidence=(),
        ).with_inputs("history", "question", "options", "focus")

    def options(self) -> list[str] | None:
        value = literal(self.cells["options"].strip())
        if isinstance(value, list) and len(value) > 1 and all(isinstance(option, str) for option in value):
            return value
        self.fault("malformed options", "options", f"{reprlib.repr(self.cells['options'])} is no list of texts")
        return None

    def answer(self) -> str | None:
        match = _LETTER.fullmatch(self.cells["answer"])
        if match is None:
            self.fault("malformed answer", "answer", f"{reprlib.repr(self.cells['answer'])} is no letter such as (c)")
        return match[1].lower() if match else None

    def skill(self) -> str:
        skill = skill_of(self.cells["skill"])
        if skill not in SKILLS:
            self.fault("unknown skill", "skill", f"{skill!r} is none of the paper's; kept as it is", fatal=False)
        return skill or "all"

    def history(
        self, contexts: Mapping[str, Blocks] | None, histories: dict[tuple[str, int], History]
    ) -> History | None:
        """What came before the question; empty where there are no contexts at all."""
        id, end = self.cells["context"], self.cells["end"].strip()
        if contexts is not None and id not in contexts:
            self.fault("missing context", "context", f"{reprlib.repr(id)} is not in the file of contexts")
            return None
        count = whole_number(end)
        if not count:
            self.fault("malformed end", "end", f"{reprlib.repr(end)} is no number of messages")
            return None
        if contexts is None:
            return History(id=id, items=())
        length = len(contexts[id].messages)
        if count > length:
            message = f"{end} is more than the context's {length} messages; all are taken"
            self.fault("end past the context", "end", message, fatal=False)
        place = (id, min(count, length))
        if place not in histories:
            histories[place] = History(id=id, items=contexts[id].until(place[1]))
        if not histories[place].items:
            self.fault("empty context", "context", "holds no message with text before the question")
            return None
        return histories[place]

"""Simulated users whose words change, and a model that answers by what its instruction explains.

The users are those of `data/memory_env.py`: two speakers state and change facts, and questions ask
for them. After a drift the questions have other words for the facts, e.g. "town" for "city". The
model knows the old words. It understands a new word if its instruction explains it.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mempiler import Store, build, save
from mempiler.data.memory_env import NOTHING, VALUES, Conversation
from mempiler.engines.embedders import TextEmbedder
from mempiler.runs.manifest import Manifest
from mempiler.runs.model_registry import find_version
from mempiler.runs.publish import register
from mempiler.runs.tracking.store import client

from ..scripted_engine import ScriptedEngine

NO_DRIFT: Mapping[str, str] = {}
DRIFT = {"city": "town", "colour": "hue", "pet": "companion"}
"""The words of the users after the drift, by those that the model knows."""


def write_questions(
    file: Path,
    users: Iterable[int],
    words: Mapping[str, str] = NO_DRIFT,
    *,
    user_prefix: str = "user-",
    category: str = "",
    sentences: Mapping[int, str] | None = None,
) -> Path:
    """Write the questions of simulated users into a file of JSON lines; return the file.

    Args:
        file: Is written anew.
        users: The numbers of the users.
        words: New words of the questions, by the old ones.
        user_prefix: The name of a user is this and the number.
        category: The category of all questions.
        sentences: What some users say in a last session, by their numbers.
    """
    lines: list[str] = []
    for number in users:
        conversation = Conversation.make(seed=0, number=number, sessions=4)
        history = conversation.history.model_dump(mode="json")
        sentence = (sentences or {}).get(number)
        if sentence is not None:
            turn = {"id": "D5:1", "speaker": "Zoe", "text": sentence}
            history["items"].append({"id": "D5", "turns": [turn], "kind": "session"})

        for example in conversation.questions():
            row = {
                "user": f"{user_prefix}{number}",
                "history": history,
                "question": _with_new_words(example.question, words),
                "answer": example.answer,
                "category": category,
            }
            lines.append(json.dumps(row))
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def register_first_version(
    name: str, folder: Path, embedder: TextEmbedder | None = None, method: str = "turn-rag"
) -> str:
    """Register a program that was not compiled; return its address."""
    program = build(method, k=20, embedder=embedder)
    save(program, folder, Manifest(method="", task=""))
    return register(folder, name, "prod", force=True).address


def register_under_another_name(address: str, name: str) -> str:
    """Register a registered program under another name, too; return its address there.

    MLflow gets only the place of the files, so this takes a tenth of the time of `register`.
    """
    version = find_version(address)
    mlflow = client()
    mlflow.create_registered_model(name)
    copy = mlflow.create_model_version(
        name, str(version.source), version.run_id, tags=dict(version.tags)
    )
    mlflow.set_registered_model_alias(name, "prod", str(copy.version))
    return f"models:/{name}@prod"


def answer_request(body: dict[str, Any]) -> str:
    """Answer a request to a stub server as a `DriftingModel`."""
    from dspy.lm15 import request_from_openai_chat

    model = DriftingModel()
    model.engine = ScriptedEngine(model)
    request = request_from_openai_chat({name: body[name] for name in ("model", "messages")})
    return model.engine.complete(request).message.text or ""


class DriftingModel:
    """A scripted model for answers and proposals; `engine` must be set to the engine that asks it.

    It answers by the turns that the prompt shows. As the model that proposes, it explains one word
    that the questions of the prompt have and the instruction does not explain.
    """

    def __init__(self) -> None:
        self.engine: Any = None

    def __call__(self, kind: str, text: str, number: int) -> str | dict[str, Any]:
        if kind == "new_instruction":
            return json.dumps({"new_instruction": self._propose(text)})
        return {kind: self._answer(text)}

    def _answer(self, prompt: str) -> str:
        """Answer with the last value that the speaker has said of the fact."""
        _, _, question = prompt.rpartition("[[ ## question ## ]]")
        asked = re.search(r"What is (\w+)'s (\w+)\?", question)
        if asked is None:
            return "no idea"
        speaker, word = asked.groups()
        key = word
        explained = re.search(rf"{word} means (\w+)", self.engine.system)
        if explained is not None:
            key = explained.group(1)
        if key not in VALUES:
            return "no idea"

        answer = NOTHING
        for turn_id in sorted(set(re.findall(r"\[(D\d+:\d+)\]", prompt))):
            # Turns of a store have a date: "[D1:1] (3 January 2024) Ann: my pet is a ferret".
            line = re.search(rf"\[{turn_id}\](?: \(.*?\))? (\w+): (.*)", prompt)
            if line is None or line.group(1) != speaker or key not in line.group(2):
                continue
            answer = NOTHING
            for value in VALUES[key]:
                if value in line.group(2).split():
                    answer = value
        return answer

    def _propose(self, prompt: str) -> str:
        """Propose the explanations that the prompt has, and one more."""
        explanations: list[str] = []
        is_learning = True
        for old_word, new_word in DRIFT.items():
            explanation = f"{new_word} means {old_word}"
            if explanation in prompt:
                explanations.append(explanation)
            elif is_learning and f"'s {new_word}?" in prompt:
                explanations.append(explanation)
                is_learning = False
        return "Answer from the context: " + ", ".join(explanations)


def fill_store(
    store: Store,
    users: Iterable[int],
    words: Mapping[str, str] = NO_DRIFT,
    *,
    user_prefix: str = "user-",
    sentences: Mapping[int, str] | None = None,
) -> None:
    """Let simulated users talk to a served program, ask questions, and correct every answer.

    The offline engine answers them.

    Args:
        store: Gets what the users say, the answers, and their feedback.
        users: The numbers of the users.
        words: New words of the questions, by the old ones.
        user_prefix: The name of a user is this and the number.
        sentences: What some users say in a last session, by their numbers.
    """
    program = build("turn-rag", k=20)
    for number in users:
        memory = program.memory(store, f"{user_prefix}{number}", lm="offline", feedback=True)
        conversation = Conversation.make(seed=0, number=number, sessions=4)
        for session in conversation.history.items:
            messages: list[dict[str, str]] = []
            for turn in session.turns:
                messages.append({"role": "user", "name": turn.speaker, "content": turn.text})
            memory.add(messages, id=session.id)
        sentence = (sentences or {}).get(number)
        if sentence is not None:
            memory.add([{"role": "user", "name": "Zoe", "content": sentence}], id="D5")

        for example in conversation.questions():
            answer = memory.ask(_with_new_words(example.question, words))
            memory.feedback(answer.answer_id, correction=example.answer)


def _with_new_words(question: str, words: Mapping[str, str]) -> str:
    for old_word, new_word in words.items():
        question = question.replace(old_word, new_word)
    return question

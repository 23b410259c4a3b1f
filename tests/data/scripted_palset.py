"""A scripted model that writes a PAL-Set without a mistake.

`flawless_model(kind, prompt, number)` has the form that the fixture `scripted` wants: `kind` is the
name of the first output field that is asked for. Tests wrap it to put one mistake into its answers.
"""

import json
import re
from datetime import datetime, timedelta
from typing import Any

ASPECTS = ("work", "health", "family", "leisure")

PERSONALITY_TRAITS = (
    "openness",
    "conscientiousness",
    "extraversion",
    "agreeableness",
    "neuroticism",
)

PLAN_LINE = re.compile(
    r"user (?P<user_action>.*?) \((?P<user_reference>\w+)\);"
    r" assistant (?P<assistant_action>.*?) \((?P<assistant_reference>\w+)\)"
)
"""One planned turn of a dialogue, as the prompt describes it."""


def flawless_model(kind: str, prompt: str, number: int) -> Any:
    """Answer a prompt of the synthesis well, in the language it asks for. Reviews find no fault."""
    answer = answer_in_english(kind, prompt)
    if "[[ ## language ## ]]" in prompt and prompt_field(prompt, "language") == "Chinese":
        return with_chinese(answer)
    return answer


def prompt_field(prompt: str, name: str) -> Any:
    """Return an input field of a prompt, decoded if it is JSON."""
    after_header = prompt.split(f"[[ ## {name} ## ]]\n")[1]
    before_next_field = after_header.split("\n\n[[ ##")[0]
    raw_value = before_next_field.split("Respond with")[0].strip()
    try:
        return json.loads(raw_value)
    except ValueError:
        return raw_value


def with_chinese(value: Any) -> Any:
    """Return an answer whose texts hold as many Chinese characters as English words.

    Texts of one or two words, such as names of actions, stay as they are, and so do texts that
    hold enough Chinese already.
    """
    if isinstance(value, dict):
        return {name: with_chinese(part) for name, part in value.items()}
    if isinstance(value, list):
        return [with_chinese(part) for part in value]
    if not isinstance(value, str):
        return value

    word_count = len(re.findall("[A-Za-z]{2,}", value))
    chinese_count = len(re.findall("[一-鿿]", value))
    if word_count > max(2, chinese_count):
        return "用户" * word_count + value
    return value


def answer_in_english(kind: str, prompt: str) -> dict[str, Any]:
    """Return the output fields of an answer."""
    if kind == "analysis":
        return choose_solutions(prompt)
    if kind in WRITERS:
        return {kind: WRITERS[kind](prompt)}
    # Reviews (`faults`, `contradictions`) find nothing, so nothing has to be corrected.
    return {kind: []}


def sentences(text: str, count: int = 5) -> str:
    """Return that many sentences that begin with `text`."""
    return " ".join(f"{text} number {number}." for number in range(count))


def requirement_ids(prompt: str) -> list[str]:
    """Return the ids of the requirement types that a prompt lists as `id: text`."""
    return [line.partition(":")[0] for line in prompt_field(prompt, "requirement_types")]


def write_people(prompt: str) -> list[dict[str, Any]]:
    """Invent users, numbered on from those that exist already."""
    start = len(prompt_field(prompt, "earlier_people"))
    end = start + int(prompt_field(prompt, "count"))
    first_name = "李" if prompt_field(prompt, "language") == "Chinese" else "Ann"

    people: list[dict[str, Any]] = []
    for number in range(start, end):
        person = {
            "name": f"{first_name} {number}",
            "gender": "f",
            "age": 30 + number,
            "personality": dict.fromkeys(PERSONALITY_TRAITS, "Low"),
        }
        for field in ("occupation", "health_status", "family_members", "hobbies"):
            person[field] = sentences(f"The user {field} {number}", count=2)
        people.append(person)
    return people


def write_timeline(prompt: str) -> list[dict[str, str]]:
    """Write the events of every month."""
    months = prompt_field(prompt, "months")
    return [{"month": month, "events": sentences(month)} for month in months]


def write_requirement_types(prompt: str) -> list[dict[str, str]]:
    """Write four requirement types for each aspect, in another order than the prompt's."""
    age = prompt_field(prompt, "profile")["age"]
    requirement_types: list[dict[str, str]] = []
    for aspect in reversed(ASPECTS):
        for number in range(4):
            text = f"{aspect} advice {number} at {age}"
            requirement_types.append({"aspect": aspect, "text": text})
    return requirement_types


def write_preferences(prompt: str) -> list[dict[str, str]]:
    """Write what the user likes and dislikes about each requirement type."""
    preferences: list[dict[str, str]] = []
    for line in prompt_field(prompt, "requirement_types"):
        requirement_id, text = line.split(": ")
        preferences.append(
            {
                "requirement_id": requirement_id,
                "requirement": text,
                "analysis": "So it is.",
                "pos": sentences("Likes", count=4),
                "neg": sentences("Hates", count=4),
            }
        )
    return preferences


def write_situations(prompt: str) -> list[dict[str, Any]]:
    """Divide a month into three weeks and a rest. Each situation follows the one before."""
    month = prompt_field(prompt, "month")
    end_of_earlier_situation = prompt_field(prompt, "begin_after")
    known_ids = requirement_ids(prompt)

    first_day = datetime.fromisoformat(f"{month}-01")
    # 32 days after the first of a month, it is some day of the next month.
    first_day_of_next_month = (first_day + timedelta(days=32)).replace(day=1)
    last_days = [
        first_day + timedelta(days=6),
        first_day + timedelta(days=13),
        first_day + timedelta(days=20),
        first_day_of_next_month - timedelta(days=1),
    ]

    start = first_day
    if end_of_earlier_situation:
        start = datetime.fromisoformat(end_of_earlier_situation) + timedelta(days=1)

    situations: list[dict[str, Any]] = []
    for part, end in enumerate(last_days):
        number_of_ids = 1 + part % 3
        situations.append(
            {
                "start": f"{start:%Y-%m-%d}",
                "end": f"{end:%Y-%m-%d}",
                "requirement_ids": known_ids[part : part + number_of_ids],
                "situation": sentences(f"The user lived through part {part} of {month}"),
            }
        )
        start = end + timedelta(days=1)
    return situations


def write_experience(prompt: str) -> str:
    """Write what the user did in a situation."""
    situation = prompt_field(prompt, "situation")
    return sentences(f"The user went out, {situation[:40]}", count=8)


def write_topics(prompt: str) -> list[dict[str, Any]]:
    """Write one topic for each requirement type of a situation."""
    part_of_month = re.findall("part . of .{7}", prompt)[0]
    topics: list[dict[str, Any]] = []
    for requirement_type in prompt_field(prompt, "requirement_types"):
        topics.append(
            {
                "requirement_type": requirement_type,
                "user_query": f"What about {requirement_type} in {part_of_month}?",
                "implicit_needs": [
                    {"need": f"need of {requirement_type}", "evidences": ["a detail"]},
                    {"need": f"other need of {requirement_type}", "evidences": ["a detail"]},
                ],
                "requirement": f"The user needs {requirement_type} and more.",
            }
        )
    return topics


def write_candidates(prompt: str) -> list[dict[str, Any]]:
    """Write eight solutions for each topic, which the prompt lists as `key: text`."""
    candidates: list[dict[str, Any]] = []
    for line in prompt_field(prompt, "topics"):
        topic = line.partition(":")[0]
        solutions = [f"Solution {number} of {topic}" for number in range(8)]
        candidates.append({"topic": topic, "solutions": solutions})
    return candidates


def choose_solutions(prompt: str) -> dict[str, Any]:
    """Choose two solutions that the user likes and two that the user dislikes."""
    choices = [
        {"solution": solution, "feedback_reason": "Suits the user."}
        for solution in prompt_field(prompt, "candidates")
    ]
    return {"analysis": "As it is.", "liked": choices[2:4], "disliked": choices[5:7]}


def write_logs(prompt: str) -> list[dict[str, str]]:
    """Write 20 log entries, one every seven minutes."""
    begin = datetime.fromisoformat(prompt_field(prompt, "begin"))
    logs: list[dict[str, str]] = []
    for number in range(20):
        time = begin + timedelta(minutes=7 * number)
        logs.append(
            {
                "timestamp": f"{time:%Y-%m-%d %H:%M}",
                "event": "e",
                "type": "Web Search",
                "content": f"The user searched for thing {number} of {begin:%m-%d} and viewed it.",
            }
        )
    return logs


def write_turns(prompt: str) -> list[dict[str, Any]]:
    """Write a dialogue that follows its plan."""
    turns: list[dict[str, Any]] = []
    for line in prompt_field(prompt, "plan"):
        planned = PLAN_LINE.search(line)
        assert planned is not None
        turns.append(
            {
                "user": {
                    "action": planned["user_action"],
                    "reference": planned["user_reference"],
                    "content": f"I speak of {planned['user_reference']}",
                },
                "assistant": {
                    "action": planned["assistant_action"],
                    "reference": planned["assistant_reference"],
                    "content": f"I answer on {planned['assistant_reference']}",
                },
            }
        )
    return turns


WRITERS = {
    "people": write_people,
    "timeline": write_timeline,
    "requirement_types": write_requirement_types,
    "preferences": write_preferences,
    "situations": write_situations,
    "experience": write_experience,
    "topics": write_topics,
    "candidates": write_candidates,
    "logs": write_logs,
    "turns": write_turns,
}
"""The functions that write an output field, by its name."""

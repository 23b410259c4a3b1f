"""Groups of completions with rewards, for tests of reinforcement."""

from collections.abc import Callable, Sequence
from typing import Any

from mempiler.engines.local.sampling import capture
from mempiler.programs.gather import gather

PROMPT = "w1 w2"
ASKED = [{"role": "user", "content": PROMPT}]


def text_group(*texts: str, rewards: Sequence[float], **extra: Any) -> dict[str, Any]:
    """Texts whose tokens nobody has sampled."""
    items = [
        {"messages": ASKED, "completion": {"role": "assistant", "content": text}, "reward": reward}
        for text, reward in zip(texts, rewards, strict=True)
    ]
    return {"batch_id": 0, "group": items, **extra}


def sampled(lm: Any, count: int, temperature: float = 1.0) -> Any:
    """What a model says to the prompt, each time with a rollout id of its own."""
    with capture() as samples:
        gather([lambda n=n: lm.copy(rollout_id=n, temperature=temperature)(PROMPT) for n in range(count)])
    return samples


def sampled_group(samples: Any, reward: Callable[[Any], float]) -> dict[str, Any]:
    """Samples with their tokens and log-probabilities."""
    items = [
        {
            "messages": list(sample.messages),
            "completion": {"role": "assistant", "content": sample.text},
            "reward": reward(sample),
            "prompt_ids": sample.prompt_ids,
            "completion_ids": sample.completion_ids,
            "logprobs": sample.logprobs,
        }
        for sample in samples
    ]
    return {"batch_id": 0, "group": items}

"""LoGo-GRPO: reinforcement learning of memory operations, with local and global groups.

It is the algorithm of Memory-R2 ("Fair Credit Assignment for Long-Horizon Memory-Augmented LLM
Agents"). GRPO samples several rollouts of one prompt, and compares the reward of each with the mean
of its group. Rollouts that write a memory soon differ in it, so later sessions of two rollouts are
no longer alike, and their comparison is unfair. LoGo-GRPO therefore compares in two ways:

    global group    rollouts of one conversation, over its first h sessions (the horizon)
    local group     reruns of a single session, all from the same memory ("local rerollouts")

One step of the training goes through these files:

    rollout.py      writes conversations with the model that learns, and keeps every completion
    reward.py       asks the written memories questions; the score is the reward
    collect.py      does both for the conversations of a step, and has them grouped
    groups.py       puts the completions that are compared into groups
    trainer.py      hands the groups to the training job, which computes advantages and loss

The loop over steps and stages is `TrainingLoop.run` in training_loop.py. What a killed training
resumes from is in journal.py. `LoGoGRPO` in teleprompter.py is what callers use.

Sources: of the paper we know the abstract, some figures and its prompts (docs/coverage.md). What
they leave open, such as the reward and the sizes of groups, follows the training code that its
authors released (github.com/ahmedehabb/Memory-R2): comments say "released" where they mean it.
"""

from .teleprompter import LoGoGRPO

__all__ = ["LoGoGRPO"]

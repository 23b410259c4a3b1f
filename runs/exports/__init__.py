"""Exports: a benchmark and a method as an environment for trainers that run elsewhere.

environment   what every export rests on: history in, rollout with given completions, reward out
taskset       the environment as a task set and harness of `verifiers`
rows          the environment as rows and a reward function for TRL's GRPOTrainer
writing       the folders
"""

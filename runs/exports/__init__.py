"""Exports: a benchmark and a method as an environment for trainers that run elsewhere.

environment   what every export rests on: history in, rollout with given completions, reward out
taskset       the environment as a task set and harness of `verifiers`
writing       the folder
"""

"""Memories in other people's frameworks for agents: a file each, behind an extra of its own.

A file imports its framework and, of Mempiler, only what asks a memory (`serving.prompt_text`): one of this process
and one behind a `Client` are the same to it. See docs/agents.md.
"""

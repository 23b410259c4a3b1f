"""Memories in other people's frameworks for agents: one file for each, behind an extra of its own.

A file imports its framework and, of Mempiler, only what asks a memory (`serving.prompt_text`). The
memory may be one of this process, or one of a service, which a `Client` asks. See docs/agents.md.
"""

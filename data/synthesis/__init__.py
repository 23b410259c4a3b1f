"""Benchmarks that a language model writes: one runner, and a folder for each data set.

memoryquest/        MemoryQuest, from the profiles of PersonaLens; `make.make_memoryquest`
palset/             PAL-Set, without a source; `make.make_palset`
runner.py           asks a model, checks the answer, and asks again with complaints
memory_teacher.py   the demonstrations with which a writer for `memory_env` is warmed up
"""

"""MemoryQuest, written by a language model: a file for each step, and `make.make_memoryquest`.

profiles.py    the profiles of PersonaLens, from which users are written
queries.py     step 1: requests, and the gate that keeps those which are hard for a search
timeline.py    step 2: the chats before a request, in outline
dialogue.py    step 3: the words of each chat
make.py        all steps, and the file of each user
texts.py       how texts are compared
"""

"""PAL-Set, written by a language model: a file for each step, and `make.make_palset` runs them all.

setting.py       what the whole run has in common
records.py       what is written about a user: persona, sessions, topics
texts.py         rules of texts: language, length, no names
dates.py         what is drawn by seed about months, hours and dialogues
people.py        steps 1 and 2: people, their past, what they ask for and like
situations.py    step 3
experiences.py   steps 4 and 6-1: what was experienced, and the logs of it
topics.py        step 5: what a dialogue is about
dialogue.py      step 6-2: how a dialogue goes, and its words
review.py        errors in finished logs and dialogues, and their correction
files.py         the files, in the released form
"""

"""Log runs to MLflow: scores, settings and files, and the questions, prompts and traces of a run.

store.py         where the tracking store is, and a client of it
tracker.py       one MLflow run for each command
details.py       what MLflow's pages show beside the scores of a run:
    prompts.py       the prompts of a program
    questions.py     the questions of a benchmark, as a dataset
    traces.py        the way of each question to its score
"""

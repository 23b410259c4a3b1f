"""Recordings of a run's calls: made with `--record`, played with `--replay`.

    run ── call ──> Recorder ── call ──> model           run ── call ──> Player ──> the answer of then
                       └──> FILE                                          ^── FILE

A call is known by a digest of the model's name, the messages and the settings. Played calls count like those of then:
calls, tokens, cost, failures and limits that were reached. A call that the file does not have ends the run; nothing is
ever asked instead.

Limits: equal calls that share no answer (LM cache off) are answered in the order in which they began; with several
threads their askers may change places. After the last of them a failure repeats itself. With several threads and a
limit that is reached, what an optimizer still asks for depends on timing: record such a run with one thread.
"""

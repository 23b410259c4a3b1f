"""Other people's memory systems, run through their own packages.

Each system is installed in an environment of its own and runs in a process of its own:

    catalog ──> what there is
    environment ──> a virtual environment below the user's cache, from pinned packages
    process ──> a worker inside it, JSON ──> inside/worker.py ──> inside/NAME.py ──> the package
    proxy <── the package's calls of a language model and an embedder, which Mempiler answers
"""

"""`python -m recollect.cli`: the command line of this very environment."""

from . import main

main()

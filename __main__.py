"""`python -m mempiler`: the command line of this very environment."""

from .cli import main

main()

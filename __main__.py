"""The command line, as `mempiler` or `python -m mempiler`: an interrupt while it is imported is one line as well."""

import os

try:
    from .cli import main
except KeyboardInterrupt:
    os.write(2, b"mempiler: stopped\n")
    os._exit(130)

if __name__ == "__main__":
    main()

"""Run the command line, as `mempiler` or `python -m mempiler`.

An interrupt during the import ends with one line, too.
"""

import os

try:
    from .cli import main
except KeyboardInterrupt:
    os.write(2, b"mempiler: stopped\n")
    os._exit(130)

if __name__ == "__main__":
    main()

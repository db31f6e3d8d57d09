"""`python -m rtts`: the same as the `rtts` command."""

import sys

from rtts.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Entry point of ``python -m ringsum.cluster``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())

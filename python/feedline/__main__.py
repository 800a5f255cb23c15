"""``python -m feedline``: what data holds, what a training run has seen, and what limits it."""

from __future__ import annotations

import signal
import sys

from . import _feedline


def main() -> int:
    """Runs the command that the program was called with; returns the exit code: 0, 1 for a difference, 2 for an error."""
    # A command runs without the interpreter, which would see Ctrl-C only at its end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _feedline.command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

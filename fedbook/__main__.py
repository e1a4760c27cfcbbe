"""The ``fedbook`` command, also as ``python -m fedbook``. Nothing heavy is imported before Ctrl-C is looked after."""

import os
import sys


def main() -> int:
    """Run the command as the process's own work; returns the exit status."""
    try:
        from fedbook import interrupts

        interrupts.catch(_leave)
        from fedbook import command

        interrupts.catch(command.leave)
    except KeyboardInterrupt:  # before it was caught
        _leave(2)
    return command.main()


def _leave(number: int) -> None:
    os.write(2, b"fedbook: interrupted\n" if number == 2 else b"fedbook: terminated\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

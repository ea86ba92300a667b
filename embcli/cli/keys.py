"""Input typed at a terminal: lines, and single keys if the system has termios."""

import os
import sys


def available() -> bool:
    """Return whether somebody can type: standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_key() -> str:
    """Return the key that is pressed, without waiting for Enter; "" at the end of input.

    Without termios it is the first character of a line. The terminal is restored however this ends.
    """
    try:
        import termios
        import tty
    except ImportError:
        typed = read_line()
        return "" if typed is None else typed[:1] or "\n"
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # keeps the keys that were pressed before
        return os.read(terminal, 1).decode("latin-1").replace("\x04", "").replace("\r", "\n")
    except OSError:  # the terminal is gone
        return ""
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def read_line() -> str | None:
    """Return the line that is typed, without its end; None at the end of input."""
    typed = sys.stdin.buffer.readline()
    return typed.decode(errors="replace").rstrip("\r\n") if typed else None

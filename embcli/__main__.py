"""`python -m embcli` is the same as `embcli`."""

from embcli.cli import run

if __name__ == "__main__":
    run()

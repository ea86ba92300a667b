"""A Typer app with as many commands as embcli has and nothing in them: what --help and completion cost at the least."""

import typer

app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)


def nothing() -> None:
    """Do nothing."""


for number in range(16):
    app.command(f"command-{number}")(nothing)

if __name__ == "__main__":
    app(prog_name="help_plain")

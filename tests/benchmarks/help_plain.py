"""embcli's commands and options as a Typer app that does nothing: what --help and completion cost at the least."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Text = Annotated[str | None, typer.Argument(help="The text; - or nothing reads standard input.")]
File = Annotated[Path | None, typer.Option("--file", help="Read the text from a file.")]
Ids = Annotated[str | None, typer.Option("--ids", help="Token IDs in place of TEXT: 2,3,5,1; - reads standard input.")]
Lines = Annotated[bool, typer.Option("--lines", help="Make each line of the input a sequence of its own.")]
Errors = Annotated[Literal["strict", "replace"], typer.Option("--errors", help="Refuse or replace bytes.")]
Encoding = Annotated[str, typer.Option("--encoding", help="tiktoken's name of an encoding or of a model (gpt-4o).")]
Special = Annotated[bool, typer.Option("--special", help="Read special tokens in the text as such.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of torch's generator.")]
Vocab = Annotated[int | None, typer.Option("--vocab", help="Rows of the token layer.")]
Dim = Annotated[int, typer.Option("--dim", help="Columns: the embedding dimension.")]
Context = Annotated[int, typer.Option("--context-length", help="Rows of the position layer.")]
Window = Annotated[bool, typer.Option("--window", help="Cut longer input into sequences of C tokens.")]
Show = Annotated[str | None, typer.Option("--show", help="Which matrices: token, position, input.")]
Rows = Annotated[str | None, typer.Option("--rows", help="Which rows: 0:5,100,50256.")]
Columns = Annotated[str | None, typer.Option("--columns", help="Which columns: 0:8,255.")]
Layer = Annotated[Literal["token", "position"], typer.Option("--layer", help="Which layer.")]
Trace = Annotated[int | None, typer.Option("--trace", help="Spell out the sum for token N, counted from 0.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep layers in the cache folder.")]
Form = Annotated[
    Literal["table", "json", "ndjson", "csv", "tsv", "npy", "safetensors", "ids"] | None,
    typer.Option("--format", "-f", help="Form of the result."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file, whole or not at all.")]
Precision = Annotated[int, typer.Option("--precision", help="Decimals in a table.")]
Color = Annotated[Literal["auto", "always", "never"], typer.Option("--color", help="Colour in a table.")]

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def main(version: bool = False) -> None:
    """Show what an embedding layer does."""


@app.command()
def tokenize(
    text: Text = None,
    file: File = None,
    ids: Ids = None,
    lines: Lines = False,
    errors: Errors = "strict",
    encoding: Encoding = "gpt2",
    special: Special = False,
    form: Form = None,
    output: Output = None,
    color: Color = "auto",
) -> None:
    """Show the tokens of a text."""


@app.command()
def decode(ids: list[str] | None = None, encoding: Encoding = "gpt2", output: Output = None) -> None:
    """Turn token IDs back into text."""


@app.command()
def weights(
    layer: Layer = "token",
    rows: Rows = None,
    columns: Columns = None,
    seed: Seed = 123,
    vocab: Vocab = None,
    dim: Dim = 256,
    context_length: Context = 1024,
    encoding: Encoding = "gpt2",
    no_cache: NoCache = False,
    form: Form = None,
    output: Output = None,
    precision: Precision = 4,
    color: Color = "auto",
) -> None:
    """Show the weight matrix of a layer."""


@app.command()
def lookup(
    text: Text = None,
    file: File = None,
    ids: Ids = None,
    lines: Lines = False,
    window: Window = False,
    errors: Errors = "strict",
    encoding: Encoding = "gpt2",
    special: Special = False,
    seed: Seed = 123,
    vocab: Vocab = None,
    dim: Dim = 256,
    context_length: Context = 1024,
    show: Show = None,
    columns: Columns = None,
    trace: Trace = None,
    no_cache: NoCache = False,
    form: Form = None,
    output: Output = None,
    precision: Precision = 4,
    color: Color = "auto",
) -> None:
    """Show the rows that tokens pick."""


@app.command()
def compare(
    text: Text = None,
    file: File = None,
    ids: Ids = None,
    encoding: Encoding = "gpt2",
    special: Special = False,
    seed: Seed = 123,
    vocab: Vocab = None,
    dim: Dim = 5,
    show: Show = None,
    trace: bool = False,
    gradient: bool = False,
    bench: bool = False,
    form: Form = None,
    output: Output = None,
    precision: Precision = 4,
    color: Color = "auto",
) -> None:
    """Show the embedding lookup and the one-hot linear layer side by side."""


@app.command()
def info(form: Form = None, output: Output = None, color: Color = "auto") -> None:
    """Show versions."""


cache = typer.Typer(rich_markup_mode=None)
app.add_typer(cache, name="cache")


@cache.callback(invoke_without_command=True)
def cache_show(form: Form = None, output: Output = None, color: Color = "auto") -> None:
    """Show where seeded layers are kept."""


@cache.command("clear")
def cache_clear() -> None:
    """Remove all kept layers."""


@cache.command("verify")
def cache_verify(form: Form = None, output: Output = None, color: Color = "auto") -> None:
    """Read all kept layers."""


if __name__ == "__main__":
    app(prog_name="help_plain")

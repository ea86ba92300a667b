"""How the steps of a tour look: the lines above the output of a command, and the words below it."""

from embcli.hints import hint
from embcli.oldpage import Page, Word
from embcli.verbs.tour import Step, as_typed
from embcli.views.parts import put_prose


def put_command(words: list[str], page: Page) -> None:
    """Put a command on the page as one would type it."""
    for place, line in enumerate(as_typed(words).split("\n")):
        page.line(Word(f"{'> ' if place else '$ '}{line}", "embedding"))


def put_words(step: Step, page: Page, given: str = "") -> None:
    """Put the words of a step on the page, after the answer to its question and whether the given one is right."""
    page.line()
    if given:
        page.line(Word("Right.", "good") if step.is_right(given) else Word(f"Not quite: {step.answer}", "bad"))
    elif step.answer is not None:
        page.line(f"The answer: {step.answer}")
    put_prose(step.words, page)


def put_next(page: Page) -> None:
    """Put commands on the page that continue after the last step: on the reader's own text, and on a real model."""
    page.line()
    page.line("Next, with a text of yours, and with a model on your disk:")
    for line in hint("next").split("\n"):
        page.line(Word(f"$ {line}", "embedding"))

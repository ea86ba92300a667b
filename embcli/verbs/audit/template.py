"""Whether the chat templates of a model are as transformers reads them: checks of files.

A template is parsed, and never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from embcli.binary import Binary, quoted
from embcli.encodings.encoding import sibling_json
from embcli.files.checkpoint import Checkpoint
from embcli.files.tensors import Tensors
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, Level, not_checked, of_names

if TYPE_CHECKING:
    from jinja2.nodes import Template

# The names of most special tokens: <|im_start|>, <start_of_turn>, </s>, <eos>.
_NAME = re.compile(
    r"<\|[\w ./-]{1,40}\|>|<(?:start|end)_of_\w{1,30}>|</?s>|<(?:bos|eos|eot|pad|unk|sep|cls|mask)>"
)

# What transformers gives to each template, and what Jinja does, besides names of special tokens.
_GIVEN = {
    *("messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"),
    *("range", "dict", "namespace", "cycler", "joiner", "lipsum"),
}


def check_names(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that each name of a special token in the chat templates is one, and bos is added once.

    Some models spell the roles of a chat by tokens of letters, and end it by a special token.
    """
    text = " ".join(templates(checkpoint.tensors))
    known = files.encoding.added if files.encoding else {}
    names = {*_NAME.findall(text)}
    ends = {known.get(token_id) for token_id in files.rows_of("eos")}
    has_end = "eos_token" in text or not names.isdisjoint(ends)
    unknown = sorted(map(quoted, names - {*known.values()}))
    if known:
        level: Level = "remark" if has_end else "finding"
        said = "names in the chat template that are no special tokens:"
        yield from of_names(level, "template", unknown, said)
    added = {*files.rows_of("bos")} & {*files.rows_of("post_processor")}
    if added and "bos_token" in text:
        said = "the chat template begins with bos, and the tokenizer adds one to each text"
        yield Finding("remark", "template", said)


def check_templates(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that no chat template is empty, is faulty, or needs what nobody gives it."""
    given = _GIVEN.union(f"{special.role}_token" for special in files.special_ids)
    for template in templates(checkpoint.tensors):
        try:
            parsed = _parse(template)
            undefined = sorted(_needed(parsed) - given)
        except ImportError:
            yield not_checked("the chat template: pip install 'embcli[transformers]'")
        except Exception as error:  # It can be nested too deeply, too.
            reason = " ".join(str(error).split())
            level: Level = "remark" if isinstance(error, ValueError) else "finding"
            yield Finding(level, "template", f"the chat template is faulty: {reason}")
        else:
            text = "nobody gives the chat template its variable"
            yield from of_names("finding", "template", undefined, text)
            for fault in _faults(parsed):
                yield Finding("finding", "template", f"the chat template {fault}")


def _faults(parsed: Template) -> Iterator[str]:
    """Yield in words what a template of a chat does, and what it does not."""
    from jinja2.nodes import Call, For, Getitem, Name, Output

    if not _reads_content(parsed):
        yield "does not read the content of messages"
    elif parsed.find(For) is None and parsed.find(Getitem):
        yield "has no loop over messages"
    always = [part for node in parsed.body if isinstance(node, Output) for part in node.nodes]
    calls = [part.node for part in always if isinstance(part, Call)]
    if any(isinstance(call, Name) and call.name == "raise_exception" for call in calls):
        yield "always raises an exception"


def _reads_content(parsed: Template) -> bool:
    """Return whether a template reads the content of messages, or writes a variable whole."""
    from jinja2.nodes import Name, Node

    words = set()
    for node in parsed.find_all(Node):
        words |= {value for _, value in node.iter_fields() if isinstance(value, str)}
        for part in getattr(node, "nodes", ()):  # of an Output
            if isinstance(part, Name) and not part.name.endswith("_token"):
                return True
    return not words.isdisjoint(("content", "tojson", "items"))


def _needed(parsed: Template) -> set[str]:
    """Return the variables that a template takes as given: it sets none, and needs no condition."""
    from jinja2.meta import find_undeclared_variables
    from jinja2.nodes import CondExpr, Filter, If, Name, Test

    names = find_undeclared_variables(parsed)
    for tested in parsed.find_all((If, CondExpr, Test, Filter)):
        names -= {name.name for name in tested.find_all(Name)}
    return names


def _parse(template: str) -> Template:
    """Return a template, parsed with the tags of transformers; raises an error of Jinja's.

    Jinja itself finds an unknown filter or test only where a template is always run.
    """
    from jinja2 import Environment, TemplateError
    from jinja2.ext import Extension
    from jinja2.nodes import Filter, Node, Test
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 - Jinja declares it so.

        def parse(self, parser: Parser) -> list[Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = Environment(extensions=[Generation, "jinja2.ext.loopcontrols"])  # noqa: S701
    parsed = environment.parse(template.strip())
    if not parsed.body:
        raise ValueError("it is empty")
    for used in parsed.find_all((Filter, Test)):
        if used.name not in {*environment.filters, *environment.tests}:
            raise TemplateError(f"no filter or test is named {used.name!r}")
    return parsed


def templates(tensors: Tensors) -> Iterator[str]:
    """Yield the chat templates in a GGUF file, and in the files beside the weights."""
    longest = 1 << 20  # bytes
    own_file = tensors.path.with_name("chat_template.jinja")
    if own_file.is_file():
        yield Binary(own_file).read(0, longest).decode("utf-8", "replace")
    stored = sibling_json(tensors.path, "tokenizer_config.json").get("chat_template")
    # There can be several with names of their own.
    listed = stored if isinstance(stored, list) else [stored]
    for each in (tensors.metadata.get("tokenizer.chat_template"), *listed):
        template = each.get("template") if isinstance(each, dict) else each
        if isinstance(template, str):
            yield template

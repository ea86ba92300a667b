"""The errors of syntax that an audit finds in chat templates are those that transformers raises."""

from __future__ import annotations

import pytest
from jinja2 import Environment, TemplateSyntaxError
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template

from embcli.verbs.audit.template import _parse

LOOP = "{%- for m in messages %}\n%s\n{%- endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0]['content'] }}",
        LOOP.replace("%s", "{% generation %}{{ m['content'] | trim }}{% endgeneration %}"),
        LOOP.replace("%s", "{% if loop.last %}{% break %}{% else %}{% continue %}{% endif %}"),
        LOOP.replace("%s", "{% set x = namespace(y=1) %}{{ m | tojson }}{{ strftime_now('%Y') }}"),
        LOOP.replace("%s", "{% generation %}{{ m }}"),
        LOOP.replace("%s", "{% endgeneration %}"),
        LOOP.replace("%s", "{{ m['content' }}"),
        LOOP.replace("%s", "{% nosuchtag %}"),
        LOOP.replace("%s", "{{ m if }}"),
        "{% for m in messages %}",
        "{{ ",
    ],
)
def test_what_transformers_cannot_parse_has_an_error(template):
    words = Tokenizer(models.WordLevel({"a": 0}, "a"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, chat_template=template)
    message = {"role": "user", "content": "a"}
    try:
        tokenizer.apply_chat_template([message], tokenize=False)
    except TemplateSyntaxError as error:
        with pytest.raises(TemplateSyntaxError, match=str(error.message).split(".")[0]):
            _parse(template)
    else:
        _parse(template)


def test_the_filters_of_templates_are_those_of_jinja():
    filters = _compile_jinja_template("").environment.filters
    assert filters.keys() == Environment().filters.keys()

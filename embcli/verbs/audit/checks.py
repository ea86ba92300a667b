"""All checks of an audit, in the order in which a page shows what they find.

A new check is a function, and a line in one of the two lists; a new kind of finding has a name in
`names.Fault`.
"""

from __future__ import annotations

from embcli.verbs.audit import adapter, beside, fit, gguf, load, rows, template, trained
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Found
from embcli.verbs.audit.matrix import MatrixAudit

# Checks of what the files of a model say; no row of tokens is read for them.
_OF_FILES = (
    load.check_index,
    beside.check_weights,
    adapter.check_adapter,
    beside.check_vocabularies,
    fit.check_positions,
    fit.check_tokenizer,
    fit.check_config,
    fit.check_vocab_size,
    fit.check_head,
    fit.check_special_ids,
    fit.check_end,
    fit.check_roles,
    template.check_names,
    template.check_templates,
    fit.check_words,
    gguf.check_gguf,
)
# Checks of the rows of the token matrix, and of a head of its own; a matrix knows its files.
_OF_MATRICES = (
    rows.check_broken,
    rows.check_constant,
    rows.check_dtype,
    rows.check_equal,
    rows.check_candidates,
    trained.check_untrained,
    trained.check_initial,
    trained.check_outliers,
    trained.check_scale,
)


def found_in_files(files: ModelFiles) -> Found:
    """Yield what the checks find; raises InputError for a file that cannot be read."""
    yield from fit.check_sizes(files)
    if files.checkpoint is not None:
        for check in _OF_FILES:
            yield from check(files.checkpoint, files)


def found_in_matrix(matrix: MatrixAudit) -> Found:
    for check in _OF_MATRICES:
        yield from check(matrix)

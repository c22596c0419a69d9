"""Keeps secrets out of everything that leaves a call: results, events, logs, approval prompts.

    tokens.py    secrets known by their own shape: vendors' tokens, keys, passwords in URLs
    values.py    secrets known by what stands before them: headers, parameters, flags, assignments
    names.py     which names hold secrets
    pattern.py   expressions an operator adds
    masking.py   what is shown instead
    redactor.py  all of it together, over texts and JSON values

What none of it can do: find a secret without a known shape, name or value, one that was transformed
(reversed, encrypted, written in hex), or one that is broken over several lines.

Expressions run in linear time over hostile text: repeats are possessive or bounded, and where a
match is not masked after all, what it looked at is bounded too.
"""

from clawkit.redact.masking import MASK, mask
from clawkit.redact.names import is_secret_name, is_secret_setting
from clawkit.redact.pattern import compile_pattern
from clawkit.redact.redactor import Redactor

__all__ = [
    "MASK",
    "Redactor",
    "compile_pattern",
    "is_secret_name",
    "is_secret_setting",
    "mask",
]

"""Keeps secrets out of everything that leaves a call: results, events, logs, approval prompts.

What none of it can do: find a secret without a known shape, name or value, one that was transformed
(reversed, encrypted, written in hex), or one that is broken over several lines.

Expressions run in linear time over hostile text: repeats are possessive or bounded, and where a
match is not masked after all, what it looked at is bounded too.
"""

from clawkit.redact.masking import MASK, is_secret_name, is_secret_setting, mask
from clawkit.redact.redactor import Redactor, compile_pattern

__all__ = [
    "MASK",
    "Redactor",
    "compile_pattern",
    "is_secret_name",
    "is_secret_setting",
    "mask",
]

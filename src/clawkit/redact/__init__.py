"""Keeps secrets out of everything that leaves a call: results, events, logs, approval prompts.

It cannot find secrets without a known shape, name or value, transformed ones (reversed, encrypted,
in hex), or ones broken over several lines.

Regular expressions run in linear time on hostile text: repeats are possessive or bounded, and where
a match is discarded, the text it examined is bounded too.
"""

from clawkit.redact.masking import MASK, header_secrets, is_secret_name, is_secret_setting, mask
from clawkit.redact.redactor import Redactor, compile_pattern

__all__ = [
    "MASK",
    "Redactor",
    "compile_pattern",
    "header_secrets",
    "is_secret_name",
    "is_secret_setting",
    "mask",
]

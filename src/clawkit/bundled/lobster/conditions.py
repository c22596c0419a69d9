"""References to the results of earlier steps, and the conditions of steps."""

from __future__ import annotations

import re

from clawkit.bundled.lobster import values as v
from clawkit.bundled.lobster.values import PipelineError, Value

Args = dict[str, Value]
Results = dict[str, dict[str, Value]]
"""The result of each step, by its id."""
MAX_CONDITION = 1_000
_REF = r"\$([A-Za-z0-9_-]+)\.([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)"
_TOKEN = re.compile(
    rf"""\s*(?:{_REF}|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"""|(-?[0-9]+(?:\.[0-9]+)?|[A-Za-z_][\w-]*)|(&&|\|\||[=!<>]=|[<>!()]))\s*"""
)
_BINDING = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3}
"""Operator precedence."""


def fill(text: Value, args: Args, results: Results, ledger: v.Ledger) -> Value:
    """A text with `${arg}` and `$step.path` replaced. Unknown references and values that are not
    text stay unchanged."""

    def of_step(match: re.Match[str]) -> str:
        if match[1] not in results:
            return match[0]
        value = v.get_path(results[match[1]], match[2])
        is_flag = value is v.MISSING and match[2] in ("approved", "skipped")
        return "false" if is_flag else ledger.text_of(value)

    def of_args(match: re.Match[str]) -> str:
        return ledger.text_of(args[match[1]]) if match[1] in args else match[0]

    if not isinstance(text, str):
        return text
    return re.sub(_REF, of_step, re.sub(r"\$\{([A-Za-z0-9_-]+)\}", of_args, text))


def value_of(template: Value, args: Args, results: Results, ledger: v.Ledger) -> Value:
    """The value of `stdin` or `for_each`: that of a reference, a filled text, or the given
    value."""
    found = re.fullmatch(_REF, template.strip()) if isinstance(template, str) else None
    if found:
        value = _refer(found[1], found[2], results)
        return None if value is v.MISSING else value
    return fill(template, args, results, ledger)


def _refer(step: str, path: str, results: Results) -> Value:
    if step not in results:
        raise PipelineError(f"Unknown step reference: {step}.{path}")
    return v.get_path(results[step], path)


def holds(condition: str | bool | None, results: Results) -> bool:
    """Whether a condition is true. Raises `PipelineError` if it is invalid."""
    if not isinstance(condition, str):
        return condition is not False
    unsupported = PipelineError(f"Unsupported condition: {condition[:MAX_CONDITION]}")
    found = list(_TOKEN.finditer(condition[:MAX_CONDITION]))
    tokens = [each.groups("") for each in reversed(found)]
    try:
        value = _evaluate(tokens, results, 1)
    except (LookupError, RecursionError):
        raise unsupported from None
    if tokens or "".join(each[0] for each in found) != condition:
        raise unsupported
    return v.is_true(value)


def _evaluate(tokens: list[tuple[str, ...]], results: Results, least: int) -> Value:
    """Parse an operand and following operators with at least precedence `least`. Raises LookupError
    if the tokens are not a condition."""
    value = _operand(tokens, results, is_word_text=least > max(_BINDING.values()))
    while tokens and _BINDING.get(tokens[-1][4], 0) >= least:
        sign = tokens.pop()[4]
        other = _evaluate(tokens, results, _BINDING[sign] + 1)
        if sign in ("||", "&&"):
            pair = (v.is_true(value), v.is_true(other))
            value = any(pair) if sign == "||" else all(pair)
        elif sign in ("==", "!="):
            value = (v.identity(value) == v.identity(other)) == (sign == "==")
        else:
            value = all(map(_is_numeric, (value, other))) and v.compare(
                v.to_number(value), sign, other
            )
    return value


def _is_numeric(value: Value) -> bool:
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    return is_number and v.to_text(value).strip() != ""


def _operand(tokens: list[tuple[str, ...]], results: Results, *, is_word_text: bool) -> Value:
    step, path, quoted, word, sign = tokens.pop()
    if sign == "!":
        return not v.is_true(_operand(tokens, results, is_word_text=is_word_text))
    if sign == "(":
        value = _evaluate(tokens, results, 1)
        if not tokens or tokens.pop()[4] != ")":
            raise LookupError
        return value
    if step:
        return _refer(step, path, results)
    value = re.sub(r"\\(.)", r"\1", quoted[1:-1]) if quoted else v.read_word(word)
    if sign or (isinstance(value, str) and not quoted and not is_word_text):
        raise LookupError  # a bare word is text only after a comparison
    return value

"""Changes commands slightly, so that some are still understood and others are not."""

from __future__ import annotations

import random
import re

CHARS = "'\"\\$`{}()[]<>|&;#~*?!=%^-+_/.,:@ \t\n0129aAx"
FOREIGN = (
    *("\u00a0", "\u3000", "\u2003", "\u2028", "\u200b", "\u202e", "\ufeff", "\u0085", "é", "日"),
    *("\r", "\x0b", "\x0c", "\x01", "\x1b", "\x7f", "\x08", "\u00b4", "\uff04", "\uff1b", "ソ"),
    *("\ud800",),
)
TOKENS = (
    *("&&", "||", "|&", ";;", "<<<", "<<'E'", "<<-", "$(", "${", "$'", '$"', "((", "))", "[["),
    *("]]", "if", "then", "fi", "do", "done", "{ ", "; }", "\\\n", "#", " #", "\\ ", "! "),
    *("time ", "-p", "2>&1", "&>", ">|", ">&", "<&", "2>", "1<", "--", "=", "A=1 ", "+=", "''"),
    *('""', "\\\\", "\\'", "in ", "for ", "case ", "esac", "else ", "()", "() {", "\nE\n", "<("),
    *("`", "$x", "${x}", "~/", "*/", "ls", " ls ", "\nls\n", ";ls;", "|cat", "exec ", "command "),
    *("sh -c ", "env ", "cd ", "..", "/", "&"),
)
_TOKEN = re.compile(r"\s+|\w+|[<>&|;()]+|[^\w\s]")


def mutate(text: str, rng: random.Random) -> str:
    """A text with one or several changes."""
    for _ in range(rng.choices((1, 2, 3, 6), (60, 25, 10, 5))[0]):
        text = _change(text, rng)
    return text


def _change(text: str, rng: random.Random) -> str:
    kind = rng.random()
    at = rng.randint(0, len(text))
    if kind < 0.30:
        return text[:at] + rng.choice(CHARS) + text[at:]
    if kind < 0.34:
        return text[:at] + rng.choice(FOREIGN) + text[at:]
    if kind < 0.50:
        return text[:at] + rng.choice(TOKENS) + text[at:]
    if kind < 0.68:
        return text[:at] + text[at + rng.choice((1, 1, 1, 2, 5)) :]
    if kind < 0.74:
        return text[:at] + text[at : at + 1] + text[at:]
    if kind < 0.80:
        return text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
    if kind < 0.86:
        return text[:at] + rng.choice(CHARS) + text[at + 1 :]
    return _change_tokens(text, rng)


def _change_tokens(text: str, rng: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    if len(tokens) < 2:
        return text + rng.choice(CHARS)
    one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    match rng.randrange(3):
        case 0:
            tokens[one], tokens[other] = tokens[other], tokens[one]
        case 1:
            tokens.insert(other, tokens[one])
        case _:
            del tokens[one]
    return "".join(tokens)

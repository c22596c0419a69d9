"""What a command was read as, in a form that two readers can be compared by."""

from __future__ import annotations

from clawkit.approvals.shell_words import (
    BraceGroup,
    Command,
    CommandChain,
    CommandList,
    For,
    If,
    LiteralText,
    Pipeline,
    Redirect,
    Simple,
    Tilde,
    Variable,
    Wildcard,
    Word,
)


def show_word(word: Word) -> str:
    """`‹*›` is a pattern, `‹$x›` a variable and `‹"$x"›` a quoted one, `‹~›` the home directory."""
    shown = ""
    for part in word.parts:
        match part:
            case LiteralText(value):
                shown += value
            case Wildcard(value):
                shown += f"‹{value}›"
            case Tilde():
                shown += "‹~›"
            case Variable(name, quoted):
                shown += f'‹"${name}"›' if quoted else f"‹${name}›"
    return shown or "''"


def show_redirect(redirect: Redirect) -> str:
    fd = "" if redirect.fd is None else redirect.fd
    target = repr(redirect.body) if redirect.target is None else show_word(redirect.target)
    return f"{fd}{redirect.operator}{target}"


def show_script(script: CommandList) -> str:
    return "; ".join(map(_show_chain, script.chains))


def _show_chain(chain: CommandChain) -> str:
    rest = (f" {operator} {_show_pipeline(pipeline)}" for operator, pipeline in chain.rest)
    return _show_pipeline(chain.first) + "".join(rest)


def _show_pipeline(pipeline: Pipeline) -> str:
    shown = f"{pipeline.timed} ".lstrip() + "! " * pipeline.negated
    shown += _show_command(pipeline.commands[0])
    for both, command in zip(pipeline.errors, pipeline.commands[1:], strict=True):
        shown += (" |& " if both else " | ") + _show_command(command)
    return shown


def _show_command(command: Command) -> str:
    match command:
        case Simple(assignments, words):
            set_first = [f"{each.name}:={show_word(each.value)}" for each in assignments]
            shown = "·".join([*set_first, *map(show_word, words)])
        case BraceGroup(body, subshell=True):
            shown = f"({show_script(body)})"
        case BraceGroup(body):
            shown = f"{{{show_script(body)}}}"
        case If(branches, otherwise):
            shown = " else ".join(f"if {show_script(a)} then {show_script(b)}" for a, b in branches)
            shown += f" else {show_script(otherwise)} fi" if otherwise else " fi"
        case For(name, words, body):
            shown = f"for {name} in {'·'.join(map(show_word, words))} do {show_script(body)} done"
    return " ".join([shown, *map(show_redirect, command.redirects)]).strip()

"""Generates commands: mostly ordinary, many unusual, all close to what the parser supports."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from bench.shellproof_mutate import mutate
from bench.shellproof_parts import (
    ASSIGNS,
    BRACES,
    BUILTINS,
    FOLDERS,
    JOINED,
    LOOPS,
    NUMBERS,
    ODD,
    ONCE,
    OPENINGS,
    OPERATORS,
    PATTERNS,
    PLAIN,
    STRANGE,
    TARGETS,
    TILDES,
    TIMES,
    WILD,
    WILD_COMMANDS,
    WORDS,
)


class Maker:
    """Generates commands; the same seed gives the same ones."""

    def __init__(self, root: str, seed: int, understood: Callable[[str], bool]) -> None:
        """`understood` tells whether the analysis understands a command. Most commands consist only
        of parts that it understands, because otherwise hardly any long one would be understood."""
        self._root = root
        self._random = random.Random(seed)
        self._understood = understood
        self._tame = False
        self._tamed: dict[tuple[str, Sequence[str]], Sequence[str]] = {}
        self._bodies: list[str] = []
        self._names: list[str] = []
        """Variables of the loops around."""

    def command(self) -> str:
        self._bodies.clear()
        self._names.clear()
        self._tame = self._chance(0.75)
        text = self._script(0)
        if self._chance(0.1):
            text += self._pick((" ", "\n", ";", " # end", "\n\n", " ;", "\t", "\\\n", "&"))
        text = self._flush(text)
        return mutate(text, self._random) if self._chance(0.5) else text

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, choices: Sequence[str]) -> str:
        return self._random.choice(choices)

    def _part(self, choices: Sequence[str], usage: str = "probe {}") -> str:
        """One of many parts; a command that uses it is usually still understood."""
        if not self._tame or self._chance(0.02):
            return self._pick(choices)
        key = (usage, choices)
        tamed = self._tamed.get(key)
        if tamed is None:
            tamed = [each for each in choices if self._understood(usage.replace("{}", each))]
            self._tamed[key] = tamed = tamed or choices
        return self._pick(tamed)

    def _flush(self, text: str) -> str:
        """The line, followed by the here-documents that began on it."""
        if not self._bodies:
            return text
        text += "\n" + "".join(self._bodies)
        self._bodies.clear()
        return text

    def _gap(self) -> str:
        return " " if self._chance(0.9) else self._pick(("  ", "\t", " \t ", "\\\n", " \\\n  "))

    def _script(self, depth: int) -> str:
        count = self._random.choices((1, 2, 3, 4), (55, 25, 15, 5))[0]
        text = self._chain(depth)
        for _ in range(count - 1):
            text += self._end() + self._chain(depth)
        return text

    def _end(self) -> str:
        """A separator of two commands."""
        if self._bodies and self._chance(0.9):
            return self._flush("")
        end = self._pick(
            (";", ";", "; ", "; ", " ; ", "\n", "\n", ";\n", " # note\n", "\n# note\n")
        )
        if "\n" in end and self._bodies:
            return end.rstrip("\n") + self._flush("")
        return end

    def _chain(self, depth: int) -> str:
        text = self._pipeline(depth)
        while self._chance(0.25):
            operator = self._pick(("&&", "||"))
            around = self._pick((" ", " ", " ", "", "\t"))
            after = "\n" if self._chance(0.05) and not self._bodies else around
            text += f"{around}{operator}{after}{self._pipeline(depth)}"
        return text

    def _pipeline(self, depth: int) -> str:
        text = self._element(depth)
        if self._chance(0.06):
            text = self._part(TIMES, "{}probe") + text
        while self._chance(0.2):
            operator = self._pick(("|", " | ", " | ", " | ", " |& ", "|&", "| "))
            text += operator + self._element(depth)
        return text

    def _element(self, depth: int) -> str:
        if depth < 3 and self._chance(0.16):
            kind = self._random.choice((self._subshell, self._group, self._if, self._for))
            text = kind(depth + 1)
            if self._chance(0.15):
                text += self._gap() + self._redirect()
            return text
        if self._chance(0.002 if self._tame else 0.04):
            return self._pick(WILD_COMMANDS)
        return self._pick(ONCE) if self._chance(0.02) else self._simple(depth)

    def _subshell(self, depth: int) -> str:
        inner = self._script(depth)
        return f"( {inner} )" if self._chance(0.4) else f"({inner})"

    def _group(self, depth: int) -> str:
        return f"{{ {self._script(depth)}{self._closing()}}}"

    def _closing(self) -> str:
        if self._bodies:
            return self._flush("")
        return self._pick(("; ", ";", "\n", " ;", ";\n"))

    def _if(self, depth: int) -> str:
        text = (
            f"if {self._script(depth)}{self._closing()}then {self._script(depth)}{self._closing()}"
        )
        while self._chance(0.2):
            text += f"elif {self._script(depth)}{self._closing()}then\n{self._script(depth)}"
            text += self._closing()
        if self._chance(0.4):
            text += f"else {self._script(depth)}{self._closing()}"
        return text + "fi"

    def _for(self, depth: int) -> str:
        name = self._part(LOOPS, "for {} in a; do probe; done")
        words = [
            self._pick(PLAIN) if self._chance(0.3) else self._word()
            for _ in range(self._random.randint(0, 3))
        ]
        self._names.append(name)
        body = self._script(depth) + self._closing()
        self._names.pop()
        do = self._pick(("; do ", "\ndo ", ";do ", "; do\n"))
        return f"for {name} in {' '.join(words)}{do}{body}done"

    def _simple(self, depth: int) -> str:
        kinds: tuple[Callable[[int], str], ...] = (
            self._program,
            self._builtin,
            self._cd,
            self._wrapped,
            self._shell,
        )
        words = self._random.choices(kinds, (60, 20, 8, 13, 7))[0](depth)
        parts = [words]
        if self._chance(0.07):
            parts.insert(0, self._part(ASSIGNS, "{} probe"))
            if self._chance(0.2):
                parts.pop()
        while self._chance(0.13):
            parts.insert(self._random.randint(0, len(parts)), self._redirect())
        return self._gap().join(parts)

    def _program(self, _depth: int) -> str:
        return self._gap().join((self._name(), *self._arguments()))

    def _arguments(self) -> list[str]:
        return [self._word() for _ in range(self._random.choices((0, 1, 2, 3), (3, 4, 2, 1))[0])]

    def _name(self) -> str:
        kind = self._random.random()
        if kind < 0.6:
            name = self._pick(PLAIN)
            return name if self._chance(0.8) else self.quote(name)
        if kind < 0.8:
            return self.quote(self._part(ODD, "'{}'"))
        if kind < 0.94:
            return self.quote(self._part(STRANGE, "{}"), plain=0.7)
        if kind < 0.96 or (self._names and kind < 0.98):
            return self._word()
        return self.quote(f"{self._root}/{self._pick(('bin', 'more', 'ws'))}/{self._pick(PLAIN)}")

    def _builtin(self, _depth: int) -> str:
        text = self._part(BUILTINS, "{}")
        return f"{text} {self._word()}" if self._chance(0.1) else text

    def _cd(self, depth: int) -> str:
        text = "cd " + self._part(FOLDERS, "cd {}")
        if self._chance(0.5):
            text += f"{self._pick((' && ', ' && ', '; ', ' || '))}{self._simple(depth)}"
        return text

    def _wrapped(self, depth: int) -> str:
        name = self._pick(tuple(OPENINGS))
        shown = name if self._chance(0.85) else self.quote(name)
        opening = self._part(OPENINGS[name], f"{name} {{}} probe")
        if self._chance(0.5):
            opening = OPENINGS[name][0]
        kinds = (self._program, self._builtin, self._wrapped, self._shell)
        inner = self._random.choices(kinds, (70, 8, 15, 7))[0](depth)
        return " ".join(filter(None, (shown, opening, inner)))

    def _shell(self, depth: int) -> str:
        shell = self._pick(("sh", "bash", "sh", "bash", "dash", "/bin/sh"))
        if depth > 2 or self._chance(0.05):
            return f"{shell} {self._word()}"
        bodies, self._bodies = self._bodies, []
        names, self._names = self._names, []
        inner = self._flush(self._script(depth + 1))
        self._bodies, self._names = bodies, names
        flag = (
            "-c"
            if self._tame or self._chance(0.9)
            else self._pick(("-ec", "-c --", "-lc", "-xc", "+c", ""))
        )
        more = "" if self._tame or self._chance(0.9) else f" {self._word()}"
        return f"{shell} {flag} {self.quote(inner, plain=0)}{more}"

    def _redirect(self) -> str:
        kind = self._random.random()
        if kind < 0.3:
            return self._part(JOINED)
        if kind < 0.4:
            return f"<<<{self._pick(('', ' '))}{self._word()}"
        if kind < 0.6:
            return self._here_document()
        number = self._part(NUMBERS, "probe {}>x")
        operator = self._part(OPERATORS, f"probe {number}{{}}a.txt")
        target = self._part(TARGETS, "probe >{}")
        return number + operator + self._pick(("", " ")) + target

    def _here_document(self) -> str:
        name = self._pick(("E", "EOF", "END", "x-y"))
        tabs = self._chance(0.3)
        lines = [
            self._pick((*WORDS, "$x", "$(ls)", name + "x", f" {name}", "ls; cat", "\\", "\t x"))
        ]
        lines += [self._pick(WORDS) for _ in range(self._random.randint(0, 2))]
        body = "".join(("\t" if tabs and self._chance(0.5) else "") + each + "\n" for each in lines)
        if self._chance(0.1):
            body = ""
        self._bodies.append(f"{body}{name}\n")
        shown = self._pick((f"'{name}'", f"'{name}'", f'"{name}"', f"\\{name}"))
        return f"<<{'-' if tabs else ''}{self._pick(('', '', ' '))}{shown}"

    def _word(self) -> str:
        kind = self._random.random()
        if self._names and kind < 0.4:
            name = self._pick(self._names)
            forms = (f"${name}", f'"${name}"', f"${{{name}}}", f'"x${{{name}}}y"', f"a${name}")
            return self._pick((*forms, f'"${name}"', f"'${name}'", f"\\${name}", f"${name}z"))
        if kind < 0.85:
            return self.quote(self._pick(WORDS))
        if kind < 0.9:
            return self._part(PATTERNS)
        if kind < 0.94:
            return self._part(BRACES)
        if kind < 0.97:
            return self._part(TILDES)
        return (
            self._pick(WILD)
            if self._chance(0 if self._tame else 0.5)
            else self._word() + self._word()
        )

    def quote(self, text: str, plain: float = 0.3) -> str:
        """One of the ways to quote a text; sometimes one with another meaning."""
        if self._chance(plain) and not set(text) & set(" \t\n'\"\\`$(){}[]<>|&;*?"):
            return text or "''"
        style = self._random.random()
        if style < 0.45 and "'" not in text:
            return f"'{text}'"
        if style < 0.65:
            return '"' + "".join(f"\\{c}" if c in '\\"$`' else c for c in text) + '"'
        if style < 0.75 and "\n" not in text and text:
            return "".join(c if c.isalnum() or not c.isascii() else f"\\{c}" for c in text)
        if style < 0.87:
            escapes = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
            return "$'" + "".join(escapes.get(c, c) for c in text) + "'"
        if style < 0.97 and len(text) > 1:
            at = self._random.randint(1, len(text) - 1)
            joint = self._pick(("", "", "", "''", '""', "\\\n"))
            return self.quote(text[:at], plain) + joint + self.quote(text[at:], plain)
        return "'" + text.replace("'", "'\\''") + "'"

"""Where generated commands run: harmless programs under many names, files, links, environments."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from bench.shellproof_inside import build_tree

PROBE = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Says its name and how much it was given, and copies what it reads. What it asks the kernel for
   tells a tracer where it was started and what its standard input is. */
int main(int argc, char **argv) {
    char buffer[4096];
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    signal(SIGPIPE, SIG_IGN);
    if (!getcwd(buffer, sizeof buffer) || readlink("/proc/self/fd/0", buffer, sizeof buffer) < 0)
        buffer[0] = 0;
    int used = snprintf(buffer, sizeof buffer, "%s %d\n", name, argc);
    if (write(1, buffer, used) < 0) return 9;
    for (int i = 0; i < 32; i++) {
        ssize_t got = read(0, buffer, sizeof buffer);
        if (got <= 0 || write(1, buffer, got) < 0) break;
    }
    return strncmp(name, "no", 2) == 0 || strcmp(name, "false") == 0;
}
"""


def names(text: str) -> tuple[str, ...]:
    """The words of a text, for tables."""
    return tuple(text.split())


KEPT = ("bin", "more", "posix", "locale")
"""Directories that no command can change."""
PROBES = (
    *names("ls cat grep git make wc head sort tee rm touch find a b foo probe no nope"),
    *names("echo printf test [ true false pwd cd : command exec export set exit eval source"),
    *names("if then else elif fi for in do done while case esac function time { } ! [[ ]]"),
    *("we ird", "-x", "--", "a=b", "x+=1", "~", "*", "a*", "#c", "a#b", "{a,b}", "{}", "a,b", "2"),
    *("é", "a\u00a0b", "\u3000", "$x", "a'b", 'a"b', "a\\b", "a\nb", "~b", "b~", "!x", "%", "a;b"),
    *("a&b", "a|b", "a>b", "(a", "a)", "`a`", "?", "+", "@", "^", "A", "$", "a$", "]", "_"),
)
LATER = ("later", "plain", "folder", "ls", "both")
WRAPPERS = ("timeout", "env", "nice", "nohup", "stdbuf", "sh", "bash", "dash")
LOCALES = (("zh_CN", "GBK"), ("ja_JP", "SHIFT_JIS"), ("zh_TW", "BIG5"), ("zh_CN", "GB18030"))
FILES = {
    "ws/a.txt": "alpha\n",
    "ws/b.txt": "beta\n",
    "ws/c.md": "gamma\n",
    "ws/sp ace.txt": "delta\n",
    "ws/-x": "option\n",
    "ws/[": "bracket\n",
    "ws/ü.txt": "epsilon\n",
    "ws/sub/a.txt": "sub\n",
    "ws/sub/deep/b.txt": "deep\n",
    "home/notes": "notes\n",
    "home/.bashrc": "probe rc-was-read\n",
    "home/.profile": "probe profile-was-read\n",
    "home/h *me/notes": "other notes\n",
}
TOOLS = ("ws/tool", "ws/sub/tool", "ws/sub/deep/tool", "home/tool")
LINKS = {
    "ws/link": "sub/deep",
    "ws/up": "..",
    "ws/loop": "loop",
    "ws/gone": "nowhere",
    "ws/to-a": "a.txt",
    "ws/sub/ls": "../../bin/ls",
}


class Scene(NamedTuple):
    """Where a command runs."""

    cwd: str
    env: dict[str, str]
    assigned: tuple[str, ...] = ()


class Place:
    """A directory with everything that commands find. No command runs in the original: each sandbox
    has its own copy at the same path."""

    def __init__(self, root: Path, *, foreign: bool = False) -> None:
        """`foreign` adds locales with other encodings; creating them takes some seconds."""
        self.root = os.path.realpath(root)
        bin_ = Path(self.root, "bin")
        bin_.mkdir(parents=True)
        for name in KEPT[1:]:
            Path(self.root, name).mkdir()
        # Bash follows other rules when it is called by this name.
        os.symlink("/bin/bash", f"{self.root}/posix/sh")
        self.probe = str(bin_ / "probe")
        _compile(self.probe)
        for name in PROBES:
            if name != "probe":
                os.link(self.probe, bin_ / name)
        for name in LATER:
            os.link(self.probe, f"{self.root}/more/{name}")
        for name in WRAPPERS:
            found = shutil.which(name, path="/usr/bin:/bin")
            if found is None:
                raise FileNotFoundError(f"{name} is in neither /usr/bin nor /bin")
            os.symlink(found, bin_ / name)
        self._add_oddities(bin_)
        build_tree(self.root, self.tree())
        self.scenes = self._make_scenes(self._foreign() if foreign else [])

    def _add_oddities(self, bin_: Path) -> None:
        """Add scripts, and files that only look like programs."""
        scripts = {
            "script": f"#!{self.probe} -z\n",
            "spaced": f"#! \t{self.probe}\t-z  y \n",
            "twice": f"#!{bin_}/script\n",
            "byenv": "#!/usr/bin/env probe\n",
            "headless": "# nothing\n",
            "empty": "",
            "lost": "#!/nowhere/at/all\n",
            "windows": f"#!{self.probe}\r\n",
        }
        for name, text in scripts.items():
            (bin_ / name).write_text(text, encoding="ascii", newline="")
            (bin_ / name).chmod(0o755)
        (bin_ / "plain").write_text("not to be run\n", encoding="ascii")
        (bin_ / "folder").mkdir()
        for name, target in {"also": "ls", "broken": "nowhere", "loop": "loop"}.items():
            os.symlink(target, bin_ / name)

    def tree(self) -> dict[str, dict[str, str]]:
        """The directory that commands may change."""
        return {"files": FILES, "tools": dict.fromkeys(TOOLS, self.probe), "links": LINKS}

    def _make_scenes(self, foreign: list[dict[str, str]]) -> list[Scene]:
        root = self.root
        ws = f"{root}/ws"
        base = {"PATH": f"{root}/bin:{root}/more", "HOME": f"{root}/home"}
        utf8 = {**base, "LANG": "C.UTF-8"}
        posix = {**utf8, "PATH": f"{root}/posix:{root}/bin:{root}/more"}
        rest = {"IFS": "sx.", "ENV": f"{root}/home/.profile", "PS4": "$(probe)", "A-B": "x"}
        odd = f"{root}/bin/:/nowhere:{root}/bin/..//./more/.:{root}/bin/plain"
        return [
            *[Scene(ws, utf8)] * 6,
            *[Scene(ws, base)] * 2,
            Scene(ws, {**base, "LC_ALL": "C", "A": "from outside", "v": "outer", "USER": "x"}),
            Scene(ws, {**utf8, "A": "given", "HOME": f"{root}/home/h *me"}, ("A",)),
            Scene(f"{ws}/sub", utf8),
            Scene(f"{ws}/link", {**utf8, "PWD": f"{ws}/link"}),
            Scene(f"{ws}/link", utf8),
            Scene(ws, {**utf8, "PATH": odd, "OLDPWD": f"{root}/home"}),
            *[Scene(ws, posix)] * 2,
            Scene(ws, {**utf8, **rest, "CDPATH": f"{root}/home", "PWD": f"{root}/home"}),
            Scene(ws, {**base, "HOME": "sub", "PATH": f":{base['PATH']}"}),
            Scene(ws, {"LANG": "C.UTF-8"}),
            *[Scene(ws, {**base, **each}) for each in foreign],
        ]

    def _foreign(self) -> list[dict[str, str]]:
        """Locales whose characters can contain bytes that have a meaning in a shell, as far as they
        can be created."""
        found: list[dict[str, str]] = []
        if shutil.which("localedef") is None:
            return found
        for language, charset in LOCALES:
            name = f"{language}.{charset}"
            args = ["localedef", "-c", "-f", charset, "-i", language]
            target = f"{self.root}/locale/{name}"
            subprocess.run([*args, target], capture_output=True, check=False)
            # It exits with 1 after a warning.
            if os.path.exists(target):
                found.append({"LOCPATH": f"{self.root}/locale", "LC_ALL": name})
        return found


def _compile(target: str) -> None:
    args = ["cc", "-O1", "-x", "c", "-o", target, "-"]
    for more in (["-static"], []):
        done = subprocess.run(
            [*args, *more], input=PROBE, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
    raise RuntimeError(f"the probe cannot be compiled: {done.stderr}")

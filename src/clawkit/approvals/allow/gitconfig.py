"""The settings of a git repository that start programs, or lead elsewhere."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from clawkit.text import one_line, printable


class Setting(NamedTuple):
    """One line of a settings file."""

    section: str
    """In lower case."""
    name: str
    """What stands in quotes behind the section."""
    key: str
    """In lower case."""
    value: str | None
    """None for a key alone, which means true."""

    @property
    def shown(self) -> str:
        parts = (self.section, self.name, self.key) if self.name else (self.section, self.key)
        return one_line(printable(".".join(parts), keep=""), 80)


STARTS = "its repository's settings start a program"
_LEADS = "its repository's settings take in another file"
_ELSEWHERE = "its repository's files are kept elsewhere"
_UNKNOWN = "its repository's settings have one that is not known to be harmless"

# Keys whose values are run, whatever they are. Names in quotes make no difference here.
_RUN: dict[str, frozenset[str]] = {
    section: frozenset(keys.split())
    for section, keys in {
        "browser": "cmd path",
        "core": "alternaterefscommand askpass editor gitproxy hookspath sshcommand "
        "virtualfilesystem",
        "diff": "command external textconv",
        "difftool": "cmd path",
        "filter": "clean process smudge",
        "gc": "recentobjectshook",
        "gpg": "defaultkeycommand program",
        "guitool": "cmd",
        "help": "browser",
        "hook": "command",
        "imap": "tunnel",
        "init": "templatedir",
        "instaweb": "browser httpd",
        "interactive": "difffilter",
        "lfs": "clean path smudge",
        "man": "cmd path",
        "merge": "driver",
        "mergetool": "cmd path",
        "remote": "receivepack uploadpack vcs",
        "sendemail": "cccmd headercmd sendmailcmd smtpserver tocmd",
        "sequence": "editor",
        "tar": "command",
        "trailer": "cmd command",
        "uploadpack": "packobjectshook",
        "web": "browser",
    }.items()
}
# Everything else is in doubt: there are settings that write files, or send them elsewhere. `*` is
# for sections in which nothing but what is named above does anything.
_HARMLESS: dict[str, frozenset[str]] = {
    section: frozenset(keys.split())
    for section, keys in {
        "core": "abbrev autocrlf bare bigfilethreshold checkstat commentchar commitgraph "
        "compression createobject deltabasecachelimit eol filemode fscache hidedotfiles ignorecase "
        "ignorestat logallrefupdates longpaths loosecompression multipackindex notesref "
        "packedgitlimit packedgitwindowsize precomposeunicode preloadindex protecthfs "
        "protectntfs quotepath repositoryformatversion safecrlf sharedrepository "
        "sparsecheckout sparsecheckoutcone splitindex symlinks trustctime untrackedcache "
        "whitespace",
        "author": "email name",
        "committer": "email name",
        "user": "email name signingkey useconfigonly",
        "branch": "autosetupmerge autosetuprebase description gh-merge-base "
        "github-pr-base-branch github-pr-owner-number merge pushremote rebase remote sort "
        "vscode-merge-base",
        "remote": "fetch gh-resolved lfsurl mirror partialclonefilter promisor prune prunetags "
        "push pushdefault skipdefaultupdate skipfetchall tagopt",
        "submodule": "active alternateerrorstrategy alternatelocation branch fetchjobs "
        "fetchrecursesubmodules ignore recurse shallow",
        "blame": "blankboundary coloring date markignoredlines markunblamablelines showemail "
        "showroot",
        "checkout": "defaultremote guess thresholdforparallelism workers",
        "clone": "defaultremotename filtersubmodules rejectshallow",
        "commit": "cleanup gpgsign status verbose",
        "credential": "usehttppath username",
        "diff": "algorithm binary cachetextconv colormoved colormovedws context dirstat dstprefix "
        "funcname ignoresubmodules indentheuristic interhunkcontext mnemonicprefix noprefix "
        "relative renamelimit renames srcprefix statgraphwidth statnamewidth submodule "
        "suppressblankempty wordregex wserrorhighlight xfuncname",
        "fetch": "all fsckobjects negotiationalgorithm output parallel prune prunetags "
        "recursesubmodules showforcedupdates unpacklimit writecommitgraph",
        "filter": "required",
        "format": "cc from pretty signoff subjectprefix thread to",
        "gpg": "format",
        "grep": "column extendedregexp fullname linenumber patterntype threads",
        "http": "extraheader lowspeedlimit lowspeedtime maxrequests postbuffer useragent version",
        "i18n": "commitencoding logoutputencoding",
        "init": "defaultbranch defaultobjectformat",
        "interactive": "singlekey",
        "lfs": "access allowincompletepush batch concurrenttransfers fetchexclude fetchinclude "
        "locksverify repositoryformatversion skipdownloaderrors url",
        "log": "abbrevcommit date decorate diffmerges follow initialdecorationset mailmap showroot",
        "merge": "autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff log "
        "name recursive renamelimit renames renormalize stat suppressdest verbosity",
        "protocol": "version",
        "pull": "ff rebase",
        "push": "autosetupremote default followtags negotiate recursesubmodules useforceifincludes",
        "rebase": "abbreviatecommands autosquash autostash forkpoint "
        "missingcommitscheck rebasemerges stat updaterefs",
        "receive": "advertiseatomic autogc denycurrentbranch denydeletes denynonfastforwards "
        "fsckobjects unpacklimit",
        "rerere": "autoupdate enabled",
        "transfer": "fsckobjects unpacklimit",
        "uploadpack": "allowanysha1inwant allowfilter allowreachablesha1inwant allowtipsha1inwant",
        **dict.fromkeys(
            ("add", "advice", "am", "apply", "color", "column", "difftool", "extensions"), "*"
        ),
        **dict.fromkeys(
            ("feature", "gc", "gitflow", "github", "gitlab", "gui", "index", "maintenance"), "*"
        ),
        **dict.fromkeys(("mergetool", "notes", "pack", "stash", "status", "svn-remote"), "*"),
        **dict.fromkeys(("tag", "trailer", "versionsort", "vscode", "worktree"), "*"),
    }.items()
}
_NOTHING: frozenset[str] = frozenset()
_BESIDE = re.compile(r"\w[\w.-]*|\.git-[\w-]+", re.ASCII)
_BOOLEAN = re.compile(r"(?:true|false|yes|no|on|off|[0-9]+)?", re.IGNORECASE | re.ASCII)
_HELPER = re.compile(r"[a-z0-9-]*", re.ASCII)

_BLANK = re.compile(r"\s*")
_HEADER = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=|\n|\Z)")
_REST = re.compile(r"[^\n]*")
_PLAIN = re.compile(r'[^\n\\"#;]+')
_ESCAPES = {"\n": "", "t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}


def find_steering(text: str, folder: str, top: str) -> tuple[str, ...]:
    """What the settings in `text` do beyond describing a repository: words, and the key.

    `folder` is where they lie, `top` the directory with the files. Raises ValueError for text that
    is not understood.
    """
    found: dict[str, None] = {}
    for setting in read_settings(text):
        if words := _judge(setting, folder, top):
            found[f"{words} ({setting.shown}"] = None
    return tuple(found)


def read_settings(text: str) -> Iterator[Setting]:
    """Every setting in its order. Raises ValueError for what git would not take either, and for
    some that it would."""
    if "\0" in text:
        raise ValueError("it has NUL characters")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section = name = ""
    at = _skip(text, 0)
    while at < len(text):
        if text[at] in "#;":
            at = _end(_REST, text, at)
        elif header := _HEADER.match(text, at):
            section, name = _read_header(header[1], header[2])
            at = header.end()
        elif section and (key := _KEY.match(text, at)):
            value, at = _read_value(text, key.end()) if key[2] == "=" else (None, key.end())
            yield Setting(section, name, key[1].lower(), value)
        else:
            raise ValueError("it has lines that mean nothing")
        at = _skip(text, at)


def _skip(text: str, at: int) -> int:
    return _end(_BLANK, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _read_header(section: str, name: str | None) -> tuple[str, str]:
    if name is not None:
        return section.lower(), re.sub(r"\\(.)", r"\1", name)
    section, _, name = section.lower().partition(".")
    return section, name


def _read_value(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    quoted = False
    while at < len(text) and text[at] != "\n":
        character = text[at]
        if character == '"':
            quoted = not quoted
            at += 1
        elif character == "\\":
            escape = text[at + 1 : at + 2]
            if escape not in _ESCAPES:
                raise ValueError("it has a backslash that means nothing")
            parts.append(_ESCAPES[escape])
            at += 2
        elif character in "#;" and not quoted:
            at = _end(_REST, text, at)
        else:
            end = max(_end(_PLAIN, text, at), at + 1)
            parts.append(text[at:end])
            at = end
    if quoted:
        raise ValueError("it has a quote without an end")
    return "".join(parts).strip(), at


def _judge(setting: Setting, folder: str, top: str) -> str:
    """What a setting does; empty when nothing beyond its repository."""
    section, name, key, value = setting
    text = value or ""
    if key in _RUN.get(section, ()):
        return STARTS
    match section, key:
        case "include" | "includeif", "path":
            return _LEADS
        case "core", "fsmonitor":
            starts = not _BOOLEAN.fullmatch(text)
        case "core", "pager":
            starts = text not in ("", "cat")
        case "pager", _:
            starts = not _BOOLEAN.fullmatch(text)
        case "alias", _:
            starts = text.startswith("!")
        case "submodule", "update":
            starts = text.startswith("!")
        case "credential", "helper":
            starts = not _HELPER.fullmatch(text)
        case "protocol", "allow":
            starts = text.lower() != "never"
        case "remote" | "submodule", "url" | "pushurl":
            starts = "::" in text
        case "url", _:
            starts = "::" in name
        case "core", "worktree":
            return "" if _is_own_place(text, folder, top) else _ELSEWHERE
        case "format", "outputdirectory":
            return _ELSEWHERE
        case "blame", "ignorerevsfile":
            return "" if _BESIDE.fullmatch(text) else _UNKNOWN
        case _:
            known = _HARMLESS.get(section, _NOTHING)
            return "" if key in known or "*" in known else _UNKNOWN
    return STARTS if starts else ""


def _is_own_place(text: str, folder: str, top: str) -> bool:
    """Whether the files of a repository are where one would look for them; those of a repository
    within another one are somewhere in that."""
    parts = text.split("/")
    while parts[:1] == [".."]:
        del parts[0]
    # Behind a name that is a link, `..` leads elsewhere.
    if ".." in parts:
        return False
    place = posixpath.normpath(posixpath.join(folder, text))
    return place == top or ("/modules/" in folder and place.startswith(f"{top}/"))

"""Tools for building, packages and containers: what of theirs goes beyond everyday use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from clawkit.approvals.allow.dangers.known import make_known, read_known
from clawkit.approvals.allow.dangers.sheet import (
    LOADS,
    REACHES,
    RUNS,
    WRITES,
    Call,
    Check,
    read_options,
    words,
)
from clawkit.approvals.operands import base_name

# Words that a tool runs a program of somebody else for, or opens an editor or a shell.
_RUNNERS: dict[str, frozenset[str]] = {
    "npm": words("exec x explore edit create innit"),
    "pnpm": words("exec dlx create env"),
    "yarn": words("exec dlx create node"),
    "bun": words("x create upgrade"),
}
_EVERYDAY = frozenset({"c", "i", "in"})
"""Words that are no short forms of those above."""
_MAX_WORDS = 20
_PLACES = frozenset({"prefix", "C", "dir", "cwd"})

_PIP_SETTINGS = words("set edit unset")

_OPENSSL_COMMANDS = words(
    """
    version help list ciphers dgst md5 sha1 sha224 sha256 sha384 sha512 enc base64 rand prime x509
    req genrsa genpkey pkey rsa ec ecparam dhparam verify passwd asn1parse crl pkcs7 pkcs8 pkcs12
    s_client crl2pkcs7 errstr pkeyutl rsautl
    """
)
_OPENSSL_WRITES = words("out keyout")
_OPENSSL_FLAGS = words(
    """
    in inform outform text noout new newkey nodes noenc key pubkey pubin pubout days subj x509
    addext reqexts extensions subject issuer dates startdate enddate fingerprint serial modulus
    purpose email ocsp_uri checkend checkhost checkip hash subject_hash issuer_hash nameopt ext sha1
    sha224 sha256 sha384 sha512 md5 r hex binary c d e a A base64 salt nosalt pbkdf2 iter md K iv
    aes-128-cbc aes-256-cbc aes-256-ctr algorithm pkeyopt paramfile name genkey param_enc conv_form
    check traditional topk8 nocrypt export inkey certfile caname nokeys nocerts clcerts cacerts
    legacy info CA CAkey set_serial signkey req trustout CAfile CApath untrusted
    verify verify_return_error connect servername showcerts brief starttls tls1_2 tls1_3 no_tls1
    no_tls1_1 alpn status verify_hostname ign_eof quiet sign signature prverify hmac mac macopt
    strparse offset length help v s V 1 5 6 apr1 crypt stdin table help-list commands
    digest-commands cipher-commands
    """
)
_FILTERS = re.compile(r"frei0r|ladspa|lv2=")
_FFMPEG_WRITES = words(
    """
    -report -vstats -vstats_file -progress -passlogfile -dump_attachment -stats_enc_pre
    -stats_enc_post -stats_mux_pre
    """
)
_PATH = re.compile(r"(?:\.{0,2}/)?[\w@%+, -][\w.@%+, -]*(?:/[\w.@%+, -]+)*")
_RATIO = re.compile(r"\d+/\d+")
_PANDOC = make_known(
    """
    -s --standalone --toc --table-of-contents -N --number-sections --mathjax[=] --katex[=] --mathml
    --no-highlight --strip-comments --preserve-tabs -p --reference-links --ascii
    --list-input-formats --list-output-formats --list-extensions[=] --list-highlight-styles
    --listings --section-divs --self-contained --embed-resources --fail-if-warnings --quiet
    --verbose -v --version -h --help -f= -t= -r= -w= --from= --to= --read= --write= -o=> --output=>
    --toc-depth= -V= --variable= -M= --metadata= --wrap= --columns= --shift-heading-level-by=
    --markdown-headings= --tab-stop= --eol= --dpi= -c= --css= -T= --title-prefix= --id-prefix=
    --slide-level= --top-level-division= --metadata-file=< --template=< --reference-doc=<
    --bibliography=< --csl=< -H=< -B=< -A=< --include-in-header=< --include-before-body=<
    --include-after-body=< -C --citeproc
    """
)
_PANDOC_FORMATS = ("-f", "-t", "-r", "-w", "--from", "--to", "--read", "--write")
_FORMAT = re.compile(r"[a-z0-9_]+(?:[+-][a-z0-9_]+)*", re.ASCII)
_TEX = make_known(
    """
    -halt-on-error --halt-on-error -file-line-error --file-line-error -draftmode --draftmode
    -no-shell-escape --no-shell-escape -recorder --recorder -version --version -help --help
    -interaction[=] --interaction[=] -synctex[=] --synctex[=] -output-format[=] --output-format[=]
    -jobname[=] --jobname[=] -output-directory=> --output-directory=>
    """,
    single=True,
)
_TEX_NAMES = ("-jobname", "--jobname")
_HG_SETTINGS = ("hgrc", "hgrc-not-shared", "sharedpath", "shared")
_HGRC = re.compile(r"\s*(?:[#;].*)?|\[paths\]|[\w-]+\s*=\s*(?:https?|ssh)://[\w.@:/~-]+")
_MAX_HGRC = 4096
_JAVA = ("-XX:OnError", "-XX:OnOutOfMemoryError", "-XX:Flags", "-XX:VMOptionsFile", "-agent")
_PHP_PLAIN = re.compile(
    r"(?:memory_limit|display_errors|error_reporting|max_execution_time|xdebug\.mode|date\.timezone"
    r"|zend\.assertions|assert\.\w+|opcache\.enable(?:_cli)?|pcov\.enabled|precision)(?:=[\w.,:/~&-]*)?"
)


def first_words(arguments: Sequence[str]) -> Iterator[str]:
    """Whatever could be the sub-command: a word behind a flag may be its value, or not."""
    unsure = False
    for text in arguments:
        if text.startswith("-"):
            unsure = "=" not in text
        else:
            yield text
            if not unsure:
                return
            unsure = False


def check_package_tool(call: Call) -> str:
    """Scripts of the project and installing are everyday; other people's programs are not."""
    arguments = call.arguments
    for index, text in enumerate(arguments):
        flag, attached, value = text.lstrip("-").partition("=")
        if text.startswith("-") and flag in _PLACES:
            value = value if attached else "".join(arguments[index + 1 : index + 2])
            if not call.may_write(value):
                return f"{text.partition('=')[0]} {REACHES}: another directory"
    name = base_name(call.program.name).removesuffix("pkg")
    tool = name if name in _RUNNERS else "npm"
    for number, word in enumerate(first_words(arguments)):
        if number > _MAX_WORDS:
            return "which of its words is the sub-command is not certain"
        if why := _check_package_word(tool, word, arguments):
            return why
    return ""


def _check_package_word(tool: str, word: str, arguments: Sequence[str]) -> str:
    runners = _RUNNERS[tool]
    # npm takes short forms, too.
    short = (
        tool == "npm"
        and word not in _EVERYDAY
        and any(runner.startswith(word) for runner in runners)
    )
    if word in runners or short:
        return f"{word} {RUNS}"
    words = [text for text in arguments if not text.startswith("-")]
    if word == "init" and words[-1] != "init":
        return f"init with a name {RUNS}"
    if word in ("config", "c", "conf", "set") and {"get", "list", "ls"}.isdisjoint(words):
        return "it changes settings that start programs"
    return ""


def check_cargo(call: Call) -> str:
    """A tool chain given as a path is another program."""
    if call.arguments and call.arguments[0].startswith("+") and "/" in call.arguments[0]:
        return f"a tool chain given as a path {RUNS}"
    return ""


def check_pip(call: Call) -> str:
    """Settings stay as they are."""
    if "config" in first_words(call.arguments) and not _PIP_SETTINGS.isdisjoint(call.arguments):
        return f"config {WRITES}"
    return ""


def check_go(call: Call) -> str:
    """Settings and flags for other tools can name programs."""
    if "env" in call.arguments[:1] and any(
        text.lstrip("-") in ("w", "u") for text in call.arguments
    ):
        return "env changes settings that start programs"
    if any("extld" in text or "gccgoflags" in text for text in call.arguments):
        return f"flags for the linker could be ones that {RUNS}"
    return ""


def check_java(call: Call) -> str:
    """Agents, files with more call.arguments, and what runs after an error."""
    for text in call.arguments:
        if text.startswith("@"):
            return f"a file with more call.arguments could be one that {RUNS}"
        if flag := next(filter(text.startswith, (*_JAVA, "-javaagent")), ""):
            return f"{flag} {LOADS}"
    return ""


def check_php(call: Call) -> str:
    """Settings can name a file that is run first."""
    for flag, value in read_options(call.arguments, "dcztSbrBREfF"):
        if flag == "-d" and not _PHP_PLAIN.fullmatch(value):
            return f"-d with such a setting {LOADS}"
    return ""


def check_pytest(call: Call) -> str:
    """Plugins may be turned off, not on."""
    for flag, value in read_options(call.arguments, "pkmcornW"):
        if flag == "-p" and not value.startswith("no:"):
            return f"-p {LOADS}"
    return ""


def check_make(call: Call) -> str:
    """Its rules are the project's, not those on its input."""
    for flag, value in read_options(call.arguments, "fCIojlW", ("--file", "--makefile")):
        if flag in ("-f", "--file", "--makefile") and (value == "-" or value.startswith("/dev/")):
            return "it takes its rules from its input"
    return ""


def check_openssl(call: Call) -> str:
    """Only commands and flags that are known; what they write is where one works."""
    arguments = call.arguments
    if not arguments:
        return "it takes commands from its input"
    if arguments[0] not in _OPENSSL_COMMANDS:
        return "its command is not known to be harmless"
    for text, value in zip(arguments[1:], (*arguments[2:], ""), strict=False):
        if not text.startswith("-"):
            continue
        name = text.lstrip("-")
        if name in _OPENSSL_WRITES:
            if not call.may_write(value):
                return f"-{name} {WRITES}"
        elif name not in _OPENSSL_FLAGS and not name.isdecimal():
            return "its flags are not known to be harmless"
    return ""


def check_ffmpeg(call: Call) -> str:
    """What it writes is where one works. Any word but those behind -i could be a file, or hold the
    name of one."""
    for before, text in zip(("", *call.arguments), call.arguments, strict=False):
        if _FILTERS.search(text):
            return f"a filter that is a library {LOADS}"
        if text in _FFMPEG_WRITES:
            return f"{text} {WRITES}"
        if text.startswith("-") or before == "-i":
            continue
        if "/" in text and not (_PATH.fullmatch(text) or _RATIO.fullmatch(text)):
            return f"one of its values could be one that {WRITES}"
        if not call.may_write(text):
            return f"outside of the workspace it {WRITES}"
    return ""


def check_pandoc(call: Call) -> str:
    """Formats of its own, and a file where one works."""
    given = read_known(call, _PANDOC)
    for value in given.values(*_PANDOC_FORMATS):
        if not _FORMAT.fullmatch(value):
            return f"a format that is a file {LOADS}"
    return given.why


def check_tex(call: Call) -> str:
    """A document, and flags that change nothing about what it may do."""
    given = read_known(call, _TEX)
    if given.why:
        return given.why
    if any("/" in name for name in given.values(*_TEX_NAMES)):
        return f"-jobname {WRITES}"
    if not call.may_write(".") and given.operands:
        return f"where it runs, it {WRITES}"
    return ""


def check_hg(call: Call) -> str:
    """The settings of a repository can start programs; its files are looked for from here up."""
    if call.program.cwd is None:
        return "it is not certain in which repository it runs; use && after cd"
    here = os.path.realpath(call.program.cwd)
    while True:
        for name in _HG_SETTINGS:
            path = os.path.join(here, ".hg", name)
            if os.path.lexists(path) and not _is_plain_hgrc(path):
                return "its repository's settings could start programs"
        if here == os.path.dirname(here):
            return ""
        here = os.path.dirname(here)


def _is_plain_hgrc(path: str) -> bool:
    """Whether there is nothing in it but addresses."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_HGRC + 1)
    except (OSError, ValueError):
        return False
    return len(text) <= _MAX_HGRC and all(map(_HGRC.fullmatch, text.splitlines()))


def always(why: str) -> Check:
    """A check for programs that can do more whatever their call.arguments are."""

    def check(call: Call) -> str:
        return "" if call.arguments in (("--version",), ("--help",)) else why

    return check

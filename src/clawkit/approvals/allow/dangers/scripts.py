"""Programs that take small programs as arguments: sed, awk, and the shells of databases."""

from __future__ import annotations

import re

from clawkit.approvals.allow.dangers.sheet import READS, RUNS, WRITES, Call, read_options, words

_SED_FLAGS = words(
    """
    -n -E -r -u -z -s --quiet --silent --regexp-extended --null-data --zero-terminated --unbuffered
    --separate --posix --debug --sandbox --help --version
    """
)
_SED_ADDRESS = re.compile(r"(?:\d+(?:~\d+)?|\$|[+~]\d+)")
_SED_PLAIN = frozenset("pPdDnNgGhHx=qQ")
_SED_S_FLAGS = re.compile(r"[gpiIMm0-9]*")
_MAX_SCRIPT = 8192
_SED_BLANK = re.compile(r"[\s;]*")
_SED_SPACES = re.compile(r"[ \t]*")
_SED_BEFORE = re.compile(r"[ \t!]*")
_SED_AFTER = re.compile(r"[IM]*")
# A backslash before the end means different things to different editions.
_SED_BRACKET = re.compile(r"\[\^?\]?(?:[^\]\[\\\n]|\[(?![:.=])|\[:[a-z]+:\]|\\(?!\]))*\]")

_AWK_FLAGS = words(
    """
    -F -v -e --source --field-separator --assign --posix --traditional --re-interval --lint
    --non-decimal-data --characters-as-bytes --version --help -V -b -n -P -c -O -S --sandbox
    """
)
_AWK_WORDS = re.compile(r"system|getline|@|\\\n|\\\r|\|")

_INPUT = f"it takes commands from its input, and one of them {RUNS}"
_SQL_FLAGS = re.compile(
    r"--?(?:header|noheader|csv|json|line|list|html|markdown|box|column|table|quote|tabs|ascii|"
    r"readonly|batch|bail|safe|version|help|echo|stats|separator|nullvalue|newline|newlines?)"
)
_SQLITE = re.compile(
    r"load_extension|writefile|readfile|fsdir|lsdir|zipfile|\bedit\b|fts3_tokenizer|attach|virtual",
    re.IGNORECASE,
)
_VACUUM, _INTO = (re.compile(each, re.IGNORECASE) for each in ("vacuum", "into"))
_DOT_COMMANDS = words(
    """
    .tables .schema .fullschema .headers .header .mode .databases .indexes .indices .dump .help
    .version .show .stats .timer .width .nullvalue .separator .quit .exit .bail .echo .dbinfo
    """
)
_PSQL = re.compile(r"\\|\bprogram\b|pg_read_|pg_ls_|lo_(?:im|ex)port|pg_execute", re.IGNORECASE)
_PSQL_VALUES = words("--command --dbname --host --port --username --pset --field-separator")
_PSQL_ASKS = ("-l", "--list", "-V", "--version", "-?", "--help")
_PSQL_FLAGS = _PSQL_VALUES.union(
    _PSQL_ASKS,
    words(
        """
        --no-psqlrc --no-align --tuples-only --quiet --no-password --csv --html --expanded
        --single-transaction --echo-errors -c -d -h -p -U -F -P -R -T -X -A -t -q -w -H -x -1 -b -E
        -a -e
        """
    ),
)
_MYSQL_VALUES = words("--execute --host --user --port --database")
_MYSQL_ASKS = ("-e", "--execute", "-V", "--version", "-?", "--help")
_MYSQL_FLAGS = _MYSQL_VALUES.union(
    _MYSQL_ASKS,
    words("--batch --silent --table --skip-column-names --vertical -h -u -P -D -N -B -s -t -E"),
)
_MYSQL = re.compile(
    r"\\|\b(?:system|source|tee|pager|edit|outfile|dumpfile|load_file|infile|plugin|soname)\b",
    re.IGNORECASE,
)


def check_sed(call: Call) -> str:
    """Only scripts that print, delete or replace; sed can also run commands and write files."""
    scripts, operands = [], []
    for flag, value in read_options(call.arguments, "efl", ("--expression", "--line-length")):
        if flag in ("-e", "--expression"):
            scripts.append(value)
        elif not flag:
            operands.append(value)
        elif flag in ("-i", "--in-place"):
            return f"{flag} changes files"
        elif flag not in _SED_FLAGS and flag not in ("-l", "--line-length"):
            return "its flags are not known to be harmless"
    for script in scripts or operands[:1]:
        if not is_plain_sed(script):
            return "its script is more than plain replacing, printing and deleting"
    return ""


def is_plain_sed(script: str) -> bool:
    """Whether a script surely neither runs commands nor opens files."""
    if len(script) > _MAX_SCRIPT:
        return False
    at = _skip(_SED_BLANK, script, 0)
    while at < len(script):
        end = _sed_command(script, at)
        if end is None:
            return False
        end = _skip(_SED_SPACES, script, end)
        if script[end : end + 1] not in ("", ";", "\n"):
            return False
        at = _skip(_SED_BLANK, script, end)
    return True


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _sed_command(script: str, at: int) -> int | None:
    """Where a command with its addresses ends; None when it is not a plain one."""
    first = _sed_address(script, at)
    if first is not None and script[first : first + 1] == ",":
        first = _sed_address(script, first + 1)
    if first is None:
        return None
    at = _skip(_SED_BEFORE, script, first)
    letter = script[at : at + 1]
    if letter == "s":
        return _sed_replace(script, at + 1)
    return at + 1 if letter and letter in _SED_PLAIN else None


def _sed_address(script: str, at: int) -> int | None:
    if script[at : at + 1] != "/":
        return _skip(_SED_ADDRESS, script, at)
    end = _sed_pattern(script, at + 1, "/")
    return None if end is None else _skip(_SED_AFTER, script, end)


def _sed_replace(script: str, at: int) -> int | None:
    delimiter = script[at : at + 1]
    if not delimiter or delimiter.isalnum() or delimiter.isspace() or delimiter in "\\;[]{}":
        return None
    middle = _sed_pattern(script, at + 1, delimiter)
    while middle is not None and script[middle : middle + 1] != delimiter:
        if script[middle : middle + 1] in ("", "\n"):
            return None
        middle += 2 if script[middle] == "\\" else 1
    return None if middle is None else _skip(_SED_S_FLAGS, script, middle + 1)


def _sed_pattern(script: str, at: int, delimiter: str) -> int | None:
    """Behind the end of a regular expression, where all editions of sed see it; else None."""
    while at < len(script) and script[at] != "\n":
        character = script[at]
        if character == delimiter:
            return at + 1
        if character == "\\":
            at += 2
        elif character == "[":
            bracket = _SED_BRACKET.match(script, at)
            if bracket is None:
                return None
            at = bracket.end()
        else:
            at += 1
    return None


def check_awk(call: Call) -> str:
    """Only programs that surely start nothing and open no files by themselves."""
    programs, operands = [], []
    for flag, value in read_options(
        call.arguments, "Fvefil", ("--source", "--field-separator", "--assign")
    ):
        if flag in ("-e", "--source"):
            programs.append(value)
        elif not flag:
            operands.append(value)
        elif flag not in _AWK_FLAGS:
            return "its flags are not known to be harmless"
    if any(text.startswith("/inet") for text in operands):
        return "it reads from the network"
    # Pieces are one program.
    text = "\n".join(programs or operands[:1])
    if _AWK_WORDS.search(text.replace("||", "")):
        return f"its program could be one that {RUNS}"
    if "print" in text and ">" in text.replace(">=", ""):
        return f"its program could be one that {WRITES}"
    return ""


def check_sqlite(call: Call) -> str:
    """Only plain SQL and commands that show something."""
    operands = []
    index = 0
    while index < len(call.arguments):
        text = call.arguments[index]
        index += 1
        if not text.startswith("-"):
            operands.append(text)
        elif not _SQL_FLAGS.fullmatch(text):
            return "its flags are not known to be harmless"
        elif text.lstrip("-") in ("separator", "nullvalue", "newline"):
            index += 1
    if len(operands) < 2 and not any(
        text.lstrip("-") in ("version", "help") for text in call.arguments
    ):
        return _INPUT
    if operands and not _may_open(call, operands[0]):
        return f"outside of the workspace it {WRITES}"
    for text in operands[1:]:
        for line in map(str.split, text.splitlines()):
            if line and line[0].startswith(".") and (line[0] not in _DOT_COMMANDS or "|" in text):
                return f"a command with a dot could be one that {RUNS}"
        if _SQLITE.search(text) or (_VACUUM.search(text) and _INTO.search(text)):
            return f"its SQL could be one that {WRITES}, or loads code"
    return ""


def _may_open(call: Call, database: str) -> bool:
    """Opening a database makes it, and SQL fills it."""
    if database in ("", ":memory:"):
        return True
    return not database.startswith("file:") and call.may_write(database)


def check_psql(call: Call) -> str:
    """Only SQL on the command line; a backslash begins a command of psql's own."""
    asks = False
    for flag, value in read_options(call.arguments, "cdfvLoFPRThpU", _PSQL_VALUES):
        if flag in ("-c", "--command") and _PSQL.search(value):
            return f"its command could be one that {RUNS}"
        if flag and flag not in _PSQL_FLAGS:
            return f"with such flags it could be one that {RUNS} or {WRITES}"
        asks = asks or flag in ("-c", "--command", *_PSQL_ASKS)
    return "" if asks else _INPUT


def check_mysql(call: Call) -> str:
    """Only plain SQL on the command line."""
    asks = False
    # A password has no blank before it.
    rest = [text for text in call.arguments if not text.startswith("-p")]
    for flag, value in read_options(rest, "ehuPD", _MYSQL_VALUES):
        if flag in ("-e", "--execute") and _MYSQL.search(value):
            return f"its command could be one that {RUNS} or {READS}"
        if flag and flag not in _MYSQL_FLAGS:
            return f"with such flags it could be one that {RUNS} or {WRITES}"
        asks = asks or flag in _MYSQL_ASKS
    return "" if asks else _INPUT

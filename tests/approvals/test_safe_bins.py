"""Programs that only turn their input into output."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.safe_bins import (
    check_filter,
    check_safe_bin,
    find_profile,
    is_changeable,
    is_trusted,
    safe_bin_warnings,
)
from clawkit.approvals.types import ApprovalRules, Arg, Match, Program
from clawkit.config.sections.tools import SAFE_BINS, SafeBinProfile

RULES = ApprovalRules(safe_bins=SAFE_BINS)


def program(line: str, *, folder: str = "/usr/bin", cwd: str | None = "/ws") -> Program:
    """A call as it is typed, without what a shell would make of it; `glob:` marks a pattern."""
    words = shlex.split(line)
    argv = tuple(Arg(each.removeprefix("glob:"), glob=each.startswith("glob:")) for each in words)
    path = words[0] if words[0].startswith("/") else f"{folder}/{words[0]}"
    return Program(argv, path, path, cwd)


def check(line: str, rules: ApprovalRules = RULES) -> str:
    """Why a call is not harmless; empty when it is."""
    found = check_safe_bin(program(line), rules)
    return "" if isinstance(found, Match) else found


def _filters_of_their_input_need_no_approval(line: str) -> None:
    assert check(line) == ""


def test_filters_of_their_input_need_no_approval(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *(
            "head",
            "head -n 3",
            "head -n3",
            "head -3",
            "head --lines=2",
            "head -qn 3",
        ),
        *("head -c 10 -", "head -n -5", "/usr/bin/head -n 3", "/bin/head", "head --help"),
        *("tail", "tail -3", "tail -n +5", "tail -qz", "tail --bytes 10"),
        *("wc", "wc -l", "wc -lw", "wc --lines", "wc -L", "wc --total=never"),
        *("tr a-z A-Z", "tr -d x", "tr '[:lower:]' x", "tr '\\n' ' '", "tr / -", "tr -- -a b"),
        *("tr -cd 'a-z'", "tr --delete /"),
        *("cut -d, -f1", "cut -f 1 -d ','", "cut -d / -f1", "cut -c1-3 -z"),
        *(
            "uniq",
            "uniq -c",
            "uniq -dci",
            "uniq -f 1",
            "uniq --group",
            "uniq --group=both",
            "uniq -",
        ),
        *("sort", "sort -n", "sort -rnu", "sort -t. -k2", "sort -k 2 -t ,", "sort -t / -k1,1n"),
        *("sort --reverse --stable", "sort -S 10M --parallel=2", "sort -c", "sort --check=quiet"),
        *("sort -h", "sort -V", "sort -m -"),
        *("grep txt", "grep -e a -e b", "grep -i -e TXT", "grep -v -e git", "grep -inv txt"),
        *("grep -- -r", "grep -c x", "grep -5 x", "grep -A3 -B 2 x", "grep --color=never x"),
        *(
            "grep --regexp=/etc/passwd",
            "grep /etc/",
            "grep -Eo '[0-9]+'",
            "grep x -",
            "grep --version",
        ),
        *("grep -m1 x", "grep '*.x'", "grep --max-count 3 --ignore-case x", "grep -e -f"),
        *("jq .", "jq -r .a.b", "jq -rc '.[] | .name'", "jq --indent 2 .", "jq --tab -S ."),
    ]
    for line in cases:
        with subtests.test(line=line):
            _filters_of_their_input_need_no_approval(line)


def _whatever_opens_a_file_or_is_not_known_is_refused(line: str) -> None:
    assert check(line) != ""


def test_whatever_opens_a_file_or_is_not_known_is_refused(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *("head file", "head -n 3 file", "head /etc/passwd", "head -- file", "head -x"),
        *("head -n", "head --lines", "head --quiet=x", "head --nothing", "head -3x", "head -٣"),
        *("head ---presume-input-pipe", "head - file"),
        *("tail -f", "tail -F", "tail -5f", "tail -qf", "tail --follow", "tail --fol=name"),
        *(
            "tail --retry",
            "tail --pid=1",
            "tail -s 1",
            "tail --max-unch 3",
            "tail +5",
            "tail -n 1 x",
        ),
        *("wc --files0-from=list0", "wc --files0=list0", "wc --f=x", "wc -l x"),
        *("tr", "tr a b c", "tr --output=x a b"),
        *("cut -f1 x", "cut --unknown", "cut -f", "cut --output -f1 x"),
        *("uniq in out", "uniq in", "uniq --count=x", "uniq +3"),
        *("sort x", "sort -o x", "sort -oPWNED", "sort -rno x", "sort --output=PWNED"),
        *("sort --out=PWNED", "sort -T /tmp", "sort --temp=x", "sort --co ./evil.sh"),
        *("sort --compress-program=./evil.sh", "sort --comp=x -S 1k", "sort --files0-from=x"),
        *("sort --random-source=x", "sort --r", "sort +1 -2", "sort -k", "sort --f"),
        *(
            "grep",
            "grep a b",
            "grep -e a b",
            "grep -f secret.txt",
            "grep -fsecret.txt",
            "grep -r x",
        ),
        *("grep -R x", "grep -hre CANARY", "grep -d recurse -e x", "grep -drecurse x", "grep -P x"),
        *(
            "grep --file=x",
            "grep --fil x",
            "grep --recursive x",
            "grep --rec x",
            "grep --include=x y",
        ),
        *("grep --exclude-from=x y", "grep -i", "grep x -- y", "grep --directories=recurse x"),
        *("grep -D read x", "grep --d x y", "grep -X x y", "grep -e", "grep --re"),
        *("jq", "jq . file", "jq -n .", "jq -rn .", "jq -f x", "jq --from-file x", "jq -L x ."),
        *("jq -Lx .", "jq --arg a b .", "jq --rawfile x secret.txt .", "jq --slurpfile a b ."),
        *("jq --args . x", "jq --indent x .", "jq --indent", "jq -- .", "jq --raw .", "jq -"),
        *("jq env", "jq '$ENV.A'", "jq --argjson a 1 ."),
        *("cat", "cat x", "ls"),
        *("head glob:*", "head -n glob:*", "grep glob:*.x", "tr a glob:?", "grep -e glob:*"),
    ]
    for line in cases:
        with subtests.test(line=line):
            _whatever_opens_a_file_or_is_not_known_is_refused(line)


def _a_filter_that_looks_at_its_input_is_harmless(text: str) -> None:
    assert check_filter(text) == ""


def test_a_filter_that_looks_at_its_input_is_harmless(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *(".", ".a", ".a.b", ".[0]", ".[]", ".[]?", ".a[1:3]", '.["a b"]', '."a"', ".a // 0"),
        *(".[] | .name", ".a, .b", "keys", "length", "map(.a)", "map(select(.a == 1 and .b != 2))"),
        *('.[] | select(.name == "x\\n\\u0041")', "[.[] | {size: .bytes}]"),
        *("{a: {b: .c}}", 'to_entries | map("x" + .key)', "if .a then .b else null end"),
        *('.a | split(",") | join(";")', "any(.[]; . > 1)", ".env", ".input.debug", "-1.5 + 2"),
        *("{ env : .x }", "\n.a\n"),
    ]
    for text in cases:
        with subtests.test(text=text):
            _a_filter_that_looks_at_its_input_is_harmless(text)


def _a_filter_that_could_do_more_is_not(text: str) -> None:
    assert check_filter(text) != ""


def test_a_filter_that_could_do_more_is_not(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *(
            "env",
            "$ENV",
            "$ENV.A",
            ".a | env",
            "env.A",
            "[env]",
            "{a: env}",
            "{(env): 1}",
            "{a, b: env}",
        ),
        *("input", "inputs", "[inputs]", "debug", "stderr", "halt", "input_filename", "$__loc__"),
        *(
            'import "a" as $d; .',
            'include "a"; .',
            "def e: 1; e",
            ". as $x | $x",
            "@base64",
            '@sh "x"',
        ),
        *('"\\(env)"', '"a', '"\\x"', "..", ".. | .a", "recurse", "range(9)", "limit(1; .a)"),
        *(
            "until(.; .)",
            "repeat(.)",
            "getpath([])",
            "modulemeta",
            "# comment",
            ".a = 1",
            ".a |= 1",
        ),
        *(".a * 2", "a::b", "reduce .[] as $x (0; . + $x)", "try error", "{env.x}", "{env|.}"),
        *("{env, input}", "{name}"),
        *("\0", "é", "." * 5_000, "[{a: 1}, env]", "({}, env)", "{a: [1, env]}"),
    ]
    for text in cases:
        with subtests.test(text=text):
            _a_filter_that_could_do_more_is_not(text)


@table("text", [".+.|" * 40 + ".", "tojson|" * 40 + ".", ".,.|" * 40 + "."])
def test_a_filter_that_multiplies_its_input_is_not(text: str) -> None:
    assert "many times as large" in check_filter(text)


def test_a_filter_of_any_length_takes_no_time() -> None:
    for text in ('"' * 4_000, '"' + "\\\\" * 2_000, "{" * 4_000, "a " * 2_000, "{a," * 1_300):
        check_filter(text)


def given_profiles(**profiles: SafeBinProfile) -> ApprovalRules:
    return ApprovalRules(safe_bins=("head", *profiles), profiles=MappingProxyType(profiles))


TOOL = SafeBinProfile(
    min_positional=1,
    max_positional=2,
    allowed_flags=["-v", "--verbose", "-both", "--denied"],
    allowed_value_flags=["-n", "--number", "-width"],
    denied_flags=["-x", "--denied"],
)


def _the_operator_can_say_what_else_is_harmless(line: str, harmless: bool) -> None:
    assert (check(line, given_profiles(tool=TOOL)) == "") is harmless


def test_the_operator_can_say_what_else_is_harmless(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("tool a", True),
        ("tool a b", True),
        ("tool -v --verbose a", True),
        ("tool -n 3 a", True),
        ("tool -n3 a", True),
        ("tool -vn3 a", True),
        ("tool --number=3 a", True),
        ("tool -both a", True),
        ("tool -width 3 a", True),
        ("tool -width=3 a", True),
        ("tool - a", True),
        ("tool", False),
        ("tool a b c", False),
        ("tool --verb a", False),
        ("tool --verbose=1 a", False),
        ("tool --denied a", False),
        ("tool -x a", False),
        ("tool -vx a", False),
        ("tool --help", False),
        ("tool -3 a", False),
        ("tool /etc/passwd", False),
        ("tool ./a", False),
        ("tool .env", False),
        ("tool ~", False),
        ("tool a/b", False),
        ("tool -n /etc/passwd a", False),
        ("tool --number=~/x a", False),
        ("tool -n/x a", False),
        ("tool glob:a*", False),
    ]
    for line, harmless in cases:
        with subtests.test(line=line, harmless=harmless):
            _the_operator_can_say_what_else_is_harmless(line, harmless)


def test_a_denied_flag_is_not_taken_for_letters_that_are_allowed() -> None:
    rules = given_profiles(
        tool=SafeBinProfile(
            allowed_flags=["-e", "-x", "-c"],
            allowed_value_flags=["-o", "--out"],
            denied_flags=["-exec", "-output", "--out"],
        )
    )
    assert check("tool -exc", rules) == ""
    assert check("tool -oa", rules) == ""
    for line in ("tool -exec", "tool -exec=a", "tool -output a", "tool -output=a", "tool --out=a"):
        assert check(line, rules) == f"not with {line.split()[1].partition('=')[0]}"


def test_an_argument_of_an_unknown_program_must_not_be_a_file(workspace: Path) -> None:
    rules = given_profiles(tool=TOOL)
    assert isinstance(check_safe_bin(program("tool b.txt", cwd=str(workspace)), rules), Match)
    for line, cwd in (("tool a.txt", str(workspace)), ("tool -n a.txt b", str(workspace))):
        assert "file" in str(check_safe_bin(program(line, cwd=cwd), rules))
    assert "file" in str(check_safe_bin(program("tool b", cwd=None), rules))
    assert isinstance(check_safe_bin(program("head -n 3", cwd=None), rules), Match)


def test_a_profile_of_the_operator_takes_the_place_of_a_known_one() -> None:
    rules = given_profiles(
        grep=SafeBinProfile(allowed_flags=["-r"], max_positional=1),
        jq=SafeBinProfile(allowed_flags=["-n"]),
    )
    assert check("grep -r x", rules) == ""
    assert check("grep -i x", rules) == "not with -i"
    assert check("grep", rules) == ""
    # What a filter does is looked at all the same.
    assert check("jq -n length", rules) == ""
    assert "env" in check("jq -n env", rules)
    assert "env" in check("jq -n length env", rules)


def test_the_most_arguments_are_never_less_than_the_fewest() -> None:
    profile = find_profile("x", {"x": SafeBinProfile(min_positional=2, max_positional=1)})
    assert profile is not None
    assert (profile.least, profile.most) == (2, 2)
    assert check("x a b", given_profiles(x=SafeBinProfile(min_positional=2))) == ""


def _programs_that_run_code_are_never_safe(name: str) -> None:
    rules = given_profiles(**{name: SafeBinProfile(allowed_flags=["-n"])})
    assert check(name, rules) == "it runs code, so it is never a safe program"


def test_programs_that_run_code_are_never_safe(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *("awk", "gawk", "mawk", "nawk", "sed", "gsed", "python", "python3", "python3.11", "node"),
        *("perl", "ruby", "sh", "bash", "zsh", "fish", "busybox", "toybox", "coreutils", "lua5.4"),
        *("env", "find", "xargs", "make", "php8"),
    ]
    for name in cases:
        with subtests.test(name=name):
            _programs_that_run_code_are_never_safe(name)


def test_a_link_to_an_interpreter_is_not_safe_but_one_to_many_programs_is() -> None:
    rules = given_profiles(tool=SafeBinProfile())
    tool = (Arg("tool"),)
    for real, safe in (("/usr/bin/python3.11", False), ("/usr/bin/busybox", True)):
        found = check_safe_bin(Program(tool, "/usr/bin/tool", real, "/ws"), rules)
        assert isinstance(found, Match) is safe


def in_workspace(path: str) -> bool:
    return path == "/ws" or path.startswith("/ws/")


def _a_safe_program_comes_from_where_only_the_operator_puts_programs(
    name: str, resolved: str, real: str, trusted_dirs: tuple[str, ...], safe: bool
) -> None:
    rules = ApprovalRules(safe_bins=("head",), trusted_dirs=trusted_dirs, may_write=in_workspace)
    found = check_safe_bin(Program((Arg(name),), resolved, real, "/cwd"), rules)
    assert isinstance(found, Match) is safe


def test_a_safe_program_comes_from_where_only_the_operator_puts_programs(
    subtests: pytest.Subtests,
) -> None:
    cases: Iterable[Any] = [
        ("head", "/usr/bin/head", "/usr/bin/head", (), True),
        ("head", "/usr/bin/head", "/etc/alternatives/head", (), True),
        ("head", "/bin/head", "/usr/bin/coreutils", (), True),
        ("head", "/usr/local/bin/head", "/usr/bin/head", (), True),
        ("head", "/usr/local/bin/head", "/usr/bin/rm", (), False),
        ("head", "/usr/local/bin/head", "/usr/local/bin/head", (), False),
        ("head", "/opt/x/head", "/opt/x/head", ("/opt/x",), True),
        ("head", "/opt/x/head", "/opt/x/head", ("/opt/x/",), True),
        ("head", "/opt/x/y/head", "/opt/x/y/head", ("/opt/x",), False),
        ("head", "/ws/head", "/ws/head", ("/ws",), False),
        ("head", "/ws/bin/head", "/ws/bin/head", ("/ws/bin",), False),
        ("head", "/opt/x/head", "/ws/head", ("/opt/x",), False),
        ("head", "/ws/head", "/usr/bin/head", (), False),
        ("/usr/bin/head", "/usr/bin/head", "/usr/bin/head", (), True),
        ("./head", "/usr/bin/head", "/usr/bin/head", (), False),
        ("bin/head", "/usr/bin/head", "/usr/bin/head", (), False),
        ("head", "/cwd/head", "/cwd/head", ("/cwd",), False),
        ("head", "/head", "/head", (".", ""), False),
        ("head", "", "", (), False),
    ]
    for name, resolved, real, trusted_dirs, safe in cases:
        with subtests.test(
            name=name, resolved=resolved, real=real, trusted_dirs=trusted_dirs, safe=safe
        ):
            _a_safe_program_comes_from_where_only_the_operator_puts_programs(
                name, resolved, real, trusted_dirs, safe
            )


def test_a_directory_of_the_system_is_trusted_even_if_everything_may_be_written() -> None:
    rules = ApprovalRules(may_write=lambda _path: True, trusted_dirs=("/opt",))
    assert is_trusted(program("head"), rules)
    assert not is_trusted(program("head", folder="/opt"), rules)
    assert not is_changeable("/usr/sbin/x", rules)
    assert is_changeable("/usr/local/bin/x", rules)


@table(
    ("assigned", "safe"),
    [
        (("LANG", "LC_ALL", "TZ", "COLUMNS"), True),
        (("POSIXLY_CORRECT",), False),
        (("TMPDIR",), False),
    ],
)
def test_nothing_around_a_safe_program_may_steer_it(assigned: tuple[str, ...], safe: bool) -> None:
    call = Program((Arg("sort"),), "/usr/bin/sort", "/usr/bin/sort", "/", assigned=assigned)
    assert isinstance(check_safe_bin(call, RULES), Match) is safe


def test_a_safe_program_may_start_nothing() -> None:
    found = check_safe_bin(program("head -n 3"), RULES)
    assert found == Match("safe-bin", "head (safe program)", None, "named", changes=False)


def test_unlisted_programs_are_not_safe() -> None:
    assert check("head", ApprovalRules(safe_bins=("tail",))) == "head is not a safe program"
    assert check("cat", ApprovalRules(safe_bins=("cat",))).startswith("it has no profile")


@table("line", ["head --li=3", "cut --output-d=x -f1", "sort --out=x", "wc --fi=x"])
def test_a_shortened_flag_is_not_known(line: str) -> None:
    assert check(line).startswith("not with --")


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[int], str]:
    def make(mode: int) -> str:
        place = tmp_path / oct(mode)
        place.mkdir()
        place.chmod(mode)
        return str(place)

    return make


def test_the_operator_is_warned_of_what_does_not_work_or_is_not_safe(
    folder: Callable[[int], str],
) -> None:
    good, group, others = folder(0o755), folder(0o775), folder(0o757)
    rules = ApprovalRules(
        safe_bins=("head", "cat", "python3", "busybox", "tool"),
        profiles={"tool": SafeBinProfile(), "python3": SafeBinProfile()},
        trusted_dirs=(good, group, others, "/nothing", "bin", "/\0"),
    )
    found = list(safe_bin_warnings(rules))
    about = [next(word for word in line.split("'")[1:]) for line in found]
    assert about == ["cat", "python3", "busybox", group, others, "/nothing", "bin", "/\\\\u{0}"]
    assert "safeBinProfiles.cat" in found[0]
    assert "runs code" in found[1]
    assert "is writable by others" in found[3]
    assert "does not exist" in found[5]
    assert "absolute" in found[6]
    assert list(safe_bin_warnings(RULES)) == []

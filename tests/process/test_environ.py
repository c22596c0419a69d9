"""What commands get of clawkit's environment, and what a call may add to it."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.process.env_blocklist import HARMLESS, PROXIES, REFUSED, REFUSED_PREFIXES, why_refused
from clawkit.process.environ import (
    DEFAULT_PATH,
    MAX_BYTES,
    MAX_VARIABLES,
    absolute_dirs,
    build,
    check_overrides,
    inherited,
    join_path,
)
from clawkit.redact import is_secret_name

ORDINARY = """
    LANG LC_ALL LC_CTYPE LANGUAGE TERM COLORTERM TZ CI NODE_ENV PYTHONUNBUFFERED
    PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONHASHSEED PYTHONUTF8 TMPDIR NO_COLOR FORCE_COLOR
    COLUMNS LINES RUST_LOG RUST_BACKTRACE GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE
    GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE GIT_TERMINAL_PROMPT GIT_OPTIONAL_LOCKS
    GIT_LFS_SKIP_SMUDGE CARGO_TARGET_DIR CARGO_TERM_COLOR CARGO_INCREMENTAL GOOS GOARCH CGO_ENABLED
    GOMAXPROCS MPLBACKEND RAILS_ENV MIX_ENV PIP_NO_CACHE_DIR PIP_DISABLE_PIP_VERSION_CHECK
    DEBIAN_FRONTEND DOTNET_CLI_TELEMETRY_OPTOUT USER LOGNAME LS_COLORS TOKENIZERS_PARALLELISM
    HOMEBREW_PREFIX NVM_DIR PYENV_ROOT CCACHE_DIR
    """.split()  # noqa: SIM905  # a list this long is read as a text

# A call may set these, but what clawkit was started with is not known to be harmless.
UNKNOWN = """
    FOO DEBUG PORT HOST DJANGO_SETTINGS_MODULE FLASK_APP BUNDLE_WITHOUT BUNDLE_JOBS EDITION
    PAGER_COLOR LDAP_HOST KEYBOARD AUTHOR SECRETARY ENVIRONMENT PATHS SHELLCHECK_OPTS MAKE_JOBS
    DISPLAY WAYLAND_DISPLAY XAUTHORITY OP_SESSION_my ADMINPASS MYSECRETVALUE LC_PASSPHRASE Lang lang
    """.split()  # noqa: SIM905

# Each of these makes some harmless command run other code, whatever the tables are arranged like.
STEERING = """
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES GCONV_PATH GLIBC_TUNABLES BASH_ENV ENV
    SHELLOPTS BASHOPTS PS4 IFS CDPATH BASH_FUNC_ls BASH_LOADABLES_PATH BASH_XTRACEFD SHELL
    NODE_OPTIONS NODE_PATH PYTHONPATH PYTHONHOME PYTHONINSPECT PYTHONPLATLIBDIR PYTHONPYCACHEPREFIX
    PERL5LIB PERL5OPT PERLLIB RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS
    DOTNET_STARTUP_HOOKS CORECLR_PROFILER LUA_INIT LUA_INIT_5_4 LUA_INIT_5_9 GIT_DIR GIT_EXEC_PATH
    GIT_EXTERNAL_DIFF GIT_EDITOR GIT_TEMPLATE_DIR CC CXX RUSTC_WRAPPER GCC_EXEC_PREFIX COMPILER_PATH
    MAKEFLAGS GNUMAKEFLAGS MAKEFILES CMAKE_TOOLCHAIN_FILE GOCACHEPROG TAR_OPTIONS RSYNC_RSH
    RIPGREP_CONFIG_PATH LESSKEYIN OPENSSL_MODULES AWKLIBPATH EXINIT VIMINIT HGRCPATH
    """.split()  # noqa: SIM905

REFUSED_ONLY = """
    PATH HOME ZDOTDIR XDG_CONFIG_HOME XDG_FOO GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_KEY_0
    GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_PARAMETERS GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS
    GIT_TRACE GIT_TRACE2_EVENT SSH_ASKPASS LESSOPEN LESS EDITOR VISUAL KUBE_EDITOR DELTA_FOO_PAGER
    PROMPT_COMMAND PYTHONSTARTUP PYTHONWARNINGS PYTEST_ADDOPTS npm_config_script_shell NPM_CONFIG_X
    YARN_YARN_PATH PIP_INDEX_URL UV_INDEX UV_INDEX_CORP_PASSWORD GOFLAGS GOPROXY RUSTFLAGS
    RUSTUP_TOOLCHAIN CARGO_HOME CARGO_REGISTRIES_X_INDEX
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER CARGO_TARGET_AARCH64_APPLE_DARWIN_RUNNER
    HTTP_PROXY https_proxy NO_PROXY SSL_CERT_FILE
    NODE_TLS_REJECT_UNAUTHORIZED DOCKER_HOST KUBECONFIG AWS_ACCESS_KEY_ID AWS_PROFILE AWS_ANYTHING
    ANSIBLE_CONFIG TF_VAR_x TF_TOKEN_app_terraform_io TF_CLI_ARGS_plan GH_TOKEN DATABASE_URL
    SSH_AUTH_SOCK LUA_PATH LUA_CPATH_5_4 BUNDLE_GEMS__EXAMPLE__COM TERMINFO MALLOC_PERTURB_
    CLAWKIT_COMMAND CLAWKIT_HOME OPENCLAW_SHELL GIT_ALLOW_PROTOCOL GIT_PROTOCOL_FROM_USER
    """.split()  # noqa: SIM905


@table("name", STEERING)
def test_what_loads_code_is_neither_passed_on_nor_accepted(name: str) -> None:
    for spelled in (name.upper(), name.lower(), name.swapcase(), name.title()):
        assert inherited({spelled: "x"}) == {}
        with pytest.raises(ToolAuthorizationError, match=f"{spelled} \\(") as refusal:
            check_overrides({"FOO": "1", spelled: "x"})
        assert refusal.value.reason == "environment"


@table("name", sorted({*REFUSED_ONLY, *REFUSED, *(f"{p}x" for p in REFUSED_PREFIXES)}))
def test_what_redirects_a_program_is_not_accepted(name: str) -> None:
    for spelled in (name, name.upper(), name.lower()):
        with pytest.raises(ToolAuthorizationError, match=f"{spelled} \\("):
            check_overrides({spelled: "x"})


@table("name", ORDINARY)
def test_ordinary_variables_are_passed_on_and_accepted(name: str) -> None:
    assert inherited({name: "a value"}) == {name: "a value"}
    assert check_overrides({name: "a value"}) == {name: "a value"}


@table("name", UNKNOWN)
def test_unknown_variables_are_accepted_but_only_passed_on_when_named(name: str) -> None:
    assert check_overrides({name: "a value"}) == {name: "a value"}
    assert inherited({name: "a value"}) == {}
    assert inherited({name: "a value"}, keep=[name]) == {name: "a value"}


@table(
    "name",
    """
    HOME XDG_RUNTIME_DIR RUSTUP_HOME HTTP_PROXY https_proxy no_proxy SSL_CERT_FILE
    REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS DOCKER_HOST KUBECONFIG GOOGLE_APPLICATION_CREDENTIALS
    AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_WEB_IDENTITY_TOKEN_FILE SSH_AUTH_SOCK PAGER
    GIT_PAGER JAVA_HOME TERMINFO
    """.split(),  # noqa: SIM905
)
def test_what_the_operator_set_up_for_the_machine_is_passed_on(name: str) -> None:
    assert inherited({name: "/some/where"}) == {name: "/some/where"}


@table(
    "name",
    """
    ANTHROPIC_API_KEY OPENAI_API_KEY OPENAI_KEY GITHUB_TOKEN GH_TOKEN NPM_TOKEN AWS_ACCESS_KEY_ID
    AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN DATABASE_URL REDIS_URL DB_PASSWORD PGPASSWORD MYSQL_PWD
    SMTP_PASS REGISTRY_AUTH SENTRY_DSN SLACK_WEBHOOK_URL API_TOKENS STORAGE_CONNECTION_STRING
    TF_TOKEN_app_terraform_io TF_VAR_db DOCKER_AUTH_CONFIG DOCKER_PASSWORD XDG_SESSION_TOKEN
    CLAWKIT_HOME CLAWKIT_GATEWAY_TOKEN OPENCLAW_STATE_DIR clawkit_x GIT_CONFIG_COUNT
    CREDENTIALS_DIRECTORY NOTIFY_SOCKET PWD VIRTUAL_ENV DBUS_SESSION_BUS_ADDRESS SHELL LD_PRELOAD
    """.split(),  # noqa: SIM905
)
def test_credentials_and_what_is_clawkits_own_are_not_passed_on_unless_named(name: str) -> None:
    assert inherited({name: "v", "TZ": "UTC"}) == {"TZ": "UTC"}
    assert inherited({name: "v"}, keep=["OTHER", name]) == {name: "v"}
    assert inherited({name: "v"}, keep=[name.swapcase()]) == {}


SECRET = 'p4ss/w"rd+long'


@table(
    "value",
    [
        SECRET,
        f"prefix {SECRET} suffix",
        "p4ss%2Fw%22rd%2Blong",
        "Authorization: Basic dXNlcjpwNHNzL3cicmQrbG9uZw==",
        "postgres://me:hunter2@db.example/app",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----",
    ],
)
def test_a_secret_is_not_passed_on_under_a_harmless_name(value: str) -> None:
    assert inherited({"LESS": value}, secrets=[SECRET]) == {}
    assert inherited({"LESS": value}, keep=["LESS"], secrets=[SECRET]) == {"LESS": value}


def test_only_the_secrets_that_are_configured_are_looked_for() -> None:
    assert inherited({"LESS": SECRET}) == {"LESS": SECRET}
    assert inherited({"LESS": "a short word"}, secrets=["short", ""]) == {"LESS": "a short word"}


def test_colours_of_files_are_not_taken_for_a_credential() -> None:
    environ = {"LS_COLORS": "rs=0:di=01;34:ln=01;36:*.tar=01;31:*.key=00;32:*.pem=00;32:"}
    assert inherited(environ) == environ


def test_proxies_and_the_home_directory_stay_whatever_is_secret() -> None:
    environ = {
        "HTTPS_PROXY": f"http://me:{SECRET}@proxy:3128",
        "http_proxy": "http://me:hunter2@proxy:3128",
        "HOME": "/home/administrator",
        "USER": "administrator",
    }
    assert inherited(environ, secrets=[SECRET, "administrator"]) == environ


@table(
    ("value", "passed"),
    [
        ("git:http:https:ssh", "git:http:https:ssh"),
        ("https:ext:file", "https"),
        ("ext", ""),
        ("", ""),
        ("HTTPS:https ", ""),
    ],
)
def test_git_may_only_use_the_usual_protocols(value: str, passed: str) -> None:
    environ = {"GIT_ALLOW_PROTOCOL": value}
    assert inherited(environ) == {"GIT_ALLOW_PROTOCOL": passed}
    assert inherited(environ, keep=["GIT_ALLOW_PROTOCOL"]) == {"GIT_ALLOW_PROTOCOL": passed}


@table("value", ["1", "true", "yes", "", "0"])
def test_git_never_takes_a_protocol_for_the_users_choice(value: str) -> None:
    environ = {"GIT_PROTOCOL_FROM_USER": value}
    assert inherited(environ) == {"GIT_PROTOCOL_FROM_USER": "0"}


BAD_NAMES = [
    "",
    "A-B",
    "A B",
    "A=B",
    "=",
    "1A",
    "A\n",
    "\nA",
    "A\0B",
    "é",
    "FOOſ",
    "\u212a",  # the sign for kelvin, whose lower case is a plain k
    "BASH_FUNC_x%%",
    "BASH_FUNC_x()",
    "\udcff",
    "\ud800",
    "A\u202e",
]


@table("name", BAD_NAMES)
def test_a_name_that_no_shell_can_have_is_dropped_or_refused(name: str) -> None:
    assert inherited({name: "x"}, keep=[name]) == {}
    with pytest.raises(ToolInputError, match="env: invalid variable name") as error:
        check_overrides({name: "x"})
    assert not isinstance(error.value, ToolAuthorizationError)
    assert str(error.value).isprintable()
    assert str(error.value).isascii()


@table(
    ("value", "words"),
    [
        ("a\0b", "NUL"),
        ("\ud800", "lone surrogate"),
        ("x" * (MAX_BYTES - 4), "the limit is"),
        ("é" * (MAX_BYTES // 2), "the limit is"),
    ],
)
def test_a_value_that_cannot_be_passed_is_refused(value: str, words: str) -> None:
    with pytest.raises(ToolInputError, match=f"FOO in env.*{words}"):
        check_overrides({"FOO": value})


def test_the_longest_accepted_value_can_be_given_to_a_program() -> None:
    given_env = {"FOO": "x" * (MAX_BYTES - 5), "RAW": "a\udcffb", "EMPTY": "", "LINES2": "a\nb"}
    env = build({}, check_overrides(given_env), path=DEFAULT_PATH, extra={})
    said = subprocess.run(["/usr/bin/env", "-0"], env=env, capture_output=True, check=True).stdout
    assert {os.fsdecode(line) for line in said.split(b"\0") if line} == {
        f"{name}={value}" for name, value in env.items()
    }


def test_the_number_and_the_total_size_are_limited() -> None:
    most = {f"V{number}": "x" for number in range(MAX_VARIABLES)}
    assert check_overrides(most) == most
    with pytest.raises(ToolInputError, match="257 variables; at most 256 are allowed"):
        check_overrides(most | {"ONE_MORE": "x"})
    big = {f"V{number}": "x" * 100_000 for number in range(5)}
    assert check_overrides(big) == big
    with pytest.raises(ToolInputError, match="the limit is 512 KB"):
        check_overrides(big | {"ONE_MORE": "x" * 100_000})


def test_a_refusal_names_every_key_and_why() -> None:
    with pytest.raises(ToolAuthorizationError) as refusal:
        check_overrides({"FOO": "1", "LD_PRELOAD": "/x.so", "node_options": "-r x", "HOME": "/x"})
    message = str(refusal.value)
    assert "LD_PRELOAD (decides which libraries programs load)" in message
    assert "node_options (loads code into Node.js)" in message
    assert "HOME (says where settings and personal files are)" in message
    assert "FOO" not in message
    assert "/x.so" not in message


def test_a_long_name_is_shortened_in_a_refusal() -> None:
    with pytest.raises(ToolAuthorizationError) as refusal:
        check_overrides({"LD_" + "A" * 5000: "1"})
    assert len(str(refusal.value)) < 300


@table("name", ["PATH", "Path", "path"])
def test_setting_path_is_refused_with_advice(name: str) -> None:
    with pytest.raises(ToolAuthorizationError, match=r"absolute path.*tools\.exec\.pathPrepend"):
        check_overrides({name: "/opt/bin"})
    with pytest.raises(ToolAuthorizationError) as refusal:
        check_overrides({"HOME": "/x"})
    assert "pathPrepend" not in str(refusal.value)


def test_the_case_of_a_name_hides_nothing() -> None:
    with pytest.raises(ToolAuthorizationError, match="Node_Options"):
        check_overrides({"FOO": "1", "foo": "2", "Node_Options": "--require=/x"})
    assert check_overrides({"FOO": "1", "foo": "2"}) == {"FOO": "1", "foo": "2"}


@table("name", ["PAGER", "GIT_PAGER", "MANPAGER", "AWS_PAGER", "pager"])
def test_a_pager_may_only_be_turned_off(name: str) -> None:
    assert check_overrides({name: ""}) == {name: ""}
    assert check_overrides({name: "cat"}) == {name: ""}
    for value in ("cat ", "/tmp/cat", "cat;id", "less", " "):
        with pytest.raises(ToolAuthorizationError, match=name):
            check_overrides({name: value})


@table("value", ["", "cat"])
def test_nothing_else_may_be_turned_off(value: str) -> None:
    with pytest.raises(ToolAuthorizationError):
        check_overrides({"EDITOR": value})
    with pytest.raises(ToolAuthorizationError):
        check_overrides({"LD_PRELOAD": value})


def spelled_in_any_case(name: str) -> st.SearchStrategy[str]:
    letters = [st.sampled_from([letter.lower(), letter.upper()]) for letter in name]
    return st.tuples(*letters).map("".join)


TABLED = sorted({*HARMLESS, *REFUSED, *REFUSED_PREFIXES})
NAMES = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True),
    st.sampled_from(TABLED).flatmap(spelled_in_any_case),
    st.tuples(st.sampled_from(TABLED), st.from_regex(r"\w{0,4}", fullmatch=True)).map("".join),
)


@given(st.dictionaries(NAMES, st.text(max_size=20), max_size=8), st.data())
def test_nothing_but_what_is_harmless_or_named_gets_through(
    environ: dict[str, str], data: st.DataObject
) -> None:
    keep = data.draw(st.lists(st.sampled_from(sorted(environ)))) if environ else []
    passed = inherited(environ, keep=keep)
    assert passed.keys() <= environ.keys()
    for name in passed:
        assert name.isascii()
        assert name.isidentifier()
        assert name in keep or name in HARMLESS or name.upper() in PROXIES
    try:
        accepted = check_overrides(environ)
    except ToolInputError:
        return
    for name, value in accepted.items():
        assert not why_refused(name) or (name.upper().endswith("PAGER") and not value)
        assert "\0" not in value


def test_no_harmless_variable_is_named_like_a_credential() -> None:
    path_of_a_file = "GOOGLE_APPLICATION_CREDENTIALS"
    assert [name for name in HARMLESS if is_secret_name(name)] == [path_of_a_file]
    assert not [name for name in (*REFUSED, *HARMLESS, *PROXIES) if name != name.upper()]


@table(
    ("own", "login", "prepend", "joined"),
    [
        ("/a:/b", "", [], "/a:/b"),
        ("", "/a:/b", [], "/a:/b"),
        ("/venv/bin:/usr/bin:/bin", "/usr/local/bin:/usr/bin:/bin", [], None),
        ("/a:/b", "/b:/c", ["/c", "/d"], "/c:/d:/a:/b"),
        ("/a:/a/:/a//", "/b/:/b", [], "/a:/b/"),
        (":/a::.:bin:./x:../y:~/z:", "/b:", ["", ".", "rel", "~/bin"], "/a:/b"),
        ("", "", ["/x:/y::rel:/x"], "/x:/y"),
        ("/a\0/b:/c\n/d:/e", "", ["/f\0"], "/e"),
        ("/", "/", ["/"], "/"),
        ("", "", [], DEFAULT_PATH),
        (".:", ":rel", ["rel"], DEFAULT_PATH),
    ],
)
def test_path_is_joined(own: str, login: str, prepend: list[str], joined: str | None) -> None:
    expected = joined or "/venv/bin:/usr/local/bin:/usr/bin:/bin"
    assert join_path(own, login, prepend) == expected


@given(st.text("/ab:.\n\0 ", max_size=20), st.text("/ab:.", max_size=20), st.text("/ab:."))
def test_a_joined_path_never_leads_to_the_current_directory(
    own: str, login: str, prepend: str
) -> None:
    folders = join_path(own, login, [prepend]).split(":")
    assert folders
    assert all(folder.startswith("/") for folder in folders)
    assert len(folders) == len(set(folders))
    assert list(absolute_dirs(":".join(folders))) == folders


def test_clawkits_own_variables_win() -> None:
    env = build(
        {"A": "base", "B": "base", "PATH": "/base", "TERM": "base"},
        {"B": "given", "C": "given", "PATH": "/given"},
        path="/joined",
        extra={"C": "extra", "TERM": "dumb"},
    )
    assert env == {"A": "base", "B": "given", "C": "extra", "PATH": "/joined", "TERM": "dumb"}

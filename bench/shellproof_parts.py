"""The parts of generated commands: names, words, patterns, redirections; many are refused."""

from __future__ import annotations

from bench.shellproof_place import LATER, PROBES, names

PLAIN = names("ls cat grep git make wc head sort tee a b foo probe later both")
ODD = tuple(name for name in (*PROBES, *LATER) if name not in PLAIN)
STRANGE = (
    *("script", "spaced", "twice", "byenv", "lost", "windows", "plain", "folder", "also"),
    *("broken", "loop", "missing", "ls/", "nowhere/ls", "./tool", "sub/tool", "link/tool"),
    *("./sub/../tool", "up/ws/tool", "link/../tool", "../bin/foo", ".//tool", "/bin/true"),
    *("/usr/bin/env", "./gone", "./a.txt", "./sub", "sub/ls", "/usr/bin/../bin/true"),
    *("//bin/true", "~/tool", "~+/tool", "../ws/tool", "./-x", "link/../../bin/ls"),
)
WORDS = (
    *("a", "b", "x", "-n", "-x", "--", "-", "--flag", "--key=value", "-abc", "a.txt", "sub", "1"),
    *("x y", "", " ", "a'b", 'say "hi"', "$HOME", "`id`", "$(id)", "a;b", "a&&b", "#no", "a#b"),
    *("*", "?", "[ab]", "{a,b}", "~", "~/x", "a~", "!", "!x", "=", "a=b", "A=1", "\\", "\\n"),
    *("%s", "if", "then", "fi", "do", "done", "{", "}", "in", "time", "[[", "]]", "(", ")", "|"),
    *(">", "&", "é", "\u00a0", "\u3000x", "日本", "ß\\", "x\ty", "two\nlines", "\u200b", "\ufeff"),
    *("ソ", "功\\", "2", "12", "1.5", "0x10", "%d", "-e", "-c", "]", "a]", "$", "a$", "$'x'"),
    *("EOF", "E", ",", "^"),
)
PATTERNS = (
    *("*", "*.txt", "?.txt", "[ab].txt", "[!a].txt", "[^a]*", "sub/*", "*/a.txt", "-*"),
    *("nomatch*", "[a-c].md", "s*/d*/b.txt", "'a'*", '"sp "*', "\\-*", "*'.txt'", "~/*", "[z]*"),
    *(".*", "a[", "[]"),
)
BRACES = (
    *("{a,b}.txt", "{a,b}{1,2}", "x{,y}", "{a,b", "{a}", "{}", "a{b,c}d", "{a,b,c}", "{1..3}"),
    *("{a,*}", "{'a',b}", "{a,{b,c}}", "{a\\,b}", "-{n,x}", "{x,y}.{txt,md}", "{a b,c}", "a{,}b"),
)
TARGETS = (
    *("out", "a.txt", "sub/out", "/dev/null", "link/out", "'sp ace.txt'", "missing/x", "to-a"),
    *("-x", "../ws/out", "up/ws/out", "./out", '"o u t"', "~/out", "gone", "sub", "/out", "é"),
    *("o\\ ut", "1"),
)
TILDES = ("~", "~/notes", "~/'x y'", "a~b", "~x", "'~'", "\\~", "~/", "x=~", "~\\/x", "~/a.txt")
LOOPS = ("f", "i", "x", "name", "v", "A", "HOME", "IFS", "f1", "n_2")
NUMBERS = ("", "", "", "1", "2", "0", "3", "10")
OPERATORS = (">", ">", ">>", "<", ">|", "&>", "&>>", "<>")
JOINED = (
    *("2>&1", ">&2", "2>/dev/null", ">/dev/null", "</dev/null", "&>/dev/null", "2>&1 >&2", "<&0"),
    *("2<&1", "1>&2", "0<&1", "<&3", ">&1-", "2>&-"),
)
TIMES = ("! ", "time ", "time -p ", "! time ", "!  ", "time ! ")
FOLDERS = (
    *("sub", "sub/deep", "link", "..", ".", "up", "missing", "/", "sub/..", "link/..", "sub/"),
    *("~", "'sub'", "./sub", "up/ws", "loop", "a.txt", "--", "-- sub", "-", "", "-P link", "''"),
    *('"sub"',),
)
ASSIGNS = (
    *("A=1", "A=", "A='x y'", "B=$'a\\tb'", "A=~", "A=a:~", "A=~/x", "A=*", "A={a,b}", "A=1 B=2"),
    *("A+=1", "A[0]=1", "A=(1)", "PATH=/bin", "IFS=x", "LANG=C.UTF-8", "LC_ALL=C", "f=1", "a-b=1"),
    *("A=$A", 'A="a b"', "A=b=c", "A=1\\ 2", "_=1", "LD_PRELOAD=x", "1A=x", "A=$(id)", "A='~'"),
)
BUILTINS = (
    *("echo", "echo x y", "echo -n x", "echo -e 'a\\tb'", "echo *", "true", "false", ":", "pwd"),
    *("pwd -P", "printf '%s\\n' a b", "printf %d 5", "printf -v x a", "printf '%q' 'a b'"),
    *("printf x", "test -f a.txt", "[ a = b ]", "[ a = a ]", "[ -d sub ]", "test 1 -lt 2"),
    *("[ ! -f no ]", "[ x", "set -e", "set -u", "set -o pipefail", "set -eu", "set +e", "set -x"),
    *("set -- a", "exit 3", "exit", "export A=1", "export B='x y' C=2", "export A", "export -n A"),
    *("command -v ls", "command -v nothing", "command -V ls", "type ls", "hash", "umask", "wait"),
    *("shift", "read x", "unset A", "eval ls", ". a.txt", "source a.txt", "trap ls EXIT"),
    *("alias ls=foo", "times", "let x=1", "test a -a b", "test -v x", "[ a -eq b ]"),
    *("builtin echo x", "enable -n echo", "declare A=1", "exec >out", "exec 2>&1", "exit 3 4"),
    *("export A=~", "export 'A=x y'", "A=1 export B=2", "A=1 :", "cd", "[ -t 0 ]", "[ a -nt b ]"),
    *("printf '%(%s)T'", "set -o posix", "command command ls", "command -- :", "cd .. .."),
)
OPENINGS: dict[str, tuple[str, ...]] = {
    "env": ("", "--", "A=1", "-i", "-u A", "-S", "-"),
    "timeout": (
        *("5", "5s", "-s KILL 5", "-k 1 5", "--signal=INT 9", "--foreground 5", "-v 5", "5 --"),
        "",
    ),
    "nice": ("", "-n 5", "-5", "-n5", "--adjustment=1", "--", "-n", "--adjust 1"),
    "nohup": ("", "--"),
    "stdbuf": ("-oL", "-o 0", "-i0 -o0", "--output=L", "-o", "--"),
    "command": ("", "--", "-p", "-v"),
    "exec": ("", "--", "-a x", "-c"),
    "time": ("", "-p", "--", "-f x"),
}
WILD = (
    *("$(ls)", "`ls`", "${x:-y}", "${#x}", "$((1+1))", "$[1+1]", "<(ls)", ">(cat)", '$"x"', "$x"),
    *("$1", '"$(ls)"', '"${x}"', "$@", "$?", "$$", "$!", "${!x}", "$_", '"$@"', "${x[0]}", "$-"),
    *("~+", "~root", "@(a|b)", "!(a)", "+(a)", "a=(1 2)", "$'\\x41'", "$'\\u00e9'", "$'\\'"),
    *("$'\\cA'", "\\", '"\\', "'"),
)
WILD_COMMANDS = (
    *("((1))", "((x=1))", "[[ a = b ]]", "[[ -f a.txt ]]", "case a in a) ls;; esac"),
    *("f() { ls; }; f", "function f { ls; }", "while false; do ls; done"),
    *("until true; do ls; done", "ls &", "ls & cat", "coproc ls", "select x in a; do ls; done"),
    *("for ((i=0;i<1;i++)); do ls; done", "for x; do ls; done", "ls <> a.txt", "ls 3> out"),
    *("ls {fd}>out", "ls >& out", "ls 2>&-", "cat <<E\n$(ls)\nE", "ls <&-", "cat <<E\nx\nE"),
    *("cat <<-E\n\tx\n\tE", "if ls; then fi", "( )", "{ }", "{ls;}", "ls ;; cat", "! ! ls"),
    *("time", "time -p", "!", "ls |", "&& ls", "ls ||", "if", "a() ( ls )", "ls\\", "time -x ls"),
    *("! time ls",),
)
ONCE = (
    *("sh -c 'exec -- ls'", "exec -- ls", "command -- ls", "exec '~/tool' x", "exec '~+/tool'"),
    *("bash -c \"exec '~/tool'\"", "command exec '~/tool'", "command '~/tool'", "'%' a", "%x"),
    *("sh -c \"sort \\$'A=1'\"", "sh -c \"\\$'later'\"", "sh -c 'grep -{n,x}'"),
    *("cd missing/.. && a", "cd sub/../nowhere/.. || a", "dash -c 'cd .. && ls'"),
    "sh -c 'b; for n in ;do tee <<< x;done'",
    *("sh -c 'printf %q x'", "tool x", "env tool", "nowhere", "timeout 5 lost x", "exec byenv x"),
    *("for f in ls cat; do $f; done", "A=1 exec ls", "exec ls | cat", "sh -c 'A=1 :; ls'"),
)
"""Commands that were once not what they were said to be, and their neighbours."""

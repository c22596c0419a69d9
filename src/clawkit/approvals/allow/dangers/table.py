"""The programs that people allow most, and what to look for in their arguments."""

from __future__ import annotations

from clawkit.approvals.allow.dangers import (
    compilers,
    containers,
    files,
    git,
    network,
    scripts,
    tools,
)
from clawkit.approvals.allow.dangers.sheet import RUNS, Sheet, make_sheet, words

_INTERACTIVE = f"it is made for a keyboard, and from there it {RUNS}"

_FIND = make_sheet(
    runs="-exec -execdir -ok -okdir",
    writes="-fprint -fprint0 -fprintf -fls",
    deletes="-delete",
    reads="-files0-from",
    single=True,
    exact=True,
)
_FD = make_sheet(runs="-x --exec -X --exec-batch", values="dEteSocjC")
_NPM = make_sheet(
    runs="--script-shell --shell --editor --browser --viewer --git --node-gyp --call -c",
    loads="--node-options --userconfig --globalconfig --init-module --onload-script --require "
    "--use-yarnrc --preload",
    reaches="--prefix --dir --cwd --package",
    both=True,
    fine="prefix dir cwd global ca",
    check=tools.check_package_tool,
)
_NODE = make_sheet(
    loads="-r --require --import --loader --experimental-loader --env-file --env-file-if-exists "
    "--openssl-config --experimental-config-file --experimental-default-config-file "
    "--test-reporter --test-global-setup --snapshot-blob --build-snapshot-config",
    runs="--run",
    reaches="--inspect --inspect-brk --inspect-port --inspect-wait --inspect-publish-uid "
    "--debug-port",
    writes="--redirect-warnings --diagnostic-dir --trace-event-file-pattern --cpu-prof-dir "
    "--heap-prof-dir --report-dir --report-directory --report-filename "
    "--test-reporter-destination --experimental-sea-config",
    values="Cep",
    exact=True,
)
_DOCKER = make_sheet(check=containers.check_docker)
_COMPILER = make_sheet(check=compilers.check_compiler)
_COPY = make_sheet(check=files.check_copy)
_NAMES = make_sheet(check=files.check_names)
_AWK = make_sheet(check=scripts.check_awk)
_SED = make_sheet(check=scripts.check_sed)
_MYSQL = make_sheet(check=scripts.check_mysql)
_PIP = make_sheet(
    loads="--python --keyring-provider",
    writes="--log --log-file",
    runs="--editor",
    check=tools.check_pip,
)
_TEX = make_sheet(check=tools.check_tex)
_PAGERS = make_sheet(runs="--pager", loads="--ackrc")

SHEETS: dict[str, Sheet] = {
    "git": make_sheet(check=git.check_git),
    "find": _FIND,
    "gfind": _FIND,
    "fd": _FD,
    "fdfind": _FD,
    "rg": make_sheet(runs="--pre --hostname-bin"),
    "ag": _PAGERS,
    "ack": _PAGERS,
    "ack-grep": _PAGERS,
    **dict.fromkeys(("tar", "gtar"), make_sheet(check=files.check_tar)),
    "zip": make_sheet(check=files.check_zip),
    "unzip": make_sheet(check=files.check_unzip),
    **dict.fromkeys(("cp", "mv", "install", "ln"), _COPY),
    **dict.fromkeys(words("touch mkdir rmdir rm unlink truncate shred chmod chown chgrp"), _NAMES),
    **dict.fromkeys(words("mkfifo mknod"), _NAMES),
    **dict.fromkeys(
        words("gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd lz4 unlz4 compress"),
        make_sheet(check=files.check_packer),
    ),
    "dd": make_sheet(check=files.check_dd),
    "patch": make_sheet(check=files.check_patch),
    "rsync": make_sheet(check=network.check_rsync),
    "ssh": make_sheet(check=network.check_ssh),
    **dict.fromkeys(("scp", "sftp"), make_sheet(check=network.check_scp)),
    "curl": make_sheet(check=network.check_curl),
    "wget": make_sheet(check=network.check_wget),
    "sed": _SED,
    "gsed": _SED,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _AWK),
    **dict.fromkeys(("make", "gmake"), make_sheet(check=tools.check_make)),
    **dict.fromkeys(("npm", "npm-cli", "pnpm", "yarn", "yarnpkg", "bun"), _NPM),
    "node": _NODE,
    "nodejs": _NODE,
    "pip": _PIP,
    "cargo": make_sheet(loads="--config -Z", values="pFj", check=tools.check_cargo),
    **dict.fromkeys(("docker", "podman", "nerdctl"), _DOCKER),
    "docker-compose": make_sheet(check=containers.check_compose),
    "kubectl": make_sheet(check=containers.check_kubectl),
    "tee": make_sheet(check=files.check_tee),
    "sort": make_sheet(
        runs="--compress-program",
        reads="--files0-from",
        writes="-T --temporary-directory",
        values="koSt",
        check=files.check_sort,
    ),
    "shuf": make_sheet(check=files.check_shuf),
    "uniq": make_sheet(check=files.check_uniq),
    "split": make_sheet(runs="--filter", check=files.check_split),
    "xxd": make_sheet(check=files.check_xxd),
    "openssl": make_sheet(check=tools.check_openssl),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++", "cpp"), _COMPILER),
    **dict.fromkeys(("ld", "as"), make_sheet(check=compilers.check_linker)),
    "go": make_sheet(
        runs="-exec -toolexec -vettool -pkgconfig",
        loads="-overlay -modfile",
        single=True,
        exact=True,
        check=tools.check_go,
    ),
    **dict.fromkeys(
        ("pytest", "py.test"),
        make_sheet(
            loads="-c --config-file -o --override-ini --pdbcls",
            deletes="--basetemp",
            writes="--log-file --junitxml --junit-xml",
            values="pkmrnW",
            fine="co pdb",
            check=tools.check_pytest,
        ),
    ),
    "ansible": make_sheet(check=tools.always(f"it {RUNS} on other machines")),
    "ansible-playbook": make_sheet(
        runs="--vault-password-file --vault-pass-file --vault-id",
        loads="-M --module-path",
        values="eilutf",
    ),
    **dict.fromkeys(("ffmpeg", "ffprobe", "ffplay"), make_sheet(check=tools.check_ffmpeg)),
    "sqlite3": make_sheet(check=scripts.check_sqlite),
    "psql": make_sheet(check=scripts.check_psql),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "php": make_sheet(
        loads="-c -z --php-ini --zend-extension --define",
        reaches="-S --server",
        values="dtbrBREfF",
        check=tools.check_php,
    ),
    "ruby": make_sheet(
        loads="-r -I -C -X -x -S --require",
        writes="-i",
        values="eEFKTW",
    ),
    "perl": make_sheet(loads="-M -m -I -x -S -d -D -u", writes="-i", values="eEF"),
    "lua": make_sheet(loads="-l", values="e"),
    "java": make_sheet(check=tools.check_java),
    **dict.fromkeys(("tex", "latex", "pdflatex", "pdftex", "xelatex", "lualatex"), _TEX),
    "pandoc": make_sheet(check=tools.check_pandoc),
    **dict.fromkeys(("nc", "ncat", "netcat"), make_sheet(check=network.check_netcat)),
    "tcpdump": make_sheet(check=network.check_tcpdump),
    "nmap": make_sheet(check=network.check_nmap),
    "hg": make_sheet(
        loads="--config --config-file --debugger",
        reaches="-R --repository --cwd",
        check=tools.check_hg,
    ),
    "svn": make_sheet(
        runs="--diff-cmd --diff3-cmd --editor-cmd", loads="--config-option --config-dir"
    ),
    **dict.fromkeys(
        ("apt", "apt-get", "apt-cache", "aptitude"),
        make_sheet(loads="-o --option -c --config-file", values="t"),
    ),
    "gh": make_sheet(check=containers.check_gh),
    **dict.fromkeys(
        words("""
        less more most pg man info vi vim nvim view vimdiff ex ed red nano pico emacs emacsclient
        joe micro mc ranger nnn lf vifm tig lazygit lynx links elinks w3m ftp lftp telnet mail mutt
        mailx dc gnuplot
        """),
        make_sheet(check=tools.always(_INTERACTIVE)),
    ),
}
"""By base name."""

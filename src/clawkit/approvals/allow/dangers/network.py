"""Programs that fetch and send: which files they read and write, and what they start."""

from __future__ import annotations

import re
from urllib.parse import unquote

from clawkit.approvals.allow.dangers.known import Given, make_known, read_known
from clawkit.approvals.allow.dangers.sheet import READS, RUNS, WRITES, Call, read_options, words
from clawkit.approvals.operands import base_name

_SSH_VALUES = "BbcDEeFIiJLlmOoPpQRSWw"
_SSH_OPTIONS = words(
    """
    addressfamily batchmode checkhostip ciphers compression connectionattempts connecttimeout
    hostkeyalgorithms hostname identitiesonly kexalgorithms loglevel macs numberofpasswordprompts
    passwordauthentication port preferredauthentications pubkeyauthentication requesttty
    serveralivecountmax serveraliveinterval stricthostkeychecking tcpkeepalive user visualhostkey
    """
)
_SSH_OPTION = re.compile(r"\s*([A-Za-z0-9]+)")
_SCP = make_known("-3 -4 -6 -B -C -O -T -p -q -r -v -c= -i= -l= -o= -P=")
_REMOTE = re.compile(r"[^/]*:")
_MODULE = "a name that begins with a dash"

_CURL = make_known(
    """
    -s --silent -S --show-error -L --location -f --fail --fail-early --fail-with-body -i --include
    -I --head -k --insecure -v --verbose -g --globoff -G --get -N --no-buffer -# --progress-bar
    --no-progress-meter -4 --ipv4 -6 --ipv6 -0 --http1.0 --http1.1 --http2 --http3
    --http2-prior-knowledge --compressed -R --remote-time -Z --parallel --tlsv1.2 --tlsv1.3
    --tcp-nodelay --path-as-is --create-dirs -O --remote-name --remote-name-all --raw --anyauth
    --basic --digest --retry-all-errors --retry-connrefused --ssl-reqd -V --version --help
    -A= --user-agent= -b= --cookie= -C= --continue-at= -d= --data= --data-ascii= --data-binary=
    --data-raw= --data-urlencode= -e= --referer= -F= --form= --form-string= -H= --header= --json=
    -m= --max-time= --connect-timeout= -o= --output= --output-dir= --proto= --proto-redir= -r=
    --range= --resolve= --connect-to= --retry= --retry-delay= --retry-max-time= --max-redirs=
    --max-filesize= --limit-rate= -u= --user= --oauth2-bearer= --url= --url-query= -w= --write-out=
    -x= --proxy= --proxy-header= --noproxy= -X= --request= -y= -Y= --parallel-max= --cacert=
    --tls-max= --ciphers=
    """
)
_CURL_FORMS = frozenset({"-F", "--form"})
_CURL_NAMED = frozenset({"--data-urlencode", "--url-query"})
_CURL_PLACED = words(
    """
    -H --header --proxy-header -d --data --data-ascii --data-binary --data-urlencode --url-query
    --json -w --write-out
    """
)
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*):(?!\d)")
_PLAIN_SCHEMES = frozenset({"http", "https", "ftp", "ftps"})

_WGET = make_known(
    """
    -q --quiet -v --verbose --no-verbose -c --continue -N --timestamping -S --server-response -4 -6
    --inet4-only --inet6-only --no-check-certificate --show-progress --spider --no-cache
    --https-only --retry-connrefused --no-proxy --no-cookies --no-clobber --no-hsts -V --version -h
    --help -O=> --output-document=> -P= --directory-prefix= -o=> --output-file=> -a=>
    --append-output=> -t= --tries= -T= --timeout= --connect-timeout= --read-timeout= --dns-timeout=
    -U= --user-agent= -w= --wait= --waitretry= --header= --progress= --limit-rate= --max-redirect=
    --compression= --secure-protocol= --method= --body-data= --post-data= --referer= --user=
    --password=
    """
)
_WGET_SHORT = {"-nv": "--no-verbose", "-nc": "--no-clobber"}

_RSYNC = make_known(
    """
    -a --archive -v --verbose -q --quiet -r --recursive -l --links -p --perms -t --times -g --group
    -o --owner -D -P -h --human-readable -n --dry-run -i --itemize-changes -u --update -c --checksum
    -x --one-file-system -H --hard-links -A --acls -X --xattrs -S --sparse -R --relative -W
    --whole-file -C --cvs-exclude -m --prune-empty-dirs -z --compress -L --copy-links
    --copy-unsafe-links --safe-links -b --backup -E --executability -O --omit-dir-times -s
    --protect-args --progress --partial --stats --inplace --append --size-only --ignore-times
    --ignore-existing --existing --delete --delete-before --delete-during --delete-after
    --delete-excluded --force --mkpath --numeric-ids --no-perms --no-owner --no-group --no-times
    --no-links --list-only --version --help -4 -6 --ipv4 --ipv6 --old-args --exclude= --include=
    --exclude-from=< --include-from=< --chmod= --chown= --bwlimit= --timeout= --contimeout=
    --max-size= --min-size= --max-delete= --info= --debug= --compress-level= --compress-choice=
    --out-format= --port= --password-file=< --modify-window= -B= --block-size=
    """
)
_NETCAT = make_known("-z -v -n -4 -6 -u -N -h --help --version -w= -q= -i= -p= -s=")
_NMAP = re.compile(
    r"-(?:s[STUAWMNFXYVOLnC]{1,3}|P[nSAUYEPMOR][\d,-]*|T[0-5]|p.*|n|R|v{1,4}|vv|A|O|F|6|r|h|V)"
    r"|--(?:open|reason|version|help|unprivileged|traceroute|system-dns|top-ports(?:=\d+)?"
    r"|max-retries(?:=\d+)?|host-timeout(?:=\w+)?|min-rate(?:=\d+)?|max-rate(?:=\d+)?"
    r"|exclude(?:=[\w.,/-]+)?|packet-trace)",
    re.ASCII,
)
_TCPDUMP = make_known(
    """
    -A -D -e -f -K -l -L -n -N -O -p -q -S -t -u -U -v -x -X -h --help --version --list-interfaces
    -B= -c= -i= -I -j= -s= -T= -y= -r= --count --number
    """
)


def check_ssh(call: Call) -> str:
    """Up to the host: what is behind it belongs to the other side."""
    operands = 0
    for flag, value in read_options(call.arguments, _SSH_VALUES):
        if not flag:
            operands += 1
            if operands == 2:
                break
            if value.startswith("-"):
                return f"{_MODULE} {RUNS}"
        elif flag[1:] in ("F", "I") or flag.startswith("--"):
            return f"{flag[:2]} {RUNS}"
        elif flag == "-E":
            return f"-E {WRITES}"
        elif flag == "-o" and (why := _check_ssh_option(value)):
            return why
    return ""


def check_scp(call: Call) -> str:
    """Copies into the workspace, or to another machine."""
    if base_name(call.program.name) == "sftp":
        return f"it takes commands from its input, and one of them {RUNS}"
    given = read_known(call, _SCP)
    if given.why:
        return given.why
    for value in given.values("-o"):
        if why := _check_ssh_option(value):
            return why
    return _check_copy(call, given)


def _check_copy(call: Call, given: Given) -> str:
    """The last name is where it goes."""
    operands = given.operands
    if any(text.startswith("-") and text != "-" for text in operands):
        return f"{_MODULE} {RUNS}"
    if len(operands) < 2 or _REMOTE.match(operands[-1]):
        return ""
    return "" if call.may_write(operands[-1]) else f"it {WRITES}"


def _check_ssh_option(value: str) -> str:
    name = _SSH_OPTION.match(value)
    key = name[1].lower() if name else ""
    if key in _SSH_OPTIONS:
        return ""
    if key in ("userknownhostsfile", "globalknownhostsfile") and value.endswith("/dev/null"):
        return ""
    return f"-o with such an option could be one that {RUNS}"


def check_rsync(call: Call) -> str:
    """Copies into the workspace, or to another machine by the usual way."""
    given = read_known(call, _RSYNC)
    return given.why or _check_copy(call, given)


def check_curl(call: Call) -> str:
    """What is fetched stays where one works; no file is sent."""
    given = read_known(call, _CURL)
    if given.why:
        return given.why
    for flag, value in given.options:
        if flag in ("-b", "--cookie"):
            if "=" not in value:
                return f"{flag} {READS}"
        elif not flag or flag == "--url":
            if not _is_plain_address(value):
                return f"its address could be one that {READS}"
        elif (flag in _CURL_PLACED or flag in _CURL_FORMS) and _takes_file(flag, value):
            return f"{flag} with such a value {READS}"
    return _check_fetched(call, given)


def _is_plain_address(text: str) -> bool:
    """Whether curl surely takes an address for one on another machine."""
    address = text.lstrip()
    if not address.isprintable() or " " in address:
        return False
    # Several addresses are made of braces and brackets.
    scheme = address.partition("/")[0]
    if "{" in scheme or "[" in scheme:
        return False
    found = _SCHEME.match(address)
    return found is None or found[1].lower() in _PLAIN_SCHEMES


def _check_fetched(call: Call, given: Given) -> str:
    outputs = given.values("-o", "--output")
    if given.has("-O", "--remote-name", "--remote-name-all"):
        addresses = [*given.operands, *given.values("--url")]
        if any(not set("{}[]").isdisjoint(each) for each in addresses):
            return f"-O with braces or brackets {WRITES}"
        outputs += [".", *map(_last_name, addresses)]
    for output in outputs:
        # A part of the address comes in its place.
        if "#" in output and re.search(r"#\d", output):
            return f"-o with # {WRITES}"
        for folder in ("", *given.values("--output-dir")):
            path = f"{folder}/{output}" if folder and output != "-" else output
            if "#" in folder or not call.may_write(path):
                return f"-o {WRITES}"
    return ""


def _last_name(address: str) -> str:
    """What a file that is fetched is called."""
    path = re.split(r"[?#]", address, maxsplit=1)[0]
    scheme, found, rest = path.partition("://")
    return unquote((rest if found else scheme).partition("/")[2].rpartition("/")[2]) or "index.html"


def _takes_file(flag: str, value: str) -> bool:
    """Whether a value for curl names a file: behind an `@` or `<` where its content would be."""
    name, _, content = value.partition("=")
    if flag in _CURL_FORMS:
        return content.startswith(("@", "<")) or "@" in name
    return value.startswith("@") or "%output{" in value or (flag in _CURL_NAMED and "@" in name)


def check_wget(call: Call) -> str:
    """What is fetched stays where one works, under a name that the address tells."""
    given = read_known(call, _WGET, [_WGET_SHORT.get(each, each) for each in call.arguments])
    if given.why:
        return given.why
    addresses = given.operands
    if not all(map(_is_web, addresses)):
        return f"its address could be one that {READS} or {WRITES}"
    if given.has("-O", "--output-document", "--spider"):
        return ""
    for folder in given.values("-P", "--directory-prefix") or ["."]:
        for name in (".", *map(_last_name, addresses)):
            if not call.may_write(f"{folder}/{name}"):
                return f"where it runs, it {WRITES}"
    return ""


def _is_web(address: str) -> bool:
    scheme, found, _ = address.partition("://")
    return address.isprintable() and (not found or scheme.lower() in ("http", "https"))


def check_netcat(call: Call) -> str:
    """Only looking whether somebody answers, and talking to them."""
    return read_known(call, _NETCAT).why


def check_tcpdump(call: Call) -> str:
    """Only looking, nothing kept."""
    return read_known(call, _TCPDUMP).why


def check_nmap(call: Call) -> str:
    """Only looking, with nothing but its own scripts."""
    for text in call.arguments:
        if text.startswith("-") and not _NMAP.fullmatch(text):
            return "its flags are not known to be harmless"
    return ""

"""Containers and clusters: what shows no more of the machine than it is meant to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clawkit.approvals.allow.dangers.known import make_known, read_known
from clawkit.approvals.allow.dangers.sheet import REACHES, RUNS, Call, words

_OTHER = "is not among its sub-commands known to be harmless"
_FIRST = make_known("-D --debug -v --version --help -l= --log-level=")
_RUN = make_known(
    """
    -i --interactive -t --tty -d --detach --rm --init --read-only -P --publish-all -q --quiet
    --no-healthcheck --help --sig-proxy[=] --oom-kill-disable --disable-content-trust[=]
    -a= --attach= -e= --env= -p= --publish= --expose= -w= --workdir= -u= --user= -h= --hostname=
    --name= --entrypoint= --network= --net= --network-alias= --platform= --pull= -m= --memory=
    --memory-swap= --memory-reservation= --cpus= --cpuset-cpus= -c= --cpu-shares= --pids-limit=
    --restart= -l= --label= --add-host= --dns= --dns-search= --tmpfs= --shm-size= --stop-signal=
    --stop-timeout= --cap-drop= --ulimit= --health-cmd= --health-interval= --health-retries=
    --health-timeout= --health-start-period= --ip= --ip6= --mac-address= --detach-keys=
    """
)
_EXEC = make_known(
    "-i --interactive -t --tty -d --detach --help -e= --env= -u= --user= -w= --workdir="
)
_BUILD = make_known(
    """
    -q --quiet --no-cache --pull --rm[=] --force-rm --load --compress --squash --help -t= --tag=
    -f=< --file=< --build-arg= --target= --platform= --progress= --label= --network= --shm-size=
    -m= --memory= --add-host= --no-cache-filter= --provenance= --sbom=
    """
)
_SPACES = re.compile(r"(?:host|container:|ns:)")
_GROUPS = words("container image")
_PLAIN = words(
    """
    ps images inspect logs pull push tag rm rmi stop start restart kill commit top stats port diff
    history info version events wait rename login logout search pause unpause attach ls list prune
    help
    """
)
_PAIRS: dict[str, frozenset[str]] = {
    "network": words("ls list create inspect rm prune connect disconnect"),
    "volume": words("ls list inspect rm prune"),
    "system": words("df info prune events"),
    "builder": words("prune"),
    "buildx": words("ls version inspect du"),
    "context": words("ls show inspect"),
    "compose": words(
        """
        build pull push ps ls logs down stop kill rm pause unpause top images port config version
        restart
        """
    ),
}
_COMPOSE_FIRST = make_known("-f=< --file=< -p= --project-name= --profile= --ansi= --progress=")
_COMPOSE_VALUES = words("-o --output --lock-image-digests")

_KUBE = make_known(
    """
    -A --all-namespaces -w --watch --watch-only --no-headers --show-labels --show-kind -R
    --recursive --ignore-not-found --dry-run[=] --server-side --prune --all --now --force --wait[=]
    --previous -p -f= -k= --filename= --kustomize= --follow --timestamps --all-containers --prefix
    --short --client --help -h --overwrite --record --wide --containers --list --server-print[=]
    --namespaced[=] --cascade[=] --rm --quiet -q -n= --namespace= --context= --cluster=
    --user= --request-timeout= -v= -o= --output= -l= --selector= --field-selector= --sort-by=
    -L= --label-columns= --template= --chunk-size= -c= --container= --since= --since-time= --tail=
    --limit-bytes= --timeout= --for= --replicas= --image= --port= --target-port= --type= --name=
    --api-version= --api-group= --verbs= --from-literal= --grace-period= --revision= --to-revision=
    --field-manager= --patch= --subresource= --for-condition= --max-log-requests= --env= --restart=
    --labels= --annotations= --overrides= --protocol= --schedule= --as= --as-group= --key= --value=
    --max= --min= --cpu-percent= --resource= --verb= --serviceaccount= --clusterrole= --role=
    """
)
_KUBE_WORDS = words(
    """
    get describe logs top explain api-resources api-versions version apply create delete rollout
    scale autoscale label annotate patch set wait expose run cordon uncordon drain taint auth
    cluster-info events diff replace help
    """
)
_KUBE_CONFIG = words("view get-contexts current-context use-context get-clusters get-users")

_GH: dict[str, frozenset[str] | None] = {
    "issue": None,
    "label": None,
    "search": None,
    "status": None,
    "version": None,
    "pr": words("list view diff checks status create merge close reopen comment review edit ready"),
    "repo": words("list view"),
    "release": words("list view"),
    "run": words("list view watch rerun cancel"),
    "workflow": words("list view run enable disable"),
    "gist": words("list view"),
    "cache": words("list"),
    "ruleset": words("list view check"),
    "org": words("list"),
    "project": words("list view item-list field-list"),
    "auth": words("status"),
    "api": None,
}
_GH_FLAGS = ("-w", "--web", "-e", "--editor", "-F", "--field", "--body-file", "--input")


def check_docker(call: Call) -> str:
    """Containers that see no more of the machine than they are meant to."""
    first = read_known(call, _FIRST, stops=True)
    rest = first.operands
    if first.why or not rest:
        return first.why and f"before its sub-command, {first.why}"
    if rest[0] in _GROUPS:
        del rest[0]
    command, *rest = rest or ["help"]
    if command == "buildx" and rest[:1] == ["build"]:
        command, rest = "build", rest[1:]
    match command:
        case "run" | "create":
            return _check_run(call, command, rest)
        case "exec":
            why = read_known(call, _EXEC, rest, stops=True).why
        case "build":
            given = read_known(call, _BUILD, rest)
            why = given.why or _check_spaces(given.values("--network"))
        case "compose":
            return check_compose_words(call, rest)
        case _ if command in _PAIRS:
            why = "" if rest and rest[0] in _PAIRS[command] else f"{_shown(rest)} {_OTHER}"
        case _:
            why = "" if command in _PLAIN else _OTHER
    return why and f"{command} {why}"


def check_compose(call: Call) -> str:
    """The same as `docker compose`."""
    return check_compose_words(call, call.arguments)


def check_compose_words(call: Call, arguments: Sequence[str]) -> str:
    """Nothing that starts what a file of the project says a container sees of the machine."""
    if tuple(arguments) in (("--version",), ("--help",), ("-v",), ("-h",)):
        return ""
    given = read_known(call, _COMPOSE_FIRST, arguments, stops=True)
    if given.why:
        return f"compose {given.why}"
    command, *rest = given.operands or ["version"]
    if command not in _PAIRS["compose"]:
        return f"compose {command} {_OTHER}: its file says what a container sees of the machine"
    if any(text.partition("=")[0] in _COMPOSE_VALUES for text in rest):
        return f"compose {command} {REACHES}"
    return ""


def _check_run(call: Call, command: str, rest: Sequence[str]) -> str:
    given = read_known(call, _RUN, rest, stops=True)
    why = given.why or _check_spaces(given.values("--network", "--net"))
    return why and f"{command} {why}"


def _check_spaces(values: Sequence[str]) -> str:
    if any(map(_SPACES.match, values)):
        return f"--network {REACHES}"
    return ""


def _shown(rest: Sequence[str]) -> str:
    return rest[0] if rest and rest[0].isalpha() else "that"


def check_kubectl(call: Call) -> str:
    """Looking at and applying; no way into containers, no settings that start programs."""
    given = read_known(call, _KUBE)
    if given.why:
        return given.why
    operands = given.operands
    command = operands[0] if operands else "help"
    if command == "config":
        shows = len(operands) > 1 and operands[1] in _KUBE_CONFIG
        return "" if shows else "config changes settings that start programs"
    if command not in _KUBE_WORDS:
        return f"its sub-command {RUNS}, or {REACHES}"
    return f"cluster-info {REACHES}" if operands[:2] == ["cluster-info", "dump"] else ""


def check_gh(call: Call) -> str:
    """What happens on the other side; no settings, no programs, no files of others."""
    operands = [text for text in call.arguments if not text.startswith("-")]
    if not operands:
        return ""
    # A flag in front could take the first word for its value.
    if not call.arguments[0].isalpha() or operands[0] not in _GH:
        return f"its sub-command {RUNS}, or {REACHES}"
    verbs = _GH[operands[0]]
    if verbs is not None and (len(call.arguments) < 2 or call.arguments[1] not in verbs):
        return f"{operands[0]} with that {RUNS}, or {REACHES}"
    if any(text == "--" or text.startswith(_GH_FLAGS) for text in call.arguments):
        return f"with such flags it {RUNS}, or {REACHES}"
    return ""

"""How much code each package may have: a package that grows past its budget needs a reason."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

SRC = Path(__file__).parent.parent / "src" / "clawkit"

# Lines of code, without blank lines, comments and docstrings. Raising one of these needs a
# sentence beside it that says why.
BUDGETS = {
    # Answers that are data, and what of the configuration concerns compaction and thinking, moved
    # here from the top level; what ends a turn, and what is unread; events of sub-agents, and what
    # is said of them after compaction; why a run has a tool, which the gateway shows, too;
    # messages without a turn; which tools are deferred, and their directory in the prompt;
    # results as plugins keep them, calls of tools by tools, and answers of models to tools; notes
    # before compaction: a turn with two tools, its settings and its limits (190); memory in the
    # prompt.
    "agent": 1_915,
    # Programs of skills, if the owner lets them run, except build tools and those that replace
    # files; questions that outlive the process that asked.
    "approvals": 6_930,
    # The tree and the search of sessions, messages to them, and the commands for agents; whom
    # bindings choose; what is stopped at the end of a turn; the gateway and its service; turns,
    # chats and commands that a gateway runs: the terminal here, the conversation there; a simple
    # turn without click, which took a tenth of its start; what must not be sent again after a
    # machine slept; jobs: their options and runs, a process that runs them, and those of others;
    # heartbeats; plugins, skills and MCP servers: what there is, and trusting it; notes: looking at
    # them, indexing and forgetting (260), and their check; a search service in the questions of
    # onboard and configure, and in what doctor reports; commands of plugins in the help, and
    # settings of skills that are not there; lines of notes as a search names them, and keeping the
    # search service that was chosen; indexes whose workspace is gone (25).
    "cli": 10_113,
    "code": 640,
    # More than the 1,800 planned: schedules in English, and slots that follow the clocks of a zone
    # across its changes, take 650; what a crash between any two steps must not lose, and what a
    # model may not reach, came with tests that broke it.
    "cron": 2_530,
    # The whole path of a misspelt setting is suggested; a mapping has no lines; edits and diffs of
    # large files in linear time; webhooks of GitHub, and
    # the budget of heartbeats; deferred tools; what an MCP server may access, and how to log in
    # there; where plugins and skills may be, and their settings; what of the settings of an MCP
    # server would fail only when it is used, and which hosts would match nothing.
    "config": 4_240,
    # The schemas of tools, in a third of the time: all are declared at every start; text from
    # outside, marked as untrusted.
    # Failures in words for all who show them, and what is wrong with a value that may be null.
    "core": 1_770,
    "fs": 4_610,
    # More than twice the 4,000 planned: the protocol of other clients has many fields, in
    # parameters and answers; a gateway in the background, its service file, and its metrics; what
    # one client may do to others, and what it may not see; nodes; approvals with a history; TLS,
    # and logins by a proxy; runs that survive a restart; changed configurations, and what a model
    # may change; the files of the control page, usage, the doctor; turns, chats and commands of
    # terminals, and a client that imports almost nothing; logins that others cannot hold up. To be
    # brought back: fewer layers between method and agent. Automation is 1,650 of it: jobs in its
    # sessions, watched commands, heartbeats, wake-ups and webhooks. The skills of an agent; MCP
    # clients over HTTP; the memory of an agent, searched and checked by clients (65).
    "gateway": 10_036,
    "guard": 460,
    "lsp": 1_085,
    # Images from the person's disk, moved here from the top level.
    "media": 376,
    # The operator answers what the person typed although other messages follow it; models of
    # plugins; secrets of the configuration, moved here from the top level; what is the same in each
    # request is written once, and fields of an answer that are not there are not looked into.
    "models": 4_555,
    # A parser in C, which leaves more of an answer's state to us, took a fifth off a small call;
    # knowing that an answer is complete saves a timer; streams that go on after an interruption;
    # addresses that others choose: a policy, checked redirects, paths and names as browsers read
    # them.
    "net": 1_870,
    # Which agent answers, by bindings; rules about the hosts of URLs.
    "policy": 775,
    # Commands in a sandbox have records, too: their processes as seen from outside; JSON-RPC over
    # pipes, which came here from lsp, because MCP servers speak it, too; programs that read hostile
    # data, which came here from media and web, and one of them that is ready before it is needed.
    "process": 4_605,
    # Expressions that are slow on prose, only for texts that have a word of theirs: notes are
    # indexed in 40 % less time.
    "redact": 475,
    # Files for a sub-agent are mounted read-only, and so are skills.
    "sandbox": 3_415,
    # Search over tools whose schemas a model is not given; schemas that take without end to check.
    "schema": 690,
    "telemetry": 390,
    "testing": 285,
    # Listing, reading, searching and writing to sessions; starting, steering and waiting for
    # sub-agents, with attachments and worktrees, and what to use instead of parameters that others
    # have; the gateway that runs a session; the screen of a terminal while its command runs; jobs
    # and answers to heartbeats; finding, describing and calling deferred tools; pages
    # of the web, marked as from outside also where a saved one is read; searching it, and the offer
    # of a service that needs no key; memory.
    "tools": 4_473,
    # Access to a database without generators; sub-agents: opening them, their results as messages,
    # their events and deadlines, and what they are handed: files, and worktrees that hostile
    # contents cannot make run anything; one lane of turns for all who speak, and messages between
    # sessions with the sender's rights; how a command would be judged, moved here from the command
    # line; how clawkit was installed; jobs as the model of a session may use them; the tools of MCP
    # servers, and where their programs run; the skills of a run; plugins in its services and hooks;
    # its memory; names of agents that programs choose.
    "top level": 4_365,
    # Sub-agents in both chats: their progress, their results, /subagents and /stop; scheduled jobs
    # in words, for the command line as well; skills that people invoke.
    "ui": 2_780,
}
# What the packages of the next steps may have.
PLANNED = {
    # More than the 1,600 planned: a fallback for embeddings, a local table of tokens, and a first
    # choice by signs, which makes vectors as fast as keywords; indexes whose workspace is gone,
    # links in a workspace that has another name, and embeddings that are not paid for twice.
    "memory": 1_780,
    # Plugins, skills and MCP have 4,000 together, with their commands.
    # Declarations in the keywords of three frameworks.
    "adapters": 110,
    # More than the 800 planned: the stages of lobster, its workflows with their conditions, gates
    # that survive a restart, and that no workflow file changes at a gate are 1,220 of it.
    "bundled": 1_550,
    # More than the 950 planned: three transports, two eras of the protocol, logins with all that
    # the conformance suite checks (415), and what a hostile server must not achieve.
    "mcp": 1_726,
    # More than the 650 planned: two eras of the protocol, calls that wait for a person between two
    # requests, and the configuration files of six clients, edited in place, are 160; a changed
    # configuration, which applies to connected clients at once.
    "mcp_server": 818,
    # More than the 700 planned: files that are read once, hashed and run from memory, in four
    # places; and what a plugin that hangs, blocks, exits, lies or is missing must not achieve.
    "plugins": 1_092,
    # More than the 420 planned: a third is for what others made, in YAML and in archives, and what
    # of that must not get through.
    "skills": 640,
    # What sessions used, by day, model and agent, moved here from the gateway; what was said in
    # them, as text for memory.
    "sessions": 2_635,
    # More than the 2,200 planned: nothing hidden in pages is shown, and answers of sixteen search
    # services are checked as those of an enemy would be.
    "web": 2_260,
}
_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count_code(text: str) -> int:
    tree = ast.parse(text)
    docs: set[int] = set()
    has_odd_text = False
    given = text.split("\n")
    empty = {
        number for number, line in enumerate(given, 1) if (line.strip() or "#").startswith("#")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            has_odd_text |= not (docs.issuperset(inside) or empty.isdisjoint(inside))
    # Only where a text has such lines can they be code, and tokens take ten times as long.
    code = _lines_with_tokens(text) if has_odd_text else set(range(1, len(given) + 1)) - empty
    return len(code - docs)


def _lines_with_tokens(text: str) -> set[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def count_packages() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in SRC.rglob("*.py"):
        parts = path.relative_to(SRC).parts
        package = parts[0] if len(parts) > 1 else "top level"
        found[package] = found.get(package, 0) + count_code(path.read_text(encoding="utf-8"))
    return found


def test_a_line_of_code_is_counted_and_nothing_else() -> None:
    text = (
        '"""Doc."""\n\n# why\nA = """\n\n"""  # said\n\ndef f() -> None:\n    """Say."""\n    f()\n'
    )
    assert count_code(text) == 5


def test_every_package_keeps_to_its_budget_and_no_budget_is_looser_than_it_needs_to_be() -> None:
    found, limits = count_packages(), BUDGETS | PLANNED
    over = {name: lines for name, lines in found.items() if lines > limits.get(name, 0)}
    assert over == {}, "say less, or raise the budget with a reason beside it"
    loose = {
        name: (found.get(name, 0), budget)
        for name, budget in BUDGETS.items()
        if budget > found.get(name, 0) * 1.02 + 50
    }
    assert loose == {}, "lower these budgets: sizes only fall"

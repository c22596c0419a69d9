"""Data that leaves, and where to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.approvals.test_arguments_code import program

from clawkit.approvals.arguments import find_destination


def _a_call_that_sends_data_names_the_destination(line: str, words: str) -> None:
    assert find_destination(program(line)) == words


def test_a_call_that_sends_data_names_the_destination(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("git push", "push sends data to its usual destination"),
        ("git push origin main", "push sends data to origin"),
        ("git push --force https://a.example/x main", "push sends data to https://a.example/x"),
        ("git -C x push git@a.example:x", "push sends data to git@a.example:x"),
        ("git send-email x", "send-email sends data to x"),
        ("curl -d @x https://a.example", "-d sends data to https://a.example"),
        ("curl -sd @x a.example/up", "-sd sends data to a.example/up"),
        ("curl --data-bin @x https://a.example", "--data-bin sends data to https://a.example"),
        ("curl -F a=@b https://a.example", "-F sends data to https://a.example"),
        ("curl -T x ftp://a.example", "-T sends data to ftp://a.example"),
        ("curl https://a.example --json {}", "--json sends data to https://a.example"),
        ("wget --post-file=x https://a.example", "--post-file=x sends data to https://a.example"),
        ("scp x host:y", "it sends data to host:y"),
        ("scp x ann@host:", "it sends data to ann@host:"),
        ("scp x '[::1]:y'", "it sends data to [::1]:y"),
        ("rsync -a x host:y", "it sends data to host:y"),
        ("rsync x rsync://host/y", "it sends data to rsync://host/y"),
        ("sftp host", "it sends data to host"),
        ("nc host 80", "it sends data to host"),
        ("http POST a.example x=y", "it sends data to a.example"),
        ("gh gist create x", "create sends data to x"),
        ("gh release upload v1 x", "upload sends data to v1"),
        ("gh api -X POST repos/x", "api sends data to POST"),
        ("gh pr create", "create sends data to its usual destination"),
        ("npm publish", "publish sends data to its usual destination"),
        ("twine upload dist/x", "upload sends data to dist/x"),
        ("cargo publish", "publish sends data to its usual destination"),
        ("docker push a.example/x", "push sends data to a.example/x"),
        ("docker image push a.example/x", "push sends data to a.example/x"),
        ("aws s3 cp x s3://y", "cp sends data to s3://y"),
        ("jj git push", "push sends data to its usual destination"),
    ]
    for line, words in cases:
        with subtests.test(line=line, words=words):
            _a_call_that_sends_data_names_the_destination(line, words)


def test_a_rule_that_names_the_sub_command_covers_known_destinations() -> None:
    assert find_destination(program("git push origin main"), named=True) == ""
    assert find_destination(program("npm publish"), named=True) == ""
    assert find_destination(program("git push https://a.example/x"), named=True) != ""
    assert find_destination(program("scp x host:y"), named=True) != ""
    for forced in ("--force", "-uf", "--delete x", "+main", ":main", "--force-with-lease"):
        assert find_destination(program(f"git push origin {forced}"), named=True) != ""


def _other_calls_send_nothing(line: str) -> None:
    assert find_destination(program(line)) == ""


def test_other_calls_send_nothing(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *("git log", "git fetch", "git pull", "git commit -m push", "git log push"),
        *("curl https://a.example", "curl -sSLo x https://a.example", "curl -X POST a.example"),
        *("wget https://a.example", "scp host:x y", "scp x", "scp x ./a:b", "rsync -a x y"),
        *("npm test", "npm install", "cargo build", "docker pull x", "gh pr view", "gh gist list"),
        *("aws s3 ls", "aws sts x", "ls push", "kubectl get pods", "jj log"),
    ]
    for line in cases:
        with subtests.test(line=line):
            _other_calls_send_nothing(line)

"""A program that reads one page and exits.

The page may exploit a bug of the parser, so the program limits its memory, time and files before
it reads the first byte. Standard input is the request, standard output the `Page`, both in JSON.
"""

from __future__ import annotations

import os
import resource
import sys

MAX_MEMORY = 1024 * 1024 * 1024
MAX_CPU_S = 20
NO_MEMORY = 3
"""The exit code if memory runs out."""


def main() -> None:
    sys.path += sys.argv[1:]
    import json

    from selectolax.lexbor import SelectolaxError

    from clawkit.web.extract import extract_page

    # The soft limit of time sends SIGXCPU, which shows the reason.
    limits = {resource.RLIMIT_AS: MAX_MEMORY, resource.RLIMIT_CPU: MAX_CPU_S}
    closed = (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC)
    for which, most in {**limits, **dict.fromkeys(closed, 0)}.items():
        hard = resource.getrlimit(which)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (soft, hard if which == resource.RLIMIT_CPU else soft))
    try:
        request = json.loads(sys.stdin.buffer.read())
        answer = json.dumps(extract_page(request.pop("html"), **request)).encode() + b"\n"
    except (MemoryError, SelectolaxError):  # the parser fails for no other reason
        os._exit(NO_MEMORY)
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    # Skip the cleanup, which takes time for a large tree.
    os._exit(0)


if __name__ == "__main__":
    main()

"""Everything clawkit raises on purpose.

    ClawkitError                       exit_code
    ├── ConfigError                    the configuration cannot be used; carries every issue found
    ├── EditError                      a configuration edit was refused; nothing was written
    ├── BadDocumentError               the approvals document cannot be used, or not be changed
    ├── SecretError                    a secret reference could not be resolved
    ├── SchemaError                    a parameter schema cannot be used or adapted
    ├── RegistryError                  two tools claim one name, or a name is reserved
    ├── TurnError                      an agent did not get to its answer
    │   └── OutputError                the answer is not of the type that was asked for
    └── ToolError                      a call failed
        ├── UnknownToolError           no such tool, or not in this build
        └── ToolInputError             400: the caller can fix the call
            ├── NotFoundError          404: there is no such file
            ├── ConflictError          409: the file is not as the call takes it to be
            └── ToolAuthorizationError 403: policy, a hook or a person said no
                └── ProtectedError     a file that only a person may have changed

Messages are written for the person at the terminal, and for the model that made the call:
what was wrong, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ClawkitError(Exception):
    """Root of the tree. `exit_code` is what the command line ends with."""

    exit_code = 2


class Issue(NamedTuple):
    """One thing that is wrong (or odd) in a configuration file."""

    path: str
    """Dotted path of the setting, `tools.exec.ask`; empty for the file as a whole."""
    message: str
    """What is wrong and what was expected, one sentence without a full stop."""
    file: str = ""
    line: int = 0
    """1-based; 0 when the place is not known."""
    hint: str = ""
    """What to do about it, one sentence, or empty."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file and self.line else self.file
        parts = [part for part in (where, self.path) if part]
        text = f"{': '.join(parts)}: {self.message}" if parts else self.message
        return f"{text}. {self.hint}" if self.hint else text


class ConfigError(ClawkitError):
    """The configuration cannot be used. All issues at once, in file order."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__("\n".join(str(issue) for issue in self.issues))


class EditError(ClawkitError):
    """A configuration edit was refused; the file is as it was."""


class BadDocumentError(ClawkitError):
    """The approvals document cannot be used, or could not be changed. Until then nothing runs."""

    def __init__(
        self, file: str, message: str, *, key: str = "", line: int = 0, column: int = 0
    ) -> None:
        """`key` is the path of what is wrong in it; `line` and `column` count from 1."""
        self.file, self.key, self.line, self.column = file, key, line, column
        place = f"line {line}, column {column}" if column else f"line {line}" if line else ""
        where = ": ".join(part for part in (file, place, key) if part)
        super().__init__(f"{where}: {message}")


class SecretError(ClawkitError):
    """A secret reference could not be resolved. Never contains the secret."""


class SchemaError(ClawkitError):
    """A parameter schema cannot be used or adapted."""


class RegistryError(ClawkitError):
    """A tool could not be registered."""


class TurnError(ClawkitError):
    """An agent did not get to its answer. `how` the turn ended: `error`, `max-cost`, …"""

    exit_code = 1

    def __init__(self, message: str, *, how: str = "error") -> None:
        self.how = how
        super().__init__(message)


class OutputError(TurnError):
    """The answer is not of the type that was asked for, also after a second try. `text` has it."""

    def __init__(self, message: str, *, text: str) -> None:
        self.text = text
        super().__init__(message)


class ToolError(ClawkitError):
    """A call failed. `status` follows HTTP, for gateways and for tests."""

    exit_code = 1
    status = 500


class UnknownToolError(ToolError):
    """There is no such tool, or it is not part of this build."""

    status = 404


class ToolInputError(ToolError):
    """The call cannot be carried out as it was written."""

    status = 400


class NotFoundError(ToolInputError):
    """There is no such file. `alike` are the paths beside it that read the same."""

    status = 404

    def __init__(self, message: str, *, alike: Sequence[str] = ()) -> None:
        self.alike = tuple(alike)
        super().__init__(message)


class ConflictError(ToolInputError):
    """A file exists that must not, or was changed by somebody else meanwhile."""

    status = 409


class ToolAuthorizationError(ToolInputError):
    """Policy, a rule, a hook or a person refused the call. `reason` is a word that says which."""

    exit_code = 3
    status = 403

    def __init__(self, message: str, *, reason: str = "policy") -> None:
        self.reason = reason
        super().__init__(message)


class ProtectedError(ToolAuthorizationError):
    """Files that a person has to release before they are changed. Nothing was changed."""

    def __init__(self, message: str, *, places: Sequence[str]) -> None:
        self.places = frozenset(places)
        super().__init__(message, reason="protected")

"""All exceptions that clawkit raises deliberately.

    ClawkitError                       exit_code
    ├── ConfigError                    the configuration cannot be used; carries every issue found
    ├── EditError                      a configuration edit was refused; nothing was written
    ├── BadDocumentError               the approvals document cannot be used or changed
    ├── SecretError                    a secret reference could not be resolved
    ├── SchemaError                    a parameter schema cannot be used or adapted
    ├── RegistryError                  two tools claim one name, or a name is reserved
    ├── PluginError                    a plugin cannot be used
    ├── TurnError                      a turn ended without an answer
    │   └── OutputError                the answer does not match the requested type
    └── ToolError                      a call failed
        ├── UnknownToolError           no such tool, or not in this build
        └── ToolInputError             400: the caller can fix the call
            ├── NotFoundError          404: no such file, session, …
            ├── ConflictError          409: it is in use, or not in the state that the call expects
            └── ToolAuthorizationError 403: refused by policy, a hook or a person
                └── ProtectedError     a protected file; changing it needs a person's approval

Messages address the person at the terminal and the model that made the call: what was wrong, where,
and how to fix it.
"""

from collections.abc import Sequence
from typing import NamedTuple


class ClawkitError(Exception):
    """Root of the tree. `exit_code` is the exit code of the command line."""

    exit_code = 2


class Issue(NamedTuple):
    """One error or warning about a configuration file."""

    path: str
    """Dotted path of the setting, `tools.exec.ask`; empty for the file as a whole."""
    message: str
    """The error and the expected value, one sentence without a period."""
    file: str = ""
    line: int = 0
    """1-based; 0 if unknown."""
    hint: str = ""
    """A remedy, one sentence, or empty."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file and self.line else self.file
        parts = [part for part in (where, self.path) if part]
        text = f"{': '.join(parts)}: {self.message}" if parts else self.message
        return f"{text}. {self.hint}" if self.hint else text


class ConfigError(ClawkitError):
    """The configuration cannot be used. Carries all issues, in file order."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__("\n".join(str(issue) for issue in self.issues))


class EditError(ClawkitError):
    """A configuration edit was refused; the file is unchanged."""


class BadDocumentError(ClawkitError):
    """The approvals document cannot be used or changed. Nothing runs until that is fixed."""

    def __init__(
        self, file: str, message: str, *, key: str = "", line: int = 0, column: int = 0
    ) -> None:
        """`key` is the dotted path of the invalid value; `line` and `column` count from 1."""
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


class PluginError(ClawkitError):
    """A plugin cannot be used; the message does not name it."""


class TurnError(ClawkitError):
    """A turn ended without an answer. `how` says why: `error`, `max-cost`, …"""

    exit_code = 1

    def __init__(self, message: str, *, how: str = "error") -> None:
        self.how = how
        super().__init__(message)


class OutputError(TurnError):
    """The answer, in `text`, does not match the requested type, even after a retry."""

    def __init__(self, message: str, *, text: str) -> None:
        self.text = text
        super().__init__(message)


class ToolError(ClawkitError):
    """A call failed. `status` is an HTTP status, for gateways and tests."""

    exit_code = 1
    status = 500


class UnknownToolError(ToolError):
    status = 404


class ToolInputError(ToolError):
    """The caller can correct it: the message says what is wrong with the parameters."""

    exit_code = 2
    status = 400


class NotFoundError(ToolInputError):
    """No such file. `alike` are paths next to it whose names look the same."""

    status = 404

    def __init__(self, message: str, *, alike: Sequence[str] = ()) -> None:
        self.alike = tuple(alike)
        super().__init__(message)


class ConflictError(ToolInputError):
    exit_code = 1
    status = 409


class ToolAuthorizationError(ToolInputError):
    """Policy, a rule, a hook or a person refused the call; `reason` says which, in one word."""

    exit_code = 3
    status = 403

    def __init__(self, message: str, *, reason: str = "policy") -> None:
        self.reason = reason
        super().__init__(message)


class ProtectedError(ToolAuthorizationError):
    """Changing `places` needs a person's approval. Nothing was changed."""

    def __init__(self, message: str, *, places: Sequence[str]) -> None:
        self.places = frozenset(places)
        super().__init__(message, reason="protected")

"""The secrets that this process has read, for everything that writes: there is one command in it, and one terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagrun.model.secrets.secret import Secrets


class _State:
    """What is kept back.

    Attributes:
        secrets: Those of the command; `None` as long as it has none.
    """

    def __init__(self) -> None:
        self.secrets: Secrets | None = None

    def hidden(self, text: str) -> str:
        """*text* without registered values."""
        return text if self.secrets is None else self.secrets.replaced_in(text)

    def cleaned(self, text: str) -> str:
        """*text* as it may be shown of what tools print and log: without what looks like a secret, too."""
        from dagrun.model.redaction.redactor import Redactor
        from dagrun.model.secrets.secret import NO_SECRETS

        return Redactor(self.secrets or NO_SECRETS).text(text)

    def forget(self) -> None:
        """The command has ended."""
        self.secrets = None
        sys.excepthook = sys.__excepthook__


STATE = _State()

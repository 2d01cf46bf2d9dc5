"""What is kept out of texts: registered secrets; and tokens, keys and personal data where people or models look.

Two rules. The *values* of registered secrets are replaced in whatever leaves the run: events, the record, results as
reports, briefs, log records, questions. What only looks like a secret, is personal, or has a name that says it is
secret, is replaced in what is shown, and never in a value that a step gets: that would change what the run computes.

Not found is what is split (by a line break, a character that nobody sees), reversed, compressed or encrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, TypeAlias

from pydantic_core import from_json

from dagrun.errors import Problem
from dagrun.model.codec.event_codec import encode
from dagrun.model.event import AttemptEnded, Event, Reviewed, StepSettled
from dagrun.model.outcome import Failure
from dagrun.model.secrets.patterns import Personal, is_secret_name, without_personal, without_tokens
from dagrun.model.secrets.secret import MIN_LENGTH, NO_SECRETS, Secrets
from dagrun.model.value import Stored, Unavailable, decode, encode_plain, to_json
from dagrun.model.value import encode as store

Hook: TypeAlias = Callable[[str], str]

HIDDEN: Final = "(hidden: its name says that it is secret)"
UNSHOWN: Final = "[hidden: redact failed]"

# Of texts that are short enough to come again, like the reason for which a thousand steps are stopped.
_KNOWN: Final = 64
_SHORT: Final = 300


class Redactor:
    """Takes secrets and personal data out of what one run shows.

    Args:
        secrets: Those of the host.
        personal: The sorts of personal data that are replaced, too.
        hook: Host code that has the last word on each text. If it raises, or gives no text, the whole text is hidden.
    """

    __slots__ = ("_clean", "_hook", "_personal", "secrets")

    def __init__(
        self, secrets: Secrets = NO_SECRETS, personal: Iterable[Personal] = (), hook: Hook | None = None
    ) -> None:
        self.secrets = secrets
        self._personal = tuple(personal)
        self._hook = hook
        self._clean: set[str] = set()  # texts in which there is nothing to replace

    def text(self, text: str) -> str:
        """*text* as it may be shown."""
        if len(text) < MIN_LENGTH and self._hook is None:  # of the keys and values in data, most
            return text
        if self._hook is None:
            return text if text in self._clean else self._found(text)
        shown = self._replaced(text)
        try:
            said: object = self._hook(shown)
        except Exception:  # noqa: BLE001  (whatever went wrong, what it was about must not be shown)
            return UNSHOWN
        return said if isinstance(said, str) else UNSHOWN

    def _replaced(self, text: str) -> str:
        shown = without_tokens(self.secrets.replaced_in(text))
        return without_personal(shown, self._personal) if self._personal else shown

    def _found(self, text: str) -> str:
        """*text* as it may be shown; it is looked at, and kept in mind if there is nothing in it."""
        shown = self._replaced(text)
        if len(text) <= _SHORT and shown == text:
            if len(self._clean) >= _KNOWN:
                self._clean.clear()
            self._clean.add(text)
        return shown

    def value(self, value: Any) -> Any:
        """A JSON value as it may be shown: no texts that may not, and nothing under a name that says it is secret."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {
                    self.text(key): HIDDEN if is_secret_name(key) and part is not None else self.value(part)
                    for key, part in value.items()
                }
            case list() | tuple():
                return [self.value(part) for part in value]
            case bool() | None:
                return value
            case int():
                return value if not self.secrets.found_in(str(value)) else self.secrets.replaced_in(str(value))
            case _:
                return value

    def stored(self, value: Stored) -> Stored:
        """A stored value for people who decide about it: no secrets; all else as it is, for they must see it."""
        if not self.secrets.are_hidden or not self.secrets.found_in(to_json(value).decode()):
            return value
        made = store(without_secrets(self.secrets, decode(value)))
        return made if type(value) is not bytes else to_json(made)

    def failure(self, failure: Failure) -> Failure:
        """*failure* with texts that may be shown."""
        missing = failure.missing_input
        texts = self.text(failure.message), self.text(failure.error), missing and self.text(missing)
        if texts == (failure.message, failure.error, missing):
            return failure
        return replace(failure, message=texts[0], error=texts[1], missing_input=texts[2])

    def problem(self, problem: Problem) -> Problem:
        """*problem* with facts that may be shown."""
        return replace(problem, facts={name: self.text(fact) for name, fact in problem.facts.items()})


DEFAULT_REDACTOR: Final = Redactor()

# That of the run in which the running code is a tool, a planner or a critic: what it tells a model is cleaned.
REDACTOR: ContextVar[Redactor] = ContextVar("dagrun redactor", default=DEFAULT_REDACTOR)


def without_secrets(secrets: Secrets, value: Any) -> Any:
    """A JSON value without registered secrets."""
    match value:
        case str():
            return secrets.replaced_in(value)
        case dict():
            return {secrets.replaced_in(key): without_secrets(secrets, part) for key, part in value.items()}
        case list():
            return [without_secrets(secrets, part) for part in value]
        case int() if not isinstance(value, bool) and secrets.found_in(str(value)):
            return secrets.replaced_in(str(value))
        case _:
            return value


def redacted_record(event: Event, secrets: Secrets) -> bytes:
    """The text of the record of *event*, without registered secrets.

    A value of a step that holds one is not in the record at all: `Unavailable` stands in its place.

    Raises:
        ContractError: See `dagrun.model.codec.event_codec.encode`.
        ValueRefused: The same.
    """
    data = encode(event)
    if not secrets.found_in(data.decode()):
        return data
    left = without_secrets(secrets, from_json(encode(without_secret_values(event, secrets))))
    return encode_plain(left).encode("utf-8", "backslashreplace")


def without_secret_values(event: Event, secrets: Secrets) -> Event:
    """*event* with `Unavailable` in place of a value of a step in which a registered secret stands."""
    match event:
        case AttemptEnded() | Reviewed() if name := _name_in(event.outcome.value, secrets):
            return replace(event, outcome=replace(event.outcome, value=Unavailable(_reason(name))))
        case StepSettled() if name := _name_in(event.value, secrets):
            return replace(event, value=Unavailable(_reason(name)))
        case _:
            return event


def _name_in(value: Stored, secrets: Secrets) -> str:
    if value is None or isinstance(value, Unavailable):
        return ""
    return secrets.found_in(to_json(value).decode())


def _reason(name: str) -> str:
    return f"it holds the secret {name}"

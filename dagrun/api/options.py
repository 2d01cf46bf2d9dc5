"""The options of each public function: shown in its signature, and refused if they are misspelt."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

from dagrun.errors import ContractError, hint
from dagrun.kernel.runtime.run_options import HostOptions, Inputs, NewRunOptions, RunOptions

if TYPE_CHECKING:
    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.model.journal import Journal

F = TypeVar("F", bound=Callable[..., Any])

# The default of every other option is `None`.
_OF_A_RUN: Final = dict.fromkeys(RunOptions.__annotations__) | {"critics": (), "attended": False, "show": False}


class SoloOptions(RunOptions, total=False):
    """The options of `dagrun.run` and `dagrun.start`: `RunOptions`, and one for the engine of the run.

    Attributes:
        durations: See `Engine`.
    """

    durations: Durations | None


class _FromJournal(TypedDict):
    """The option that is required for a run from a journal."""

    journal: Journal


class ResumeOptions(HostOptions, _FromJournal, total=False):
    """The options of `resume`: some of `RunOptions`, and those below.

    Attributes:
        journal: The journal that has the record. The caller closes it after the run.
        policy: The limits; `None` for those on record.
        allow_differences: Whether the run is resumed although its policy, the contracts of its tools, its critics or
            its executors differ from those on record. Default: `False`.
        steal: Whether the run is taken from a process that still holds it, and which stops then. Default: `False`.
    """

    allow_differences: bool
    steal: bool


class RetryOptions(NewRunOptions, _FromJournal, total=False):
    """The options of `retry`: some of `RunOptions`, and those below.

    Attributes:
        journal: The journal that has the record of the first run, and will have that of the new one. The caller closes
            it after the run.
        policy: The limits; `None` for those on record.
        new_id: The name of the new run; `None` for a random name.
        parent_artifacts: The folder of the files of the first run; `None` for the folder that its journal keeps.
        allow_differences: As for `ResumeOptions`.
    """

    new_id: str | None
    parent_artifacts: Path | None
    allow_differences: bool


class SubmitOptions(NewRunOptions, _FromJournal, total=False):
    """The options of `submit`: some of `RunOptions`, and those below.

    A planner, critics, executors and secrets are given here for the check of the plan, and to the worker to be used.

    Attributes:
        journal: The journal that takes the run: a `PostgresJournal`, say.
        pool: The workers that may claim it. Default: ``"default"``.
        priority: Runs of a higher one are claimed first. Default: 0.
        not_before: When it may be claimed: a `datetime` with a time zone; `None` for at once.
        connection: A connection of asyncpg to the database of the journal: the run is submitted in its transaction, and
            is there when that is committed. `None` for a transaction of its own.
    """

    goal: str | None
    inputs: Inputs | None
    run_id: str | None
    pool: str
    priority: int
    not_before: datetime | None
    connection: Any


def must_fit(options: Mapping[str, object], kind: type, function: str) -> None:
    """Refuse unknown options, and the lack of required ones.

    Args:
        options: The options that were passed.
        kind: The `TypedDict` that describes them.
        function: The name of the function, for the message.

    Raises:
        ContractError: One is unknown, or missing.
    """
    known, wanted = kind.__annotations__, kind.__required_keys__  # type: ignore[attr-defined]
    if not options.keys() <= known.keys():
        unknown = min(options.keys() - known.keys())
        raise ContractError(f"{function} has no option {unknown}{hint(unknown, known, 0.7)}")
    if not wanted <= options.keys():
        raise ContractError(f"{function} cannot do without {min(wanted - options.keys())}=…")


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """Return the options of a new run with their defaults.

    Raises:
        ContractError: One is unknown, or makes no sense.
    """
    must_fit(given, RunOptions, "a run")
    options = with_defaults(given)
    must_make_sense(options)
    return options


def with_defaults(options: Mapping[str, Any]) -> RunOptions:
    """Return *options* with the defaults of the options of a run that are not in it."""
    return cast("RunOptions", {**_OF_A_RUN, **options})


def must_make_sense(options: RunOptions) -> None:
    """Refuse options of a new run that contradict each other, or have values that cannot be used.

    Raises:
        ContractError: There are such options.
    """
    expires, on_event, approver = options["expires_after"], options["on_event"], options["approver"]
    if options["journal"] is None and (options["labels"] is not None or expires is not None):
        raise ContractError("labels and expires_after are kept by a journal: journal=…")
    if options["journal"] is None and options["record_key"] is not None:
        raise ContractError("record_key seals what a journal keeps: journal=…")
    if expires is not None and not 0 < expires < float("inf"):
        raise ContractError(f"expires_after must be a positive, finite number of seconds; got {expires}")
    if isinstance(on_event, list | tuple):
        raise ContractError(f"on_event takes one function, not a {type(on_event).__name__}")
    if on_event is not None and not _is_plain_function(on_event):
        raise ContractError("on_event is a plain function; to await something for each event, use run.events()")
    if approver is not None and not callable(approver):
        raise ContractError(f"approver is an async function that is given a question; got {type(approver).__name__}")


def _is_plain_function(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)


def lists_options(kind: type) -> Callable[[F], F]:
    """Name each option of *kind* in the signature of a function that takes ``**options``, for `help` and editors.

    Args:
        kind: The `TypedDict` that describes the options.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        options = [_parameter(name, kind) for name in kind.__annotations__]
        function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return function

    return decorate


_DEFAULTS: Final = {**_OF_A_RUN, "allow_differences": False, "steal": False, "pool": "default", "priority": 0}


def _parameter(name: str, kind: type) -> inspect.Parameter:
    is_required = name in kind.__required_keys__  # type: ignore[attr-defined]
    default = inspect.Parameter.empty if is_required else _DEFAULTS.get(name)
    annotation = kind.__annotations__[name].__forward_arg__
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

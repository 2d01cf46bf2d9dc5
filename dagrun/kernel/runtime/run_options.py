"""The options of a run: their names, types, meanings and defaults, in one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:  # the first `dagrun.run` in a running loop must not wait for them
    from dagrun.kernel.model.critic import Critic
    from dagrun.kernel.model.event import Event
    from dagrun.kernel.model.executor import Executor
    from dagrun.kernel.model.journal import Journal
    from dagrun.kernel.model.planner import Planner
    from dagrun.kernel.model.policy import Policy
    from dagrun.kernel.model.question import Approver
    from dagrun.kernel.model.redaction.redactor import Hook
    from dagrun.kernel.model.secrets import AnySecret, Secrets
    from dagrun.kernel.model.tool import Tools
    from dagrun.kernel.model.tracing import Traces

Inputs: TypeAlias = Mapping[str, Any]
"""The inputs of a run by name; the plan refers to them as ``${input.name}``."""
AnySecrets: TypeAlias = "Secrets | Mapping[str, AnySecret]"


class HostOptions(TypedDict, total=False):
    """The options of a new run and of a resumed one; see `RunOptions`."""

    tools: Tools | None
    policy: Policy | None
    artifacts: Path | None
    on_event: Callable[[Event], object] | None
    planner: Planner | None
    critics: Sequence[Critic]
    compose: Any
    approver: Approver | None
    attended: bool
    executors: Mapping[str, Executor] | None
    secrets: AnySecrets | None
    deps: Any
    redact: Hook | None
    record_key: str | bytes | None
    tracing: Traces | None
    show: bool


class NewRunOptions(HostOptions, total=False):
    """The options of any new run, also of one that retries another; see `RunOptions`."""

    seed: int | None
    labels: Mapping[str, Any] | None
    expires_after: float | None


class DraftOptions(NewRunOptions, total=False):
    """The options of `dagrun.draft`, which takes the goal by itself; see `RunOptions`."""

    inputs: Inputs | None
    run_id: str | None
    journal: Journal | None


class RunOptions(DraftOptions, total=False):
    """The options of a run. The default of an option is `None`, unless its description names another.

    Attributes:
        goal: The goal of the run, in words, in place of a plan. It needs a *planner*, which writes the plan.
        tools: The tools that the plan may call: a `Toolbox`, or functions, tools and modules to make one of. A checked
            plan has its own tools, and takes none here.
        policy: The limits of the run. A checked plan has its own policy. `None` stands for the policy of the engine,
            and without one for ``Policy()``.
        inputs: The values that ``${input…}`` refers to: plain JSON by name.
        artifacts: The folder for the files of tools. `None` stands for the folder that the journal keeps for the run,
            and without one for a temporary folder that lives as long as the result.
        run_id: The name of the run, unique in its journal; `None` for a random name.
        seed: The seed of the jitter of retry delays; `None` for a random one.
        on_event: A plain function that is called with each event, right after the change that the event stands for. It
            must return quickly.
        planner: Writes the plan for a goal, and is asked when a step fails or surprises; see `Planner`. `None` for no
            planner.
        critics: Review the outputs of steps before any other step uses them; see `Critic`. Default: ``()``.
        compose: Composes the answer of the run from its results, as its last step, when all others have succeeded:
            a tool or a function that only reads, with an argument ``results`` and perhaps ``goal``; or a language
            model. ``run.answer_stream()`` yields its text while it is written. `None` for the results themselves.
        approver: Is asked each question to people; `None` if there is no approver.
        attended: Whether the caller answers questions, through ``run.pending`` and ``run.answer``. Default: `False`.
        executors: Executors by name, for steps that name one, besides the built-in executors; see `Executor`. The
            caller closes them after the run.
        secrets: The values that tools get through parameters of type ``SecretStr``, by name: texts, `env` or `Secret`.
            Plans refer to secrets by name; the values are kept out of records, reports, logs and briefs.
        deps: The objects of the host that tools get by type, such as clients: one, several in a list, or several by
            name or by type; see `dep`. No plan, planner or record sees them. The caller closes them after the run.
        redact: Is called with each text that is shown or logged, or sent to a planner, and returns the text without
            the parts that must be hidden. If it raises, the whole text is hidden.
        record_key: The key that seals what the policy's *redact_records* takes out of the record, so that the run can
            be resumed as if nothing had been taken out: 32 bytes in URL-safe base64, as
            ``cryptography.fernet.Fernet.generate_key()`` makes them. `None` for no such originals. It needs a *journal*
            and the extra ``encrypt``.
        tracing: Traces the run: a `dagrun.Tracing`. `None` stands for the engine's, and without one for none.
        show: Whether the run is shown while it goes on, in one display of the notebook; elsewhere, its text comes at
            its end. See `dagrun.show`. Default: `False`.
        journal: The journal that records the run, so that `resume` can resume it; `None` for no record. The caller
            closes it after the run.
        labels: Notes for people that the journal keeps with the run: plain JSON by name. It needs a *journal*.
        expires_after: Seconds after which the journal may delete the record; `None` for never. It needs a *journal*.
    """

    goal: str | None

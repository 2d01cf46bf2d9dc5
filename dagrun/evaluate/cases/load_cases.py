"""Load the tools, policies, planners and plans that a file of golden tasks names."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dagrun import Effect, Plan, Planner, PlanRefused, Policy, RouterPlanner, Toolbox, read_plan, read_routes
from dagrun.errors import CasesRefused, ContractError
from dagrun.evaluate.cases.case_file import Case, CaseFile, read_file
from dagrun.evaluate.cases.expectations import AnswerJudge
from dagrun.evaluate.cases.figures import unknown_figures
from dagrun.evaluate.cases.stand_in_world import CaseWorld, must_fit, scripts_of, unknown_arguments
from dagrun.evaluate.cases.trial import PlayedPlanner, TrialSettings
from dagrun.extend import AnyPlan, must_be_planner
from dagrun.texts import explain, faults_of, import_target

# Makes a planner, of the name of one of dagrun's, if any, and the name of a model, if any.
MakePlanner = Callable[[str | None, str | None], Planner]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCase:
    """A case with everything that it names.

    Attributes:
        file: Its file.
        case: The case; what its file says for all cases is in it.
        tools: The tools.
        means: The parts of its trials.
        judge: The critic of its answer.
        is_virtual: Whether it runs on a virtual clock.
    """

    file: Path
    case: Case
    tools: Toolbox
    means: TrialSettings
    judge: AnswerJudge | None
    is_virtual: bool

    @property
    def id(self) -> str:
        """The name of the case, including its file."""
        return f"{self.file.name}:{self.case.id}"

    @property
    def is_judged_by_model(self) -> bool:
        """Whether the critic of its answer asks a model."""
        return self.judge is not None and asks_model(self.judge.critic)

    def world(self) -> CaseWorld:
        """Return the world of a new trial."""
        return CaseWorld(self.tools, scripts_of(self.case), self.case.real, self.case.reconcile, self.is_virtual)


@dataclass(frozen=True, slots=True)
class CaseHost:
    """The settings that the host program provides for cases.

    Attributes:
        tools: Returns the tools of a file that names none; `None` if such files are refused.
        make_planner: Makes planners that ask models; `None` if such cases are refused.
        policy: The limits that replace the cases'; `None` for theirs.
    """

    tools: Callable[[], Toolbox] | None = None
    make_planner: MakePlanner | None = None
    policy: Policy | None = None


def load_cases(path: Path, host: CaseHost, only: Sequence[str] = ()) -> tuple[CaseFile, list[ReadyCase]]:
    """Read a file of cases, and load the parts it names.

    Modules are looked for where Python looks, then in the current directory, then in the folder of the file.

    Args:
        path: The file.
        host: What the program around lends.
        only: The ids of the cases that are wanted; empty for all.

    Raises:
        CasesRefused: Something cannot be read or loaded, or does not fit; every fault is in the error.
    """
    file = read_file(path)
    loader = _Loader(path, host)
    tools = loader.tools(file.tools)
    faults = [f"{path}: {fault}" for fault in unknown_figures(file.gate)]
    ready: list[ReadyCase] = []
    for case in file.cases:
        if only and case.id not in only:
            continue
        try:
            ready.append(loader.case(_merged(file, case), tools))
        except CasesRefused as error:
            faults += [f"{path}: case {case.id}: {fault}" for fault in error.faults]
        except PlanRefused as error:
            faults += [f"{path}: case {case.id}: plan: {problem}" for problem in error.problems]
        except ContractError as error:
            faults.append(f"{path}: case {case.id}: {error}")
    if faults:
        raise CasesRefused(faults)
    return file, ready


def _merged(file: CaseFile, case: Case) -> Case:
    """Return *case*, completed with the settings of its file."""
    said = case.model_fields_set
    shared = {
        name: getattr(file, name)
        for name in ("policy", "planner", "model", "routes", "critics", "people", "secrets")
        if name not in said
    }
    return case.model_copy(
        update={
            **shared,
            "world": {name: acts for name, acts in (file.world | case.world).items() if name not in case.real},
            "real": [*dict.fromkeys([*(one for one in file.real if one not in case.world), *case.real])],
            "reconcile": file.reconcile | case.reconcile,
        }
    )


class _Loader:
    """Loads the parts that a file of cases names.

    Args:
        path: The file.
        host: What the program around lends.
    """

    def __init__(self, path: Path, host: CaseHost) -> None:
        self._path = path
        self._folder = path.absolute().parent
        self._host = host

    def tools(self, named: str | list[str] | None) -> Toolbox:
        if named is None:
            if self._host.tools is None:
                raise CasesRefused([f'{self._path}: it names no tools: tools: my_tools, or ["my_tools:TOOLS"]'])
            return self._host.tools()
        try:
            return Toolbox(*(self._imported(one) for one in ([named] if isinstance(named, str) else named)))
        except ContractError as error:
            raise CasesRefused([f"{self._path}: tools: {error}"]) from error

    def case(self, case: Case, tools: Toolbox) -> ReadyCase:
        faults = list(_unknown(case, tools))
        if faults:
            raise CasesRefused(faults)
        if case.expect.plan is not None:
            _plan_in(case.expect.plan)
        judge = None if case.expect.critic is None else AnswerJudge(self._made(case.expect.critic, "review"))
        critics = [self._made(one, "review") for one in case.critics]
        means = TrialSettings(
            case=case,
            plan=self._plan(case, tools),
            policy=self._policy(case.policy),
            make_planner=self._planner(case),
            critics=critics,
        )
        judges = critics if judge is None else [*critics, judge.critic]
        is_virtual = _is_virtual(case, tools, judges) if case.clock is None else case.clock == "virtual"
        return ReadyCase(file=self._path, case=case, tools=tools, means=means, judge=judge, is_virtual=is_virtual)

    def _plan(self, case: Case, tools: Toolbox) -> AnyPlan | None:
        if isinstance(case.plan, str):
            return read_plan(self._folder / case.plan, toolbox=tools)
        return None if case.plan is None else _plan_in(case.plan)

    def _policy(self, said: str | dict[str, Any] | None) -> Policy:
        if self._host.policy is not None:
            return self._host.policy
        if said is None:
            return Policy()
        fields, source = said, "policy"
        if isinstance(said, str):
            source = f"policy {said}"
            try:
                fields = tomllib.loads((self._folder / said).read_text(encoding="utf-8-sig"))
            except (OSError, ValueError) as error:
                raise CasesRefused([f"{source}: {getattr(error, 'strerror', None) or error}"]) from error
        assert isinstance(fields, dict)
        try:
            return Policy.model_validate({name: value for name, value in fields.items() if name != "tools"})
        except ValidationError as error:
            raise CasesRefused([f"{source}: {explain(error)}"]) from None

    def _planner(self, case: Case) -> Callable[[CaseWorld], Planner | None]:
        """Return the factory of the planner; it was called once, so that its faults are known before any run."""
        target, model = case.planner, case.model
        if case.routes is not None:
            if target is not None or model is not None:
                raise CasesRefused(["routes: routes need neither a planner nor a model; name one of them"])
            place = self._folder / case.routes
            router = RouterPlanner(read_routes(place))
            return lambda world: router
        if target is None and model is None:
            return lambda world: None
        if isinstance(target, list):
            PlayedPlanner(target, [])
            return lambda world: PlayedPlanner(target, world.strange)
        if target is not None and ":" in target:
            make = partial(self._own_planner, target)
        elif self._host.make_planner is None:
            raise CasesRefused(["planner: name it as module:name; models are for the command line"])
        else:
            make = partial(self._host.make_planner, target, model)
        make()
        return lambda world: make()

    def _own_planner(self, target: str) -> Planner:
        planner: Planner = self._made(target, "revise")
        must_be_planner(planner, target)
        return planner

    def _made(self, target: str, method: str) -> Any:
        if ":" not in target:
            raise CasesRefused([f"{target}: name what is in the module, too: module:name"])
        found = self._imported(target)
        if isinstance(found, type) or not hasattr(found, method):
            try:
                found = found()
            except Exception as error:
                raise CasesRefused([f"{target}: cannot make a thing with {method}: {error}"]) from error
        return found

    def _imported(self, target: str) -> Any:
        """Import ``module``, ``module:name``, or ``file.py`` and ``file.py:name`` beside the file of cases."""
        file, sign, name = target.partition(":")
        if file.endswith(".py"):
            target = self._module_of(file) + sign + name
        module = target.partition(":")[0].partition(".")[0]
        if module not in sys.modules:
            sys.path.extend(place for place in (str(Path.cwd()), str(self._folder)) if place not in sys.path)
        try:
            with redirect_stdout(sys.stderr):  # a module may print while it is imported
                return import_target(target)
        except ContractError as error:
            raise CasesRefused([f"{self._path}: {error}"]) from error
        except Exception as error:
            raise CasesRefused([f"{self._path}: cannot import {target}: {type(error).__name__}: {error}"]) from error

    def _module_of(self, file: str) -> str:
        """Return the name of the module in a file of Python, which can be imported from now on."""
        path = (self._folder / file).resolve()
        if not path.is_file():
            raise CasesRefused([f"{self._path}: there is no file {file}"])
        known = sys.modules.get(path.stem)
        if known is not None and Path(getattr(known, "__file__", None) or "").resolve() != path:
            raise CasesRefused([f"{self._path}: another module is called {path.stem}, too; rename {file}"])
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        return path.stem


def _plan_in(fields: dict[str, Any]) -> Plan:
    try:
        return Plan.model_validate(fields)
    except ValidationError as error:
        raise PlanRefused(faults_of(error, fields)) from None


def _unknown(case: Case, tools: Toolbox) -> Iterator[str]:
    yield from must_fit(tools, case.world)
    if any(act.when is not None or act.step is not None for act in case.compose):
        yield "compose: when and step are for tools; the answer is composed once, and its acts follow each other"
    for name, wanted in case.expect.calls.args.items():
        for one in (wanted if isinstance(wanted, list) else [wanted]) if name in tools else ():
            yield from unknown_arguments(tools[name], one, f"expect.calls.args.{name}")
    for place, names in (
        ("real", case.real),
        ("reconcile", case.reconcile),
        *((f"expect.calls.{name}", getattr(case.expect.calls, name)) for name in ("must", "never", "args", "once")),
        *(("expect.calls.before", order) for order in case.expect.calls.before),
    ):
        yield from (f"{place}: there is no tool {name}" for name in names if name not in tools)


def models_of(who: Any) -> Iterator[object]:
    """Yield the models of a planner or a critic, and of planners inside it: a chain's, an inner one's, a chooser's."""
    if who is None:
        return
    if (model := getattr(who, "model", None)) is not None:
        yield model
    rungs = [rung.planner for rung in getattr(who, "rungs", ())]
    for inside in (*rungs, getattr(who, "inner", None), getattr(who, "chooser", None)):
        yield from models_of(inside)


def asks_model(who: Any) -> bool:
    """Whether a planner or a critic asks a model."""
    return any(True for _ in models_of(who))


def _is_virtual(case: Case, tools: Toolbox, critics: Sequence[Any]) -> bool:
    """Whether nothing in a case needs real time: it asks no model, and its real tools only compute."""
    has_model = case.model is not None or (isinstance(case.planner, str) and ":" not in case.planner)
    return not has_model and not any(map(asks_model, critics)) and only_computes(case, tools)


def only_computes(case: Case, tools: Toolbox) -> bool:
    """Whether all real tools of a case only compute, so that they take no other time."""
    return all(tools[name].effect is Effect.PURE for name in case.real)

"""Makes planners from settings: one of ours with its language model, or one of the user; and critics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagrun import Critic, Planner
from dagrun.cli.setup.setting_fields import Settings
from dagrun.cli.setup.settings import ANTHROPIC, PROVIDERS, Configuration, names_in
from dagrun.cli.setup.tool_modules import look_in
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, hint, shorten
from dagrun.kernel.model.tool import import_target

if TYPE_CHECKING:
    from dagrun.extend import LanguageModel


def load_planner(target: str | None) -> Planner | None:
    """Import a planner of the user. Call it after the tools are loaded, as their folders are searched.

    Args:
        target: ``module:name`` of an object with a method ``revise``, or of a class or function without parameters
            that returns one.

    Raises:
        BadInput: There is no such planner.
    """
    if target is None:
        return None
    planner: Planner = _load("--planner", target, "revise")
    return planner


def load_critics(targets: Sequence[str]) -> tuple[Critic, ...]:
    """Import critics of the user; as `load_planner`, for objects with a method ``review``."""
    return tuple(_load("--critic", target, "review") for target in targets)


DEFAULT: Final = "openai"
STEPWISE: Final = "stepwise"
MODEL: Final = "model"


def load_compose(configuration: Configuration, target: str | None) -> Any:
    """Return the composer of the answer of a run; `None` for none.

    Args:
        configuration: The settings that hold. Their tools are loaded already.
        target: ``model`` for the model of the settings, or ``module:name`` of a tool, a function or a model.

    Raises:
        BadInput: There is no such thing, or the model lacks a key or a name.
    """
    if target is None:
        return None
    if target != MODEL:
        if not target.partition(":")[2]:
            raise BadInput(f"--compose {shorten(target, 100)}: write {MODEL}, or MODULE:NAME of a tool or a function")
        look_in(Path.cwd(), target)
        try:
            with redirect_stdout(sys.stderr):  # a module may print while it is imported
                return import_target(target)
        except ContractError as error:
            raise BadInput(f"--compose: {error}") from error
    return load_model(configuration, name_of(configuration))


def load_model(configuration: Configuration, planner: str = DEFAULT) -> LanguageModel:
    """Return the language model of the settings.

    Args:
        configuration: The settings that hold.
        planner: The name of the planner, which says whose model it is.

    Raises:
        BadInput: It lacks a key or a name.
    """
    ours = ANTHROPIC if ANTHROPIC in names_in(planner) else DEFAULT
    _check_address(configuration, ours)
    settings = configuration.settings
    return _anthropic_model(settings) if ours == ANTHROPIC else _openai_model(settings, settings.model)


def _load(option: str, target: str, method: str) -> Any:
    if not target.partition(":")[2]:
        raise BadInput(f"{option} {shorten(target, 100)}: name what is in the module, too: MODULE:NAME")
    look_in(Path.cwd(), target)
    try:
        with redirect_stdout(sys.stderr):  # a module may print while it is imported
            made = import_target(target)
            if isinstance(made, type) or not hasattr(made, method):
                made = made()
    except ContractError as error:
        raise BadInput(f"{option}: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {shorten(str(error))}"
        raise BadInput(f"{option}: cannot make a thing with {method} of {shorten(target, 100)}: {reason}") from error
    if not callable(getattr(made, method, None)):
        raise BadInput(f"{option} {shorten(target, 100)}: it has no method {method}")
    return made


_NO_OPENAI_KEY: Final = (
    "no key and no server to ask: set OPENAI_API_KEY; or name a server that needs no key by --base-url URL,"
    " OPENAI_BASE_URL=URL or base_url in dagrun.toml"
)
_NO_ANTHROPIC_KEY: Final = "no key: set ANTHROPIC_API_KEY; or name another server by --base-url or ANTHROPIC_BASE_URL"


def name_of(configuration: Configuration) -> str:
    """Return the name of the planner: from the settings, or the default."""
    return configuration.settings.planner or DEFAULT


def make_planner(configuration: Configuration, name: str) -> Planner:
    """Make a planner.

    Args:
        configuration: The settings that hold. Their tools are loaded already.
        name: The name of one of ours, or ``module:name`` as for `load_planner`; or several with commas between them,
            which become a fallback chain. One of ours may name a model of its own: ``openai=gpt-5``.

    Raises:
        BadInput: There is no planner of that name, or it lacks a key or a model.
        ContractError: A setting makes no sense for this planner.
        MissingExtra: The planner needs a package that is not installed.
    """
    parts = [part.strip() for part in name.split(",")]
    if len(parts) == 1:
        return _make_one(configuration, name)
    asked = {part == ANTHROPIC for part in names_in(name) if part in _ASK_MODELS}
    if len(asked) > 1 and configuration.settings.base_url is not None:
        raise BadInput(
            "one address cannot be that of two providers: leave base_url out, or give a chain as MODULE:NAME"
        )
    from dagrun import FallbackChain

    return FallbackChain(*(_make_one(configuration, part) for part in parts))


def _make_one(configuration: Configuration, name: str) -> Planner:
    ours, equals, model = name.partition("=")
    if ":" in ours:
        look_in(configuration.origins["planner"].folder, name)
        planner = load_planner(name)
        assert planner is not None  # there is a target
        return planner
    if ours not in _MAKERS:
        meant = hint(ours, _MAKERS)
        raise BadInput(
            f"--planner {shorten(name, 100)}: there is no such planner{meant}; there are {', '.join(_MAKERS)}, and your"
            " own as MODULE:NAME; several with commas between them are a fallback chain"
        )
    if equals and (not model or ours not in _WITH_MODEL):
        raise BadInput(f"--planner {shorten(name, 100)}: a model is named as in {' or '.join(_WITH_MODEL)}=NAME")
    if ours in _ASK_MODELS:
        _check_address(configuration, ours)
    settings = configuration.settings
    return _MAKERS[ours](replace(settings, model=model) if model else settings)


def _check_address(configuration: Configuration, name: str) -> None:
    """Refuse an address that is meant for another provider: its server would get the key of this one."""
    origin, meant = configuration.origins["base_url"].name, configuration.address_for or DEFAULT
    is_certain = origin == "command line" or origin in PROVIDERS.values() or configuration.settings.base_url is None
    if not is_certain and (ANTHROPIC in names_in(meant)) != (name == ANTHROPIC):
        raise BadInput(
            f"base_url of {origin} is for the planner {shorten(meant, 100)}, and {name} would send it another key: name"
            " the planner where the address is, or give --base-url"
        )


def _writing(settings: Settings) -> dict[str, Any]:
    """Return the options of planners that write whole plans."""
    return {"dialect": settings.dialect, **_ceiling(settings), **wording_of(settings)}


def wording_of(settings: Settings) -> dict[str, Any]:
    """Return the user's texts for prompts, as options of planners.

    Raises:
        BadInput: There is no text of such a name.
    """
    from dagrun.planners.prompt_texts import TEXTS

    for name in settings.prompts:
        if name not in TEXTS:
            raise BadInput(
                f"prompts.{shorten(name, 100)}: there is no such text{hint(name, TEXTS)}; see dagrun plan --show-prompt"
                " --texts"
            )
    said = {
        "instructions": settings.instructions or "",
        "constraints": settings.constraints,
        "prompts": settings.prompts,
    }
    return {name: value for name, value in said.items() if value}


def _ceiling(settings: Settings) -> dict[str, Any]:
    """Return the limit of an answer as an option, if it is set; planners have their own defaults."""
    return {} if settings.max_output_tokens is None else {"max_output_tokens": settings.max_output_tokens}


def _openai(settings: Settings) -> Planner:
    from dagrun import ModelPlanner

    return ModelPlanner(_openai_model(settings, settings.model), **_writing(settings))


def _anthropic(settings: Settings) -> Planner:
    from dagrun import ModelPlanner

    return ModelPlanner(_anthropic_model(settings), **_writing(settings))


def _anthropic_model(settings: Settings) -> LanguageModel:
    from dagrun import AnthropicModel

    if settings.base_url is None and not (_is_set("ANTHROPIC_API_KEY") or _is_set("ANTHROPIC_AUTH_TOKEN")):
        raise BadInput(_NO_ANTHROPIC_KEY)
    return AnthropicModel(
        _named(settings.model, "--model", "DAGRUN_MODEL"),
        base_url=settings.base_url,
        structure=settings.structure,
        prices=settings.prices,
    )


def _stepwise(settings: Settings) -> Planner:
    from dagrun import StepwisePlanner

    if settings.dialect != "json":
        raise BadInput("the planner stepwise has no dialects: leave --dialect out")
    return StepwisePlanner(_openai_model(settings, settings.model), **_ceiling(settings), **wording_of(settings))


def _ensemble(settings: Settings) -> Planner:
    from dagrun import EnsemblePlanner, ModelPlanner

    _named(settings.fast_model, "--fast-model", "DAGRUN_FAST_MODEL")
    models = (_openai_model(settings, name) for name in (settings.fast_model, settings.model))
    return EnsemblePlanner(*(ModelPlanner(model, **_writing(settings)) for model in models))


def _person(settings: Settings) -> Planner:
    from dagrun import PersonPlanner

    return PersonPlanner()


def _openai_model(settings: Settings, name: str | None) -> LanguageModel:
    from dagrun import OpenAIModel

    if settings.base_url is None and not _is_set("OPENAI_API_KEY"):
        raise BadInput(_NO_OPENAI_KEY)
    return OpenAIModel(
        _named(name, "--model", "DAGRUN_MODEL"),
        base_url=settings.base_url,
        api=settings.api,
        structure=settings.structure,
        prices=settings.prices,
    )


def _named(name: str | None, option: str, variable: str) -> str:
    if name is None:
        setting = option.removeprefix("--").replace("-", "_")
        raise BadInput(f'name the model: {option} NAME, {variable}=NAME, or {setting} = "NAME" in dagrun.toml')
    return name


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())


_MAKERS: Final[Mapping[str, Callable[[Settings], Planner]]] = {
    "openai": _openai,
    ANTHROPIC: _anthropic,
    STEPWISE: _stepwise,
    "ensemble": _ensemble,
    "person": _person,
}
_WITH_MODEL: Final = ("openai", ANTHROPIC, STEPWISE)
_ASK_MODELS: Final = frozenset((*_WITH_MODEL, "ensemble"))

"""Dependencies: objects of the host, such as clients and pools, that tools get by type and plans never see.

1. The host passes them with ``deps=``: one object, several in a list, or several by name or by type.
2. A tool gets one by a parameter annotated ``Annotated[Client, dagrun.dep]``, or all by ``context.deps``. Such a
   parameter is in no schema, so no plan can fill it, no planner is told of it, and no record has it.
3. An object fits if it is an instance of the type. Among several that fit, the one whose name is that of the parameter
   counts. One that is missing is a problem of the plan, before anything runs.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from dagrun.errors import ContractError
from dagrun.kernel.model.contracts.objects import bare, fits, hint_name


class _Dependency:
    def __repr__(self) -> str:
        return "dagrun.dep"


dep: Final = _Dependency()
"""Marks a parameter that gets an object of the host: ``client: Annotated[Client, dagrun.dep] = dagrun.PROVIDED``."""


class Deps:
    """The dependencies of a run.

    Args:
        given: What the host has passed: an object, a list or tuple of objects, or a dict of objects by name or by type.
        is_known: Whether it is known what the host will pass; else every dependency counts as there.

    Attributes:
        given: The same.
        is_known: The same.
    """

    def __init__(self, given: Any = None, *, is_known: bool = True) -> None:
        self.given = given
        self.is_known = is_known
        self._named: list[tuple[object, object]] = []
        if isinstance(given, Mapping):
            self._named = list(given.items())
            if wrong := [key for key in given if not isinstance(key, str | type)]:
                raise ContractError(f"deps are objects by name or by type, got the key {wrong[0]!r:.60}")
        elif type(given) in (list, tuple):
            self._named = [("", value) for value in given]
        elif given is not None:
            self._named = [("", given)]

    def __repr__(self) -> str:
        return f"<deps: {', '.join(type(value).__name__ for _, value in self._named) or 'none'}>"

    def find(self, hint: Any, name: str) -> Any:
        """Return the object of a type.

        Args:
            hint: The type.
            name: The name of the parameter, which decides among several.

        Raises:
            LookupError: There is none, or there are several; the message says which.
        """
        kind = bare(hint)
        if self.given is not None and isinstance(kind, type) and isinstance(self.given, kind) and kind is not object:
            return self.given
        found = [(key, value) for key, value in self._named if key is kind or fits(value, hint)]
        exact = [(key, value) for key, value in found if key is kind] or found
        named = [value for key, value in exact if key == name]
        if named or len(exact) == 1:
            return named[0] if named else exact[0][1]
        if not exact and fits(None, hint):
            return None
        if not exact:
            raise LookupError(f"deps has no {hint_name(hint)}")
        raise LookupError(f"deps has {len(exact)} objects of {hint_name(hint)}, none of which is named {name}")

    def fill(self, wanted: Mapping[str, Any], optional: frozenset[str]) -> dict[str, Any]:
        """Return the dependencies of a call, by parameter; those that are optional and missing are left out."""
        filled = {}
        for name, hint in wanted.items():
            try:
                filled[name] = self.find(hint, name)
            except LookupError:
                if name not in optional:
                    raise
        return filled

    def missing(self, wanted: Mapping[str, Any], optional: frozenset[str]) -> Iterator[tuple[str, str, str]]:
        """Yield the parameter, the type and the reason for each dependency that cannot be filled in."""
        for name, hint in wanted.items() if self.is_known else ():
            try:
                self.find(hint, name)
            except LookupError as error:
                if name not in optional:
                    yield name, hint_name(hint), str(error)


UNKNOWN_DEPS: Final = Deps(is_known=False)
NO_DEPS: Final = Deps()


def deps_from(given: Any) -> Deps:
    """Return the host's ``deps=`` argument as `Deps`."""
    return given if isinstance(given, Deps) else NO_DEPS if given is None else Deps(given)


def dependency_of(hint: Any) -> Any:
    """Return the type of a parameter that gets a dependency; `None` if it is no such parameter."""
    if typing.get_origin(hint) is Annotated and dep in hint.__metadata__:
        return hint.__origin__
    return None

"""Guarded HTTP for tools that read the web: addresses within the rules of the host, and answers of limited size.

In: rules and requests of httpx. Out: answers, or a refusal before any connection. A plan cannot change the rules. Each
name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun._lazy import lazy_names

if TYPE_CHECKING:
    from dagrun.sources.network.guarded_transport import NotAllowed, ServerAnswer, read_answer, shared_transport
    from dagrun.sources.network.network_rules import NetworkRules, rules

_NAMES = {
    "dagrun.sources.network.guarded_transport": "NotAllowed ServerAnswer read_answer shared_transport",
    "dagrun.sources.network.network_rules": "NetworkRules rules",
}

__all__ = ["NetworkRules", "NotAllowed", "ServerAnswer", "read_answer", "rules", "shared_transport"]
if not TYPE_CHECKING:  # or type checkers would take any name
    __getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)

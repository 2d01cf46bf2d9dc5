"""The settings of all these tools at once, as the tables ``[tools.network]``, ``[tools.files]``, ``[tools.search]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from dagrun_tools import files, network, search
from dagrun_tools.files import FileRules
from dagrun_tools.network import NetworkRules
from dagrun_tools.search import SearchSettings


class ToolSettings(BaseModel):
    """What the host program says about its tools; what it leaves out stays as it is.

    Attributes:
        network: Where tools may connect to.
        files: Which files they may use.
        search: Who searches.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    network: NetworkRules | None = None
    files: FileRules | None = None
    search: SearchSettings | None = None


def configure(tables: Mapping[str, Any]) -> None:
    """Set what *tables* say, for the runs that are started in this context from now on.

    Args:
        tables: The table ``tools`` of a configuration file, as a dict.

    Raises:
        pydantic.ValidationError: It has a fault; nothing was set.
    """
    given = ToolSettings.model_validate(dict(tables))
    if given.network is not None:
        network.rules.set(given.network)
    if given.files is not None:
        files.rules.set(given.files)
    if given.search is not None:
        search.settings.set(given.search)

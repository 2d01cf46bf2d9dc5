"""The settings of these tools: ``[tools.network]``, ``[tools.files]``, ``[tools.search]`` and ``[tools.code]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from dagrun import network
from dagrun.network import NetworkRules
from dagrun_tools.code import run_code
from dagrun_tools.code.run_code import CodeRules
from dagrun_tools.files import file_tools
from dagrun_tools.files.file_tools import FileRules
from dagrun_tools.web import search_web
from dagrun_tools.web.search_web import SearchSettings


class ToolSettings(BaseModel):
    """The settings of the host program; a table that it leaves out changes nothing.

    Attributes:
        network: Where tools may connect.
        files: Which files tools may use.
        search: Which server searches the web.
        code: What the code of a plan may use, if the host has added `run_code`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    network: NetworkRules | None = None
    files: FileRules | None = None
    search: SearchSettings | None = None
    code: CodeRules | None = None


def configure(tables: Mapping[str, Any]) -> None:
    """Apply *tables* to the runs that are started in this context from now on.

    Args:
        tables: The table ``tools`` of a configuration file, as a dict.

    Raises:
        pydantic.ValidationError: A table has a fault; no setting was changed.
    """
    new = ToolSettings.model_validate(dict(tables))
    if new.network is not None:
        network.rules.set(new.network)
    if new.files is not None:
        file_tools.rules.set(new.files)
    if new.search is not None:
        search_web.settings.set(new.search)
    if new.code is not None:
        run_code.rules.set(new.code)

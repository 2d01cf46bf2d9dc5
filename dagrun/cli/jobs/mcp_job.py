"""An MCP server on the command line: its tools, and its transport."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import click

from dagrun.cli.jobs.execute import unwrapped
from dagrun.cli.jobs.page_server import LOOPBACK, bound_socket, quiet_server
from dagrun.cli.jobs.recording import typed_arguments
from dagrun.cli.records.resume_command import labels_of, options_again
from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.plans import load_plan
from dagrun.cli.setup.secrets import record_key, secrets_of
from dagrun.cli.setup.settings import configure
from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox, loop_of, opened_deps
from dagrun.cli.terminal.signals import Interrupts, exit_hard, next_in_loop
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import PlanRefused, shorten
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.toolbox import AnyTool
from dagrun.serve.mcp.plan_inputs import tools_of, unasked
from dagrun.serve.mcp.plan_server import PlanServer, plan_server
from dagrun.serve.mcp.served_runs import Host
from dagrun.sources.mcp_connection import mcp_library

TOKEN: Final = "DAGRUN_MCP_TOKEN"
_ENDINGS: Final = (".json", ".yaml", ".yml")
_MOST_PLANS: Final = 200


class McpJob:
    """Serves plans until the caller has gone.

    Args:
        flags: The flags of the command line.

    Raises:
        BadInput: Something that is named cannot be used, or a tool with an effect asks nobody.
        PlanRefused: A plan has problems.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        configuration = configure(flags)
        limits = configuration.limits()
        toolbox = load_toolbox(configuration)
        configure_tools(configuration, limits)
        self._flags = flags
        self._deps = configuration.settings.deps
        again = options_again(configuration, None, {**flags, "critics": (), "compose": None})
        self._host = Host(
            toolbox=toolbox,
            labels=labels_of(typed_arguments(), configuration, again),
            journal=open_records(configuration).journal,
            policy=limits.policy,
            secrets=secrets_of(configuration),
            record_key=record_key(),
        )
        self._plans = self._read(Path(flags["plans"])) if flags["plans"] is not None else {}
        reached = [tool for plan in self._plans.values() for tool in tools_of(plan)]
        self._refuse_unasked(reached if flags["plans"] is not None else [*toolbox.values()])

    def _read(self, folder: Path) -> dict[str, CheckedPlan]:
        files = sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS and path.is_file())
        if not 0 < len(files) <= _MOST_PLANS:
            raise BadInput(f"--plans {folder}: it has {len(files)} plans (.json, .yaml), not 1 to {_MOST_PLANS}")
        host, plans = self._host, {}
        for path in files:
            if path.stem in plans:
                raise BadInput(f"--plans {folder}: two plans are called {path.stem}")
            try:
                plan = load_plan(str(path), host.toolbox)
                plans[path.stem] = check_plan(plan, host.toolbox, host.policy, secrets=host.secrets)
            except PlanRefused as refused:
                click.echo(f"{path}:", err=True)
                raise refused
        return plans

    def _refuse_unasked(self, reached: list[AnyTool]) -> None:
        names = list(dict.fromkeys(unasked(reached, self._host.policy)))
        if names and not self._flags["allows_effects"]:
            raise BadInput(
                f"callers could change the world without a person's yes, by {shorten(', '.join(names))}: let these "
                'tools ask (needs_approval=True, or approve = [{tool = "…"}] in the policy), or say --yes-effects'
            )

    def carry_out(self) -> int:
        """Serve, and return the exit code."""
        with unwrapped():
            anyio.run(self._serve, backend_options=loop_of(self._host.toolbox))
        return 0

    async def _serve(self) -> None:
        offers = not self._flags["no_answers"]
        async with (
            opened_deps(self._deps, self._host.toolbox) as deps,
            plan_server(replace(self._host, deps=deps), self._plans, offers_answers=offers) as server,
        ):
            with Interrupts() as signals:
                await (self._over_http if self._flags["over_http"] else _over_stdio)(server, signals)

    async def _over_http(self, server: PlanServer, signals: Interrupts) -> None:
        token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
        socket = bound_socket(LOOPBACK, self._flags["port"])
        app = server.library_server.streamable_http_app(host=LOOPBACK)
        from dagrun.serve.guard import KnownOnly

        guarded = KnownOnly(app, token=token, authorize=None, user="")
        http = quiet_server(guarded, lifespan="on")

        def stop(_: int) -> None:
            http.should_exit = True

        signals.on_first(next_in_loop(stop))
        click.echo(f"mcp: http://{LOOPBACK}:{socket.getsockname()[1]}/mcp", err=True)
        if TOKEN not in os.environ:
            click.echo(f"token: {token}", err=True)
        await http.serve(sockets=[socket])


async def _over_stdio(server: PlanServer, signals: Interrupts) -> None:
    stopped = anyio.Event()
    signals.on_first(next_in_loop(lambda _: stopped.set()))

    async def stop() -> None:
        await stopped.wait()
        await server.suspend()
        exit_hard(0)  # a thread waits for the next line of the standard input, and nothing wakes it

    library = server.library_server
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        async with mcp_library("mcp.server.stdio").stdio_server() as (received, sent):
            await library.run(received, sent, library.create_initialization_options())
        tasks.cancel_scope.cancel()

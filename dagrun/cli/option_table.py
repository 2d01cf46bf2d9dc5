"""The options and arguments of all commands: help entry, setting, text, and the commands that have them.

A command below another one is named with a dot: ``mcp.serve`` is ``dagrun mcp serve``. A command shows its rows in this
order; those of which it stands after a bar (``|``), only with ``--help-all``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from dagrun.cli.options import OptionRow, change_directory, complete_run, refuse_key, row, rows_of

RUNNING: Final = "run do resume retry"
PLANNED: Final = f"{RUNNING} submit worker plan eval.run compare"
TOOLS: Final = "tools schema mcp.serve"
TOOLED: Final = f"{PLANNED} {TOOLS} check show bench sim eval.from"
LIMITED: Final = f"{RUNNING} submit bench sim mcp.serve"
LEFT: Final = "answer stop"
QUEUED: Final = "submit worker"
OF_ONE_RUN: Final = f"{LEFT} inspect eval.from"
OF_RUNS: Final = f"{OF_ONE_RUN} runs report metrics learn prune serve sim mcp.serve"
PRINTING: Final = (
    f"{RUNNING} {LEFT} submit plan check bench sim runs inspect report"
    " metrics learn prune eval.run eval.from compare tools mcp.pin config.show"
)

_COUNT: Final = click.IntRange(min=1)
_ABOVE_0: Final = click.FloatRange(min=0, min_open=True)
_THERE: Final = click.Path(exists=True)
_FILE_THERE: Final = click.Path(dir_okay=False, exists=True, path_type=Path)
_DIR_THERE: Final = click.Path(file_okay=False, exists=True)

# fmt: off
OPTIONS: Final[tuple[OptionRow, ...]] = (
    # Arguments -------------------------------------------------------------------------------------------------------
    *rows_of("run check show bench sim", row("PLAN", "plan")),
    *rows_of("submit", row("[PLAN]", "plan"),
        row("--goal TEXT", "goal", "A goal in words; a planner of the worker writes its plan.")),
    *rows_of("do", row("GOAL", "goal")),
    *rows_of("plan", row("[GOAL]", "goal")),
    *rows_of(f"resume retry {OF_ONE_RUN}", row("RUN", "run", shell_complete=complete_run)),
    *rows_of("answer stop inspect", row("[STEP]", "step")),
    *rows_of("answer", row("[VALUE]...", "values")),
    *rows_of("report", row("RUN", "source", shell_complete=complete_run)),
    *rows_of("runs prune", row("[RUN]...", "run_ids", shell_complete=complete_run)),
    *rows_of("eval.run compare", row("PATH...", "paths", type=_THERE)),
    *rows_of("new", row("NAME", "name")),
    *rows_of("tools", row("[NAME]...", "names")),
    *rows_of("schema", row("[KIND]", "kind", default="plan", metavar="[plan|view|toolset|eval|events]",
        type=click.Choice(["plan", "view", "toolset", "eval", "events"]))),
    *rows_of("config.trust", row("[FILE]", "file", type=_FILE_THERE),
        row("--undo", "undo", "Trust it no longer.")),
    *rows_of("completion", row("SHELL", "shell", type=click.Choice(["bash", "zsh", "fish"]), metavar=None)),

    # Tools, inputs and limits ----------------------------------------------------------------------------------------
    *rows_of(TOOLED, row("-t, --tools MODULE[:NAME]", "tools",
        "The tools: an importable module, a file (./my_tools.py), or one tool in it.", multiple=True)),
    *rows_of(f"| {TOOLED}",
        row("--openapi [NAME=]FILE", "openapi",
            "The OpenAPI document of a service, whose operations become tools; with NAME, they are called NAME.… Its"
            " secret, its effects and more are in a table [openapi.NAME] of dagrun.toml.", multiple=True),
        row("--include PATTERN", "include",
            "The operations of --openapi that are wanted: names such as 'repos_*', or tag:NAME.", multiple=True),
        row("--openapi-url URL", "openapi_url", "The address of the service of --openapi, if its document says none.")),
    *rows_of(f"mcp.pin | {TOOLED}",
        row("--mcp FILE", "mcp_files",
            "A file of MCP servers, as Claude, Cursor and VS Code read it. Rules for one: [mcp.SERVER] of dagrun.toml.",
            multiple=True),
        row("--mcp-pins FILE", "mcp_pins",
            "Hold tools of MCP servers to this lock file, which dagrun mcp pin writes.")),
    *rows_of(f"| {RUNNING} worker mcp.serve", row("--deps MODULE:NAME", "deps",
        "The objects that tools get by type, such as clients: a function that returns them, or a context manager.")),
    *rows_of("run do submit plan check bench sim", row("-i, --input K=V", "inputs",
        "The value of ${input.K}: JSON, or else a text; K=@FILE for the contents of a file.", multiple=True)),
    *rows_of(f"mcp.pin | {RUNNING} submit worker plan check sim {TOOLS}", row("--secret NAME=env:VARIABLE", "secrets",
        'A secret for tools that take one; plans refer to it by {"$secret": "NAME"}. It is read from a variable, or by'
        " NAME=file:PATH from a file that only you may read; NAME alone is short for the variable of that name. Its"
        " value is never shown.", multiple=True)),
    *rows_of(f"{LIMITED} plan check", row("--policy FILE", "policy", "A TOML file with the limits of the run.")),
    *rows_of("worker", row("--policy FILE", "policy",
        "A TOML file with the settings of tools ([tools]). The limits of a run are those that it was submitted with.")),
    *rows_of("eval.run", row("--policy FILE", "policy",
        "A TOML file with limits that replace the limits of the cases.")),
    *rows_of(LIMITED, row("-j, --max-running N", "max_running", "Steps that run at once.", type=_COUNT)),
    *rows_of("| run", row("--mode [parallel|waves|sequential]", "mode",
        "Run each step as soon as it can; or generation by generation; or one step at a time.  [default: parallel]")),
    *rows_of("| do", row("--mode [parallel|sequential]", "mode",
        "Run each step as soon as it is written and can run; or one step at a time.  [default: parallel]")),

    # Planners, models, critics ---------------------------------------------------------------------------------------
    *rows_of(PLANNED,
        row("--planner NAME", "planner",
            "The planner, which writes plans, and is asked when a step fails or surprises: openai, anthropic, stepwise,"
            " ensemble, person, or MODULE:NAME of an object with a method revise. Several, with commas, form a fallback"
            " chain: each passes on what it cannot plan, as in my_routes:router,openai=FAST,openai=STRONG,person."),
        row("--model NAME", "model", "The language model; or set DAGRUN_MODEL.")),
    *rows_of(f"| {PLANNED}",
        row("--fast-model NAME", "fast_model", "For the planner ensemble: the model that is asked first."),
        row("--base-url URL", "base_url",
            "The server, if not the provider's own, such as http://127.0.0.1:8000/v1; or set OPENAI_BASE_URL or"
            " ANTHROPIC_BASE_URL. Keys are read only from OPENAI_API_KEY or ANTHROPIC_API_KEY."),
        row("--api [auto|responses|chat]", "api", "The OpenAI interface of the server.  [default: auto]"),
        row("--structure [auto|schema|tool|json]", "structure",
            "How the model is made to answer in JSON: by a schema, by a tool call, or only by the prompt."
            "  [default: auto]"),
        row("--max-output-tokens N", "max_output_tokens", "The longest answer, in tokens.", type=_COUNT),
        row("--api-key, --apikey, --key", "api_key", hidden=True, is_eager=True, expose_value=False, is_flag=False,
            flag_value="", callback=refuse_key)),
    *rows_of(f"| {PLANNED}", row("--dialect [json|lean|compiler|calls]", "dialect",
        "How the model writes plans: as JSON; as JSON with calls alone; as numbered calls; or as numbered calls by a"
        " short prompt, for models below two billion parameters.  [default: json]")),
    *rows_of(f"| {RUNNING} submit worker",
        row("--critic MODULE:NAME", "critics",
            "A critic, which reviews outputs of steps before they are used: an object with a method review.",
            multiple=True),
        row("--compose NAME", "compose",
            "Writes the answer from the results, as the last step: model, for the model of the options, or MODULE:NAME"
            " of a tool, a function or a model.")),

    # Records of runs -------------------------------------------------------------------------------------------------
    *rows_of(f"{RUNNING} {OF_RUNS}", row("--runs DIR", "runs",
        "The folder of the records of runs; or set DAGRUN_RUNS.  [default: a folder of the user]")),
    *rows_of(QUEUED, row("--runs DIR", "runs", hidden=True)),  # refused with the reason
    *rows_of(f"{QUEUED} {OF_RUNS} | {RUNNING}", row("--journal URL", "journal",
        "The database of the records of runs, instead of a folder: postgresql://USER@HOST/NAME; or set"
        " DAGRUN_JOURNAL. Its password comes from PGPASSWORD or a password file.")),
    *rows_of(f"serve | {RUNNING} worker mcp.serve", row("--artifacts DIR", "artifacts",
        "With --journal: the folder for the files of runs, which all that carry out runs share.")),
    *rows_of("| run do retry submit",
        row("--run-id NAME", "run_id", "The name of the run.  [default: made of the time]"),
        row("--expires-after DAYS", "expires_after",
            "Days after which dagrun prune may delete the record.  [default: never]", type=_ABOVE_0)),
    *rows_of(f"| {RUNNING} submit worker mcp.serve", row("--durability [process|power]", "durability",
        "The failures that the record survives: the end of the process; or also a power cut, which is slower."
        "  [default: process; of a database, power]")),
    *rows_of("| run do", row("--no-journal", "no_journal", "Keep no record: the run cannot be resumed.")),
    *rows_of("resume retry", row("--allow-differences", "allow_differences",
        "Accept that the policy, the tools or the critics differ from the record; the differences are recorded.")),
    *rows_of("resume",
        row("--steal", "steal", "Take the run from a process that still holds it; that process stops."),
        row("--requeue", "requeue",
            "Let a worker resume it: put a submitted run that is stuck or waits back into the queue.")),

    # Workers ---------------------------------------------------------------------------------------------------------
    *rows_of("submit",
        row("--pool NAME", "pool", "The workers that may claim it.  [default: default]", default="default"),
        row("--priority N", "priority", "Runs of a higher one come first.  [default: 0]", type=int, default=0),
        row("--not-before TIME", "not_before",
            "When it may begin: 30s, 10m, 2h or 1d from now on, or 2026-11-26T08:30."),
        row("--follow", "follows", "Show the run as dagrun inspect --follow does, until it has ended.")),
    *rows_of("worker",
        row("--pool NAME", "pools", "Claim runs of this pool.  [default: default]", multiple=True),
        row("--at-once N", "at_once", "The most runs at once.", type=click.IntRange(1, 10_000), default=20,
            show_default=True),
        row("--max-takeovers N", "max_takeovers",
            "How often a run may be taken over from a worker that has ended, before it is stuck.",
            type=click.IntRange(min=0), default=3, show_default=True),
        row("--unfit-after SECONDS", "unfit_after",
            "When a run with other tools is stuck, if no worker fits it for so long.",
            type=click.FloatRange(min=0, min_open=True, max=1e9), default=3600, show_default=True),
        row("--allow-differences", "allow_differences",
            "Carry out runs, too, that were submitted with other tools or critics; the differences are recorded.")),

    # What one command does -------------------------------------------------------------------------------------------
    *rows_of("answer",
        row("--yes", "is_sure", "Say yes; of a no or a value, do not ask whether you are sure."),
        row("--deny", "deny", "Say no."),
        row("--tick POINT", "ticked", "Tick a checklist point.", multiple=True),
        row("--note TEXT", "note", "The reason, for the record.", default="")),
    *rows_of("stop",
        row("--suspend", "suspend", "Let dagrun resume resume the run later; without it, the run ends."),
        row("--reason TEXT", "reason", "The reason, for the record.", default="")),
    *rows_of(LEFT, row("--by NAME", "by", "Your name, for the record.  [default: your login name]")),
    *rows_of("mcp.pin", row("--yes", "is_sure", "Write without asking."),
        row("--check", "check", "Compare with the lock file, show what differs, and write nothing.")),
    *rows_of("check",
        row("--strict", "strict", "Refuse the plan for advice, too."),
        row("--flow", "flow", "Show whose data gets into which guarded argument: the trust boundary."),
        row("--html FILE", "html", "Draw the plan as a page, with each problem at its step.")),
    *rows_of("show",
        row("-f, --format [tree|mermaid|dot|json|svg|png|html]", "form",
            "The form of the drawing; json is the plan as dagrun has read it."
            "  [default: by the ending of FILE, or tree]"),
        row("-o, --output FILE", "file", "The file.  [default: stdout]")),
    *rows_of("plan",
        row("--show-prompt", "show_prompt", "Print the prompt that the planner sends to its model, and ask no model."),
        row("--kind [first|repair|replan|next]", "kind",
            "With --show-prompt: that for the first plan; for a repair, after the plan was refused; for a change of a"
            " running plan; for the next step of the planner stepwise.  [default: first]"),
        row("--texts", "texts",
            "With --show-prompt: the texts that prompts are made of, to replace them in dagrun.toml.")),
    *rows_of("runs", row("--state NAMES", "state",
        "List only runs that are queued, running, waiting, ended, stuck or unreadable; several with commas.",
            default=""),
        row("--verify", "verify", "Check the records: that none was changed, and none is missing.")),
    *rows_of("inspect",
        row("--answers", "with_answers", "Show the answers of models on record, whole."),
        row("-f, --follow", "follow", "Show the run as it goes on, until it has ended, and print its answer."),
        row("--state", "state", "Show the state of the run and of each step, rebuilt from its record."),
        row("--hash", "hash", "Print only the hash of this state."),
        row("--export", "export", "Print the records, a line of JSON each."),
        row("--full", "is_full", "With --export: as they were written, personal data included.")),
    *rows_of("report",
        row("-o, --output FILE", "file", "The file; - for the standard output.  [default: RUN.html]"),
        row("-f, --format [html|svg|png|json|markdown|dot|mermaid]", "form",
            "The form.  [default: by the ending of FILE]"),
        row("--part [graph|timeline|both]", "part", "The content of a picture.", default="both"),
        row("--values [none|short|full]", "values",
            "How much of arguments and outputs: none, to share with strangers; 2,000 characters of each; 64 KiB.",
            default="short", show_default=True),
        row("--max-nodes N", "max_nodes", "The most boxes of a graph.  [default: 60]", type=click.IntRange(1, 2_000),
            default=60),
        row("--theme [auto|light|dark]", "theme", "The colours of a picture.", default="auto"),
        row("--redact [email|phone|iban|card]", "redact", "Personal data to leave out, too.", multiple=True),
        row("--title TEXT", "title", "The heading.  [default: the goal of the run]", default=""),
        row("--force", "force", "Overwrite a file that is no report of dagrun."),
        row("--github", "github", "Add the report as Markdown to the summary of the job in GitHub Actions.")),
    *rows_of("metrics",
        row("--since TIME", "since", "Count runs that began then or later: 7d, 12h, 2026-11-20."),
        row("--until TIME", "until", "Count runs that began before."),
        row("--by WHAT", "by", "Make groups by tool, provider, planner, plan, day, week, label:NAME.", default=""),
        row("--split TIME", "split", "Compare the runs before a change with those since then."),
        row("--fail-if RULE", "rules", "An alert rule; see below.", multiple=True),
        row("--prom", "as_prom", "Print the text form of Prometheus.")),
    *rows_of("learn",
        row("--since TIME", "since", "Learn from runs that began then or later: 7d, 2026-11-20."),
        row("--min-runs N", "min_runs", "Successes that it takes.", type=_COUNT, default=1, show_default=True),
        row("-o, --output DIR", "folder",
            "Write a file for each route, and a golden task of it. Without it, the routes are only listed."),
        row("--force", "is_forced", "Write over files of routes that are there.")),
    *rows_of("prune",
        row("--older-than DAYS", "older_than",
            "Delete also runs whose last record is older than DAYS, whether they have expired or not.",
            type=click.FloatRange(min=0)),
        row("-n, --dry-run", "dry_run", "Show what would be deleted, and delete nothing."),
        row("--force", "force", "Delete also runs that can be resumed or are damaged, but never one in use.")),
    *rows_of("eval.run compare", row("--only ID", "only", "Carry out the case of this id alone.", multiple=True)),
    *rows_of("eval.run",
        row("--record FILE", "record", "Keep the figures, as a baseline."),
        row("--baseline FILE", "baseline", "Compare with figures kept earlier."),
        row("--junit FILE", "junit", "Write a report for CI servers.")),
    *rows_of("eval.from",
        row("-o, --output FILE", "output", "The file.  [default: stdout]"),
        row("--id ID", "case_id", "The name of the case.  [default: the name of the run]"),
        row("--force", "force", "Write over a file that is there.")),
    *rows_of("compare",
        row("--variants FILE", "variants",
            "The variants to compare: a TOML file, see below.  [default: loop, a step at a time, and plan, by the"
            " planner of the settings]"),
        row("--repeat N", "repeat", "Runs of each case with each variant. Fewer than 6 in all show no difference.",
            type=click.IntRange(1, 1_000), default=10, show_default=True),
        row("--max-cost N", "max_cost",
            "The most that all runs together may cost, with judges. A model without a price ends the comparison.",
            type=_ABOVE_0),
        row("--max-tokens N", "max_tokens", "The tokens that all runs together may use, with judges of answers.",
            type=_COUNT)),
    *rows_of("eval.run compare", row("--github", "github",
        "Add a table to the summary of the job, in GitHub Actions.")),
    *rows_of("bench",
        row("--repeat N", "repeat", "Runs in each mode.", type=click.IntRange(1, 1_000), default=3, show_default=True),
        row("--repeat-effects", "repeat_effects", "Call tools with effects, too, once in each run.")),
    *rows_of("sim",
        row("--repeat N", "repeat", "Runs of a variant.", type=click.IntRange(1, 100_000), default=1_000,
            show_default=True),
        row("--seed N", "seed", "The same seed gives the same figures.", type=int, default=0, show_default=True),
        row("--duration NAME=TEXT", "durations",
            "The durations of the calls of a tool, or of a step: see below.  [default: from the records of runs, or"
            " else the estimate of the step]", multiple=True),
        row("--fail NAME=RATE[:HOW]|learned", "failures",
            "How often the calls of a tool, or of a step, fail, and how: see below. With 'learned', the calls of all"
            " other tools fail as the records of runs say.  [default: never]", multiple=True),
        row("--items STEP=N", "items",
            "How many elements the list has that a step returns, for a for_each over it.  [default: 3]", multiple=True),
        row("--returns STEP=JSON", "returns", "The output of a step, for conditions that use it.", multiple=True),
        row("--cost NAME=N", "costs", "The cost of a call of a tool, or of a step.", multiple=True),
        row("--person TEXT", "people", "How long people take to say yes, as in --duration.", default="0"),
        row("--vary FIELD=V,V…", "vary",
            "Values of a field of the policy, to compare: numbers, on, off, none. Every combination is simulated.",
            multiple=True)),
    *rows_of("bench sim", row("--plot FILE", "plot", "Draw the figures: .png, .svg or .pdf.")),
    *rows_of("tools", row("--check", "check", "Report tools that are hard to choose or unsafe to call."),
        row("--ignore CODE", "ignored", "Leave out findings of this code.", multiple=True),
        row("--rehearse ARGS", "rehearsed",
            "With --check: call tool NAME with these arguments, a JSON object, and cut the call off at each of its"
            " awaits; report what it leaves."),
        row("--then ARGS", "then",
            "With --rehearse: the arguments of the call after each of them, with another answer; report if it gets"
            " the answer of the call before.")),
    *rows_of("mcp.serve",
        row("--plans DIR", "plans",
            "Offer each plan of DIR (.json, .yaml) as a tool. Without it: check_plan, run_plan.", type=_DIR_THERE),
        row("--http", "over_http", "Serve over HTTP on this machine, instead of stdin and stdout."),
        row("--yes-effects", "allows_effects",
            "Also offer tools with effects that need no approval (needs_approval, or approve of the policy)."),
        row("--no-answers", "no_answers",
            "Offer no tool answer: people answer by dagrun answer, and the run continues by dagrun resume.")),

    # What is printed, shown and written ------------------------------------------------------------------------------
    *rows_of(f"{RUNNING} bench", row("-o, --output DIR", "output",
        "The folder for the files of the run: those that tools write, run.json, artifacts/. Tools look for files to"
        " read there, and then in the current directory.")),
    *rows_of("plan", row("-o FILE", "file", "Write the plan to FILE.  [default: standard output]", default="-")),
    *rows_of("run", row("-n, --dry-run", "dry_run", "Check the plan, show its steps, and run nothing.")),
    *rows_of("do",
        row("-n, --dry-run", "dry_run", "Let the planner write the plan, check it, show its steps; run nothing."),
        row("--save-plan FILE", "save_plan", "Write the plan to FILE when the run has ended.")),
    *rows_of(PRINTING, row("--json", "as_json", "Print one JSON object.")),
    *rows_of(f"inspect | {RUNNING} submit", row("--events [jsonl]", "events",
        "Print each event as it happens, then the result.")),
    *rows_of("worker", row("--events [jsonl]", "events", "Print a line of JSON for each claim, and each end of one.")),
    *rows_of(f"inspect | {RUNNING}", row("--timeline", "timeline",
        "Draw when each step ran, also during changes of the plan.")),
    *rows_of(RUNNING,
        row("--report FILE", "report",
            "Write a report of the run at its end: a page, or by ending (.svg, .png, .md, .json)."),
        row("--serve", "serves", "Show the run in a browser; the address is printed.")),
    *rows_of(f"serve mcp.serve | {RUNNING}", row("--port N", "port", "The port of the page; 0 for any.",
        type=click.IntRange(0, 65_535))),
    *rows_of("serve",
        row("--host ADDRESS", "host", "The address.  [default: 127.0.0.1]", default="127.0.0.1"),
        row("--allow-host NAME", "allow_host",
            "A further name under which browsers may reach the page.", multiple=True),
        row("--read-only", "read_only", "Allow reading only.")),
    *rows_of(f"serve report | {RUNNING}", row("--open", "open_browser", "Open the page in a browser.")),
    *rows_of(f"| {RUNNING}",
        row("--linger", "lingers", "Keep the page open after the run, until Ctrl-C."),
        row("--trace", "trace",
            "Send a trace of the run with OpenTelemetry (OTLP over HTTP), to where the OTEL_* variables say; needs the"
            " extra otel.")),
    *rows_of(f"{RUNNING} worker plan eval.run compare", row("-v, --verbose", "verbose",
        "Show logs of tools, answers of planners' models, and the traceback of each failure; -vv for everything.",
        count=True)),
    *rows_of(f"{RUNNING} submit worker plan inspect", row("-q, --quiet", "quiet",
        "No progress, and no summary of a success.")),
    *rows_of(f"* | {RUNNING} submit worker", row("-C DIR", "directory",
        "Run in DIR: file names, also those in plans, are relative to it.", is_eager=True, expose_value=False,
        callback=change_directory)),
)

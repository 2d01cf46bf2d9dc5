"""Settings, tools, planners, plans, inputs and secrets, as the user of the command line names them.

In: flags, environment variables, ``dagrun.toml`` and the files that they name. Out: a `Configuration`, a `Toolbox`, a
`Planner`, a `Plan`, inputs and `Secrets`. Open ``settings.py`` first.

Whatever is wrong is raised as one `BadInput` with a line for each fault. This package never imports code from a folder
that the user has not named, and never shows the value of a secret.
"""

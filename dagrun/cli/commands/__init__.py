"""The commands of ``dagrun``.

In: the arguments, which click has parsed. Out: the exit code; `None` stands for 0. The table in
``dagrun/cli/command_table.py`` imports a module only when its command is called. Open ``run.py`` first.

A module is named after its command, and holds what the command does; commands that belong together share one. A command
never prints to ``sys.stdout``: it writes data by ``data_output``, so that the output of tools cannot get into it.

The docstring of a command is its help page; its options are the rows of ``dagrun/cli/option_table.py`` that name it.
What does the work is imported inside the function: the help of every command, and the lists of runs and settings,
appear at once.
"""

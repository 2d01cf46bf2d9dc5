"""The command line ``dagrun``; the only package that knows click and rich.

In: arguments, environment variables, settings files and plan files. Out: data on the standard output, everything else
on the standard error, and an exit code.

Open ``main.py`` first, then ``command_table.py``, which names the module of each command, and ``option_table.py``,
which has the options of all of them. A command is one module of ``commands``. It reads its settings by ``setup``,
carries out runs by ``jobs``, finds recorded runs by ``records``, and talks to people by ``terminal``.

This package never schedules, checks or records anything itself: it calls ``dagrun.api`` and the floors below. It loads
a library only for a command that needs it, so that ``dagrun --help`` starts fast.
"""

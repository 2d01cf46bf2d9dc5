"""The commands of ``dagrun``: a module for each, named after the word that the user types.

In: the arguments, which click has parsed. Out: the exit code; `None` stands for 0. The table in
``dagrun/cli/command_table.py`` imports a module only when its command is called. Open ``run.py`` first.

Some modules have more than one command: ``answer.py`` also has ``approve``, ``resume.py`` also has ``retry``,
``tools.py`` also has ``schema``, ``cancel.py`` also has ``suspend``, and ``submit.py`` also has ``follow`` and
``requeue``. A command never prints to ``sys.stdout``: it writes data by ``data_output``, so that the output of
tools cannot get into it.

A module here declares options and help, and imports what does the work inside its function: the help of every command,
and the lists of runs and settings, appear at once.
"""

"""Standard streams and the terminal: everything that people see, and everything that they type.

In: events, results, errors and questions. Out: text for terminals and pipes, and answers. Open ``text.py`` first,
which has data, too; then ``display.py`` for the standard error during a run, and ``ask_person.py`` for questions.

Nothing that a plan, a tool or a record says reaches a terminal unescaped, and no value of a secret is ever written.
This package knows nothing of settings or records, and never changes a run.
"""

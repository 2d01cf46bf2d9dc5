"""Keep secrets and personal data out of everything that a run shows or records.

The package takes texts, JSON values, events and log records, and returns them without registered secrets, tokens and
personal data. Open `redactor.py` first: it has the two rules of what is replaced where, and the class `Redactor`.
`events.py` redacts the texts of events.

This package never changes a value that is passed to a step: that would change what the run computes.
"""

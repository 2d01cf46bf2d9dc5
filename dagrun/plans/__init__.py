"""Plans as text: read from files, written, and drawn.

The package takes the text of a plan in JSON, YAML or lines of calls, in our form or the form of a model, and returns a
`Plan`, or every problem of the text at once.

Open `read_plan.py` first: from a file or a text to a plan. `plan_forms.py` converts other forms, and
`compiler_dialect.py` reads lines of calls. `plan_text.py` writes a plan as YAML or as Python. What planners read while
it is written is in `dagrun.planners.answers`.

Texts come from outside. They are limited in size and depth before they are parsed, and nothing in them is evaluated. A
plan that was read is well-formed, but not checked: `dagrun.kernel.checks` does that.
"""

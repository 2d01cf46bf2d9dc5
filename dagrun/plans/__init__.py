"""Plans as text: read from files, and drawn.

The package takes the text of a plan in JSON or YAML, and returns a `Plan`, or every problem of the text at once. What
models write in other forms is read by `dagrun.planners.answers`, which is loaded when a text needs it.

Open `read_plan.py` first: from a file or a text to a plan.

Texts come from outside. They are limited in size and depth before they are parsed, and nothing in them is evaluated. A
plan that was read is well-formed, but not checked: `dagrun.kernel.checks` does that.
"""

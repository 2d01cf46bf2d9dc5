"""Plans as text: read from files and from models, also while they are written; and drawn.

The package takes the text of a plan in JSON, YAML or lines of calls, in any of three dialects, and returns a `Plan`, or
every problem of the text at once. It also reads patches and single steps from the answers of models, makes the JSON
Schemas that these answers must follow, and draws plans.

Open `read_plan.py` first: from a file or a text to a plan. `plan_stream.py` reads a plan piece by piece, and returns
each step as soon as it is complete; `model_answers.py` reads the other answers of planners.

Texts come from outside. They are limited in size and depth before they are parsed, and nothing in them is evaluated. A
plan that was read is well-formed, but not checked: `dagrun.checks` does that.
"""

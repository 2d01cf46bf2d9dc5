"""What planning models write: plans, patches and single steps, also while they are written.

In: the text of an answer, whole or in pieces, in JSON or in lines of calls. Out: a `Plan`, a `Patch`, or a
`NextStepAnswer`; or every problem of the text at once. `plan_schemas.py` makes the JSON Schemas that such answers must
follow.

Open `model_answers.py` first: from the whole answer to a plan or a patch. `plan_stream.py` reads a plan piece by piece,
and returns each step as soon as it is complete.

Texts come from outside. They are limited in size and depth before they are parsed, and nothing in them is evaluated.
"""

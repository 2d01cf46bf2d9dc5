"""Planners: they turn a goal into a plan, and a failure into a patch.

In: a `Brief` (goal, tools, the steps so far, and why the planner is asked). Out: a stream of edits, a patch, a whole
plan, or `None` for no change. The protocol is `dagrun.kernel.model.planner.Planner`.

- Without a model: `host_plans.py` (plans and patches of the host program, and templates chosen by rules).
- With a model: `model_planner.py` (whole plans and patches), `stepwise.py` (one step at a time), `provider_planners.py`
  (a planner and its model in one). `prompts.py` and `prompt_examples.py` hold every word that a model reads.
- Several in a row, the lightest first: `fallback_chain.py`.
- `answers/` reads what models write, and makes the schemas of it.
- `small_models.py` is the dialect for models below two billion parameters.
- `model_choice.py` lets a model choose a route, or the tools that a planner is told of.

Open `model_planner.py` first. A planner never calls a tool and never changes the graph.
"""

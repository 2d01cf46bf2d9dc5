"""The checker: it takes a plan, and returns a `CheckedPlan` or every problem of the plan at once.

A check needs a plan, a toolbox and a policy. It looks up each tool, compiles arguments into templates, follows
references into the output schemas of tools, and looks for cycles. The `CheckedPlan` that it returns has everything that
the runtime would otherwise have to find out at each step.

Open `check_plan.py` first, then `check_step.py`. The live graph checks the steps of a patch with the same functions.

The checker never calls a tool, imports no module of a tool, and waits for nothing. It changes no plan.
"""

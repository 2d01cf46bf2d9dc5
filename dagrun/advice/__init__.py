"""Advice about plans, tools and policies that can be used as they are: what a careful reader would ask.

Open ``open_questions.py`` first: what a plan and its policy leave to a default. ``shape_advice.py`` looks at the shape
of a plan, ``tool_advice.py`` at how tools are declared, and ``flow_table.py`` shows whose data gets where.
Nothing here refuses a plan: `dagrun.kernel.checks` does that.
"""

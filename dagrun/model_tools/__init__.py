"""Tools that use language models: one that asks a model, and one that lets a model call tools in a loop.

In: a `LanguageModel` and options. Out: a `Tool`, which a plan calls like any other. `llm_tool.py` and `agent_tool.py`
make the tools; `agent_calls.py` makes the calls of an agent.

Open `llm_tool.py` first. This is a floor beside `dagrun.api` and `dagrun.testing`, not an executor: an agent calls its
tools inside one step, and only their plain functions need an executor, that of threads. A tool of this package never
changes the plan, and its inner calls are not steps: the policy of the run counts and limits the call of the tool.
"""

"""Tools that use language models: one that asks a model, and one that lets a model call tools in a loop.

In: a `LanguageModel` and options. Out: a `Tool`, which a plan calls like any other. `llm_tool.py` and `agent_tool.py`
make the tools. An agent consists of its loop (`agent_loop.py`), its calls (`agent_calls.py`) and its prompts
(`agent_turns.py`). Both tools share the answers as Python types (`typed_answers.py`) and the limits of usage
(`usage_contract.py`).

Open `llm_tool.py` first. This is a floor beside `dagrun.api` and `dagrun.testing`, not an executor: an agent calls its
tools inside one step, and only their plain functions need an executor, that of threads. A tool of this package never
changes the plan, and its inner calls are not steps: the policy of the run counts and limits the call of the tool.
"""

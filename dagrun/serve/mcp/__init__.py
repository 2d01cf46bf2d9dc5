"""Plans offered as tools of an MCP server, so that other programs can run them.

In: a toolbox, and plans or none. Out: a server of the MCP library: a tool for each plan, or five general ones. Open
`plan_server.py` first; it speaks the protocol. `plan_inputs.py` finds the schema of what a plan takes; `served_runs.py`
carries out runs, and knows no protocol.

Nothing here gives an answer by itself, and no tool with an effect is offered that nobody is asked about, unless the
host says so.
"""

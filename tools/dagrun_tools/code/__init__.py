"""Code that plans bring: run in a process of its own that can do little more than compute.

In: Python code and its data. Out: what it has computed and printed, and the files that it has written. Open
`run_code.py` first. `sandbox.py` is the program of that process: it confines itself, then runs the code.

The tool is not among the ready-made ones: a host adds it by name. Where a limit cannot be enforced, no code is run.
"""

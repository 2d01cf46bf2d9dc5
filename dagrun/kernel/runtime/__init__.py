"""Everything that awaits: a checked plan and its options in, a `RunResult` out.

Open `run.py` first: `Run` is what the host holds, and `RunAssembly` makes the parts, opens and closes them.
`run_parts.py` has what all parts of a run share, and `resume.py` does what a crash has cut off. Then follow a step from
ready to settled in `steps/scheduler.py`. The rooms:

- `steps` runs steps, and ends the run;
- `record` makes every change of the state, and writes it to the journal;
- `people` asks people, and takes their answers;
- `planning` asks the planner, and has its patches applied.

The runtime decides nothing by itself: it asks `dagrun.kernel.decide`, and changes the state only through `record`. Code
of the host (tools, planners, critics, approvers, observers) is called here alone, and none of it can hurt the run.
"""

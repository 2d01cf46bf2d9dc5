"""Commands about runs of other processes: answers, orders to stop, the queue of workers, and the live page of all runs.

In: the name of a run, or nothing for all. Out: a letter in the journal of the run, or a server. Open `answer.py` first.
Only `worker` and `mcp serve` carry out runs.
"""

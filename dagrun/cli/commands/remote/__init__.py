"""Commands about runs of other processes: answers, orders to stop, and the live page of all runs.

In: the name of a run, or nothing for all. Out: a letter in the journal of the run, or a server. Open `answer.py` first.
None of these commands carries out a run or loads tools.
"""

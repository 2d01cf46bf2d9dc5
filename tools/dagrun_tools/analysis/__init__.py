"""Analysis: totals, growth, trends and anomalies of a table.

In: a `Table`. Out: `Statistics` (`calculate_stats.py`), and `Trends` made from them (`detect_trends.py`).
`column_roles.py` decides which column is the value and which is the time, `time_series.py` turns rows into series,
`baseline.py` says which value each period was expected to have, and `robust_statistics.py` holds the mathematics.
Open `calculate_stats.py` first.

Nothing here draws or writes files: `dagrun_tools.reports` does.
"""

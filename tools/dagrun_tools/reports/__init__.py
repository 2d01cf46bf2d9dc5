"""Reports: statistics and trends as charts and as documents for people.

In: the facts of earlier steps (`dagrun_tools.facts`). Out: a `Chart` (`generate_chart.py`) or a `Report`
(`write_report.py`), each as a file and as artifacts.
A report is composed by `sections.py`, with the sentences of `findings.py`, into a `document.py`, and is written by
`formats.py` as Markdown, HTML or CSV. `drawing.py` is the only module that knows matplotlib. Open `sections.py` first.

Nothing here computes statistics, and no text that came from data becomes markup.
"""

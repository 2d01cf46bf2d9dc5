"""Reports of runs, and cells of notebooks: a view in; a page, a picture, a text or a cell out.

The page is one file that loads nothing. It can be read without its script and without its style sheet, and everything
in it that comes from models is text. Equal views give equal bytes. A cell needs neither widgets nor a script; IPython
is looked for only where it is loaded already.

Open first: `report.py` (`make_report`, all forms), then `sections.py` (what is on the page). `cell.py` has the HTML of
a cell, and `live_cell.py` the display of a running run that is updated until its end.
"""

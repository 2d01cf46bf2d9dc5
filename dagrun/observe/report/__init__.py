"""Reports of runs: a view in; a page, a picture or a text out. The view has all their content.

The page is one file that loads nothing. It can be read without its script and without its style sheet, and everything
in it that comes from models is text. Equal views give equal bytes.

Open first: `report.py` (`make_report`, all forms), then `page.py` (the page), `sections.py` (what is on it).
"""

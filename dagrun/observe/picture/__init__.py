"""Drawings of runs and plans: a view in, SVG out. Pure: no clock, no chance, no browser, no library.

`condense.py` makes boxes of steps, `layout.py` places them, `graph_svg.py` and `timeline_svg.py` draw. All colours are
attributes, so that a drawing can be read without a style sheet; classes let one change them.

Open first: `graph_svg.py`.
"""

"""Tables: read from CSV files, cleaned, and given other column names.

In: the name of a file, or a `Table` of an earlier step. Out: a `Table`, whose rows are an artifact (JSON lines).
Each tool has its module: `load_csv.py`, `clean_data.py`, `map_columns.py`. Below them, `rows.py` saves and reads rows,
`columns.py` decides which type a column has, and `cells.py` reads one cell. Open `columns.py` first.

Nothing here changes the rows of a table that exists: every step makes a new artifact.
"""

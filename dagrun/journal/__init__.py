"""Where the records of runs are kept: in memory, in a file of SQLite, or on a PostgreSQL server."""

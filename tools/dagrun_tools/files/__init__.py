"""Files: read and written below one folder, which the host program names.

In: a relative path. Out: the content as text or as an artifact, or the hash of the file that was written.
`file_tools.py` has `read_file` and `write_file`, and the rules of the host program; `data_files.py` serves the tools
for tables and reports. Every path goes through `confined_files.py`, so open that first. `content.py` decides whether
bytes are handed on as text; the web tools use it, too.

No path leads out of the folder, and no link is followed.
"""

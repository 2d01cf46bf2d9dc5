"""The web: pages and JSON fetched, and searches made, within the rules of the host program.

In: a URL or a query. Out: the content as text, JSON or an artifact, or the results of a search.
`fetch.py` and `search_web.py` hold the tools. Both call `http_get.py`, which follows redirects and limits time and
size.
Where tools may connect is decided in `dagrun/sources/network/`. Open `http_get.py` first.

Nothing here connects to an address that the rules have not allowed, and nothing retries: dagrun decides that.
"""

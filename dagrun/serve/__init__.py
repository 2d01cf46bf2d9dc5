"""The live page: running runs in a browser, as an ASGI application for any server or framework.

In: a journal, an engine, or single runs, and who may see them. Out: pages, JSON and a stream of changes; answers and
orders to stop go back to the runs. Only this package knows Starlette (extra ``ui``).

Open `page.py` first (`web`). `guard.py` has the rules of safety, `feeds.py` follows runs, `routes.py` answers requests;
`static/` has the page itself, two small scripts of ours that are served as they are.

Nothing here runs by itself: there is no background task, and no run is followed that nobody looks at. The page starts
nothing, loads no module and reads no path that a request names.
"""

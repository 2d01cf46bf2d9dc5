"""HTTP within the rules of the host: where connections may go, and how much is read.

In: rules and a request. Out: the answer, or a refusal before any connection. Open `guarded_transport.py` first: it
applies the rules of `network_rules.py` where a socket is opened, and reads answers within limits. The ready-made tools
for the web and the tools of HTTP services share it.

Nothing here connects to an address that the rules have not allowed, and nothing tries again.
"""

"""The secrets of the host, and how secrets and personal data are found in texts.

The package takes the secrets that the host registers. It provides handles for plans, values for the tools that may get
them, and texts in which the values are replaced. Open `secret.py` first: `Secret` and `Secrets`. `encodings.py` finds
registered values in any encoding; `patterns.py` finds tokens and personal data that were never registered.

No value is ever part of a `repr`, a pickle, a comparison or a message.
"""

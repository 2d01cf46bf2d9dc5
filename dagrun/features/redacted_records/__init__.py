"""Records without secrets and personal data, with their originals sealed in them if the host has given a key.

In: events, the secrets of the host, the kinds of data that a policy names. Out: the text of a record, or events as they
may be shown. Open `records.py` first; `sealing.py` encrypts the originals.

A run without secrets and without *redact_records* writes its events with the codec alone.
"""

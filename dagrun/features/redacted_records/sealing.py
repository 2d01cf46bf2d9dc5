"""Seal the originals of redacted records with a key of the host, and open them again.

A sealed original is a token of Fernet (AES-128-CBC with an HMAC-SHA-256), made by the library ``cryptography``. It
holds the name of the run besides the record, so that it can stand in no other run; the record holds its own number. The
library is imported when a key is first used.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final

from dagrun.errors import ContractError, MissingExtra, WrongRecordKey

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_KEY_BYTES: Final = 32
_HOW: Final = "make one with cryptography.fernet.Fernet.generate_key()"


class Sealer:
    """Seals and opens the records of one run.

    Args:
        key: 32 bytes in the alphabet of URLs of base64, as ``Fernet.generate_key()`` returns them.
        run_id: The run.

    Raises:
        ContractError: *key* is no such key.
        MissingExtra: The library ``cryptography`` is not installed.
    """

    def __init__(self, key: str | bytes, run_id: str) -> None:
        self._fernet = _fernet_of(key)
        self._run_id = run_id
        self._head = run_id.encode() + b"\n"

    def seal(self, text: bytes) -> str:
        """Return a record as a token."""
        token: bytes = self._fernet.encrypt(self._head + text)
        return token.decode()

    def open(self, token: str) -> bytes:
        """Return the record in a token.

        Raises:
            WrongRecordKey: It was sealed with another key, or for another run.
        """
        from cryptography.fernet import InvalidToken

        try:
            text: bytes = self._fernet.decrypt(token)
        except InvalidToken:
            raise WrongRecordKey(
                f"the record_key does not open the record of run {self._run_id}: it is not the key that the run was"
                " recorded with"
            ) from None
        if not text.startswith(self._head):
            raise WrongRecordKey(f"a sealed record of run {self._run_id} belongs to another run")
        return text[len(self._head) :]


def _fernet_of(key: str | bytes) -> Fernet:
    if not isinstance(key, str | bytes):
        raise ContractError(f"record_key is a text or bytes; got {type(key).__name__}: {_HOW}")
    try:
        raw = base64.b64decode(key, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ContractError(f"record_key is not base64 in the alphabet of URLs: {_HOW}") from None
    if len(raw) != _KEY_BYTES:
        raise ContractError(f"record_key has {len(raw)} bytes, and must have {_KEY_BYTES}: {_HOW}")
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        raise MissingExtra("record_key needs the library cryptography: pip install 'dagrun-engine[encrypt]'") from None
    return Fernet(base64.urlsafe_b64encode(raw))

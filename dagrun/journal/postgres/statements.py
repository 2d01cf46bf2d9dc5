"""What the tables in PostgreSQL are, and all that is ever said to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

from dagrun.errors import JournalFailed
from dagrun.journal.base import MAX_LETTER

if TYPE_CHECKING:
    from asyncpg import Connection

FORMAT: Final = 1  # of the tables
_LOCK: Final = 0x64616772756E  # "dagrun": whoever makes tables holds it
MOST_LETTERS: Final = 64  # at a time: whoever may post must not be able to fill the memory


class Sql:
    """The statements, for one schema.

    Args:
        schema: Its name, checked.
    """

    # The token keeps a former owner away. Number and digest keep the owner itself from writing twice when it cannot
    # know whether the server has heard it.
    fence: ClassVar[str] = "token = $2 AND seq = $6 AND digest = $7"

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.channel = f"{schema}.letters"
        # Every name with its schema: the server's search path is somebody else's.
        tables = f'"{schema}"'
        runs, records, letters = f"{tables}.runs", f"{tables}.records", f"{tables}.letters"
        lease = "clock_timestamp() + make_interval(secs => {})"
        self.format = f"{tables}.format"
        self.tables = (
            # Half of each page is left free: the row of a run changes with every unit, and so stays on its page.
            f"""CREATE TABLE {runs} (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                run_id text COLLATE "C" NOT NULL UNIQUE,
                token bigint NOT NULL, owner text NOT NULL, claim text NOT NULL, expires timestamptz NOT NULL,
                seq bigint NOT NULL, digest text NOT NULL
            ) WITH (fillfactor = 50)""",
            f"""CREATE TABLE {records} (
                run bigint NOT NULL, seq bigint NOT NULL, text text NOT NULL, digest text NOT NULL,
                PRIMARY KEY (run, seq)
            )""",
            f"""CREATE TABLE {letters} (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
                run bigint NOT NULL REFERENCES {runs} ON DELETE CASCADE,
                text bytea NOT NULL CHECK (octet_length(text) <= {MAX_LETTER})
            )""",
            f"CREATE INDEX ON {letters} (run, number)",
            f"CREATE TABLE {self.format} (is_there boolean PRIMARY KEY CHECK (is_there), version integer NOT NULL)",
            f"INSERT INTO {self.format} VALUES (true, {FORMAT})",
        )
        holding = (
            "number, run_id, token, owner, claim, seq, digest, "
            "extract(epoch FROM expires)::float8 AS expires, expires > clock_timestamp() AS is_running"
        )
        self.create = f"""INSERT INTO {runs} (run_id, token, owner, claim, expires, seq, digest)
            VALUES ($1, 1, $2, $3, {lease.format("$4")}, 0, $5) ON CONFLICT (run_id) DO NOTHING"""
        self.find = f"SELECT {holding} FROM {runs} WHERE run_id = $1"
        self.lock = f"{self.find} FOR UPDATE"
        self.list = f"SELECT {holding} FROM {runs} ORDER BY run_id"
        self.records = f"SELECT seq, text, digest FROM {records} WHERE run = $1 ORDER BY seq"
        self.take = f"""UPDATE {runs} SET token = $2, owner = $3, claim = $4, expires = {lease.format("$5")}
            WHERE number = $1"""
        # One statement is one transaction, and one way to the server and back: fence, mark and records together.
        self.append = f"""WITH fence AS (
                UPDATE {runs} SET seq = $3, digest = $4, expires = {lease.format("$5")}
                WHERE number = $1 AND {self.fence} RETURNING number
            )
            INSERT INTO {records} (run, seq, text, digest)
            SELECT fence.number, $6 + line.place, line.text, line.digest
            FROM fence, unnest($8::text[], $9::text[]) WITH ORDINALITY AS line (text, digest, place)"""
        self.state = f"SELECT token, seq, digest FROM {runs} WHERE number = $1"
        self.renew = f"""UPDATE {runs} AS run SET expires = {lease.format("$3")}
            FROM unnest($1::bigint[], $2::bigint[]) AS mine (number, token)
            WHERE run.number = mine.number AND run.token = mine.token RETURNING run.number"""
        # A new token: a renewal that is still on its way must not bring the lease back.
        self.release = f"""UPDATE {runs} SET token = token + 1, owner = '', claim = '', expires = '-infinity'
            WHERE number = $1 AND token = $2"""
        self.forget = (f"DELETE FROM {records} WHERE run = $1", f"DELETE FROM {runs} WHERE number = $1")
        self.post = f"""WITH run AS (SELECT number FROM {runs} WHERE run_id = $1 FOR KEY SHARE),
            letter AS (
                INSERT INTO {letters} (id, run, text) SELECT $2, number, $3 FROM run ON CONFLICT (id) DO NOTHING
            )
            SELECT pg_notify($4, number::text) FROM run"""
        self.letters = f"""SELECT id, text FROM {letters} WHERE run = $1 AND NOT id = ANY ($2::text[])
            ORDER BY number LIMIT {MOST_LETTERS}"""
        # Not among the tables: schemas that an earlier version has made are without it, and it is only good to know.
        self.durations = (
            f"CREATE TABLE IF NOT EXISTS {tables}.durations "
            "(is_there boolean PRIMARY KEY CHECK (is_there), text text NOT NULL)",
            f"INSERT INTO {tables}.durations VALUES (true, '') ON CONFLICT DO NOTHING",
        )
        self.read_durations = f"SELECT text FROM {tables}.durations"
        self.write_durations = f"UPDATE {tables}.durations SET text = $1"
        self.discard = f"DELETE FROM {letters} WHERE run = $1 AND id = $2"


async def kept_durations(connection: Connection, sql: Sql) -> str:
    """What is kept of how long calls took, as text; empty if nothing is."""
    if not await _is_there(connection, sql, "durations"):
        return ""
    return str(await connection.fetchval(sql.read_durations) or "")


async def keep_durations(connection: Connection, sql: Sql, merged: Callable[[str], str]) -> None:
    """Keep what *merged* makes of what is kept; whoever does the same meanwhile waits.

    Raises:
        asyncpg.PostgresError: It cannot be kept.
    """
    async with connection.transaction(isolation="read_committed"):
        if not await _is_there(connection, sql, "durations"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            for statement in sql.durations:
                await connection.execute(statement)
        kept = await connection.fetchval(f"{sql.read_durations} FOR UPDATE")
        await connection.execute(sql.write_durations, merged(str(kept or "")))


async def prepare(connection: Connection, sql: Sql) -> None:
    """Make the tables if they are not there, and see whether they are of a format that is known.

    Several may do it at once.

    Raises:
        JournalFailed: They are of another format.
        asyncpg.PostgresError: They cannot be made.
    """
    if not await _is_there(connection, sql):
        async with connection.transaction(isolation="read_committed"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            # Another one may have made them before the lock was ours.
            if not await _is_there(connection, sql):
                await _create(connection, sql)
    version = await connection.fetchval(f"SELECT max(version) FROM {sql.format}")
    if version != FORMAT:
        raise JournalFailed(
            f"the schema {sql.schema} has format {version}; this version of dagrun reads and writes format {FORMAT}"
        )


async def _is_there(connection: Connection, sql: Sql, table: str = "format") -> bool:
    # Not by to_regclass: that looks into a cache, where what others have made meanwhile is still missing.
    found = "SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = $2"
    return bool(await connection.fetchval(f"SELECT EXISTS ({found})", sql.schema, table))


async def _create(connection: Connection, sql: Sql) -> None:
    # A schema that somebody has made for us needs no right to make schemas.
    found = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1"
    if not await connection.fetchval(f"SELECT EXISTS ({found})", sql.schema):
        await connection.execute(f'CREATE SCHEMA "{sql.schema}"')
    for statement in sql.tables:
        await connection.execute(statement)

"""The tables in PostgreSQL, every SQL statement of the journal, and the meaning of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from dagrun.errors import JournalFailed, RunHeld
from dagrun.journal.base import MAX_MESSAGE, check_first, new_answer_key
from dagrun.journal.hash_chain import Chain, ChainFault
from dagrun.journal.lease import Holding, Owner, decode, held_text, this_process
from dagrun.journal.postgres.queue_statements import QueueSql
from dagrun.journal.queue import Release
from dagrun.kernel.model.journal import Line

if TYPE_CHECKING:
    from asyncpg import Connection, Record

FORMAT: Final = 1  # of the tables
_LOCK: Final = 0x64616772756E  # "dagrun": the advisory lock held while tables are made
MOST_LETTERS: Final = 64  # fetched at a time: a process that posts many must not be able to fill the memory


class NewsSql:
    """The statements by which owners of runs notify followers of new records; see `dagrun.journal.postgres.followers`.

    Args:
        schema: The name of the schema, already checked.
    """

    def __init__(self, schema: str) -> None:
        self.channel = f"{schema}.records"
        # On the channel of letters, a number below zero: it means nothing to an owner of an earlier version.
        self.follow = f"""SELECT seq, expires > clock_timestamp() AS is_running,
                pg_notify('{schema}.letters', (-number)::text)
            FROM "{schema}".runs WHERE run_id = $1"""
        self.tell = f"SELECT pg_notify('{self.channel}', $1)"


class Sql:
    """The statements for one schema.

    Args:
        schema: The name of the schema, already checked.
    """

    # The token keeps a former owner from writing. Number and digest of the last record keep the owner from writing
    # twice when a connection was lost and it does not know whether the server had received the statement.
    fence: ClassVar[str] = "token = $2 AND seq = $6 AND digest = $7"

    def __init__(self, schema: str) -> None:
        self.schema, self.channel, self.queue, self.news = (
            schema,
            f"{schema}.letters",
            QueueSql(schema),
            NewsSql(schema),
        )
        # Every name has its schema: the search path of the server is not ours to rely on.
        tables = f'"{schema}"'
        runs, records, letters = f"{tables}.runs", f"{tables}.records", f"{tables}.letters"
        lease = "clock_timestamp() + make_interval(secs => {})"
        self.format = f"{tables}.format"
        self.tables: tuple[str, ...] = (
            # Half of each page stays free: the row of a run changes with every batch, and so can stay on its page.
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
                text bytea NOT NULL CHECK (octet_length(text) <= {MAX_MESSAGE})
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
        self.newest = f"SELECT run_id FROM {runs} ORDER BY number DESC LIMIT 1"
        self.records = f"SELECT seq, text, digest FROM {records} WHERE run = $1 ORDER BY seq"
        self.records_after = f"""SELECT records.seq, text, records.digest FROM {records} AS records
            WHERE run = $1 AND records.seq > $2 ORDER BY records.seq"""
        self.take = f"""UPDATE {runs} SET token = $2, owner = $3, claim = $4, expires = {lease.format("$5")}
            WHERE number = $1"""
        # One statement is one transaction and one round trip: fence, mark and records together.
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
        # With a new token, so that a renewal that arrives later does not bring the lease back.
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
        # Made when it is first needed: a schema that an earlier version has made lacks this table, and no run needs it.
        self.durations = (
            f"CREATE TABLE IF NOT EXISTS {tables}.durations "
            "(is_there boolean PRIMARY KEY CHECK (is_there), text text NOT NULL)",
            f"INSERT INTO {tables}.durations VALUES (true, '') ON CONFLICT DO NOTHING",
        )
        self.read_durations = f"SELECT text FROM {tables}.durations"
        self.write_durations = f"UPDATE {tables}.durations SET text = $1"
        # Made when it is first needed, if an earlier version has made the schema. Not a column of the runs: only the
        # owner of a table may add one.
        self.answer_keys = f"""CREATE TABLE IF NOT EXISTS {tables}.answer_keys (
            run bigint PRIMARY KEY REFERENCES {runs} ON DELETE CASCADE, key text NOT NULL
        )"""
        self.new_answer_key = f"""INSERT INTO {tables}.answer_keys SELECT number, $2 FROM {runs} WHERE run_id = $1
            ON CONFLICT (run) DO NOTHING"""
        self.tables = (*self.tables, self.answer_keys, *self.queue.tables)
        self.answer_key = f"""SELECT key FROM {tables}.answer_keys JOIN {runs} ON run = number WHERE run_id = $1"""
        # With the token: a former owner that wakes up late must not take a letter from the process at the run.
        self.discard = f"""DELETE FROM {letters} AS letter USING {runs} AS run
            WHERE letter.run = $1 AND letter.id = $2 AND run.number = $1 AND run.token = $3"""

    @property
    def there(self) -> str:
        """Lists the texts of the messages in the inbox of a run."""
        letters, runs = f'"{self.schema}".letters', f'"{self.schema}".runs'
        return f"SELECT text FROM {letters} WHERE run = (SELECT number FROM {runs} WHERE run_id = $1)"


async def kept_durations(connection: Connection, sql: Sql) -> str:
    """Return the stored durations of calls, as text; empty if there are none."""
    if not await _is_there(connection, sql, "durations"):
        return ""
    return str(await connection.fetchval(sql.read_durations) or "")


async def keep_durations(connection: Connection, sql: Sql, merge: Callable[[str], str]) -> None:
    """Replace the stored durations by the result of *merge*; concurrent calls wait.

    Raises:
        asyncpg.PostgresError: The durations cannot be stored.
    """
    async with connection.transaction(isolation="read_committed"):
        if not await _is_there(connection, sql, "durations"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            for statement in sql.durations:
                await connection.execute(statement)
        text = await connection.fetchval(f"{sql.read_durations} FOR UPDATE")
        await connection.execute(sql.write_durations, merge(str(text or "")))


async def post(connection: Connection, sql: Sql, run_id: str, letter: str, text: bytes) -> bool:
    """Leave a message, and put a submitted run that waits for one back into the queue; false if there is no such run.

    Raises:
        asyncpg.PostgresError: The letter cannot be stored.
        AnswerRefused: Another answer to the same question lies there.
    """
    async with connection.transaction(isolation="read_committed"):
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1), hashtext($2))", sql.channel, run_id)
        check_first(text, [row["text"] for row in await connection.fetch(sql.there, run_id)])
        if not await connection.fetch(sql.post, run_id, letter, text, sql.channel):
            return False
        if await has_queue(connection, sql):
            await connection.execute(sql.queue.wake, run_id, sql.queue.channel)
    return True


async def make_queue(connection: Connection, sql: Sql) -> None:
    """Make the table of submitted runs, or the rest of it, if an earlier version has made the schema without.

    Raises:
        asyncpg.PostgresError: The table cannot be made.
    """
    query = """SELECT FROM pg_catalog.pg_attribute AS part
        JOIN pg_catalog.pg_class AS whole ON whole.oid = part.attrelid
        JOIN pg_catalog.pg_namespace AS schema ON schema.oid = whole.relnamespace
        WHERE schema.nspname = $1 AND whole.relname = 'queue' AND part.attname = 'fitted'"""
    if await connection.fetchval(f"SELECT EXISTS ({query})", sql.schema):
        return
    async with connection.transaction(isolation="read_committed"):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        for statement in sql.queue.tables:
            await connection.execute(statement)


async def opened_from_queue(connection: Connection, sql: Sql, run: int, lines: Sequence[Line]) -> Release | None:
    """Note that a run is carried out that was perhaps submitted; return how it is released then.

    Raises:
        asyncpg.PostgresError: It cannot be noted.
    """
    if not await has_queue(connection, sql):
        return None
    takeovers = await connection.fetchval(sql.queue.open, run)
    return None if takeovers is None else Release(lines[-1].text if lines else b"", takeovers)


async def has_queue(connection: Connection, sql: Sql) -> bool:
    """Return whether there is a table of submitted runs."""
    return await _is_there(connection, sql, "queue")


async def answer_key_of(connection: Connection, sql: Sql, run_id: str) -> str:
    """Return the answer key of a run; a run of an earlier version gets one. Empty if there is no such run.

    Raises:
        asyncpg.PostgresError: The key cannot be read or stored.
    """
    async with connection.transaction(isolation="read_committed"):
        if not await _is_there(connection, sql, "answer_keys"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute(sql.answer_keys)
        key = await connection.fetchval(sql.answer_key, run_id)
        if key is None:
            await connection.execute(sql.new_answer_key, run_id, new_answer_key())
            key = await connection.fetchval(sql.answer_key, run_id)
    return str(key or "")


async def prepare(connection: Connection, sql: Sql) -> None:
    """Make the tables unless they exist, and check their format; several connections may do so at once.

    Raises:
        JournalFailed: The tables have another format.
        asyncpg.PostgresError: The tables cannot be made.
    """
    if not await _is_there(connection, sql):
        async with connection.transaction(isolation="read_committed"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            # Another connection may have made them before this one got the lock.
            if not await _is_there(connection, sql):
                await _create(connection, sql)
    version = await connection.fetchval(f"SELECT max(version) FROM {sql.format}")
    if version != FORMAT:
        raise JournalFailed(
            f"the schema {sql.schema} has format {version}; this version of dagrun reads and writes format {FORMAT}"
        )


async def _is_there(connection: Connection, sql: Sql, table: str = "format") -> bool:
    # Not by `to_regclass`: it reads a cache, in which a table that was just made elsewhere may be missing.
    query = "SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = $2"
    return bool(await connection.fetchval(f"SELECT EXISTS ({query})", sql.schema, table))


async def _create(connection: Connection, sql: Sql) -> None:
    # Where the schema exists already, our user needs no right to make one.
    query = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1"
    if not await connection.fetchval(f"SELECT EXISTS ({query})", sql.schema):
        await connection.execute(f'CREATE SCHEMA "{sql.schema}"')
    for statement in sql.tables:
        await connection.execute(statement)


# What rows say --------------------------------------------------------------------------------------------------------


def as_bytes(text: object) -> object:
    """Return a text as UTF-8; any other value unchanged."""
    return text.encode() if isinstance(text, str) else text


def fault_of_end(run_id: str, lines: Sequence[Line], seq: int, digest: str) -> ChainFault | None:
    """Compare the good records of a run with the last record that its row names; return the fault, if there is one."""
    if len(lines) < seq:
        return ChainFault(len(lines) + 1, f"the records end at {len(lines)}, and {seq} were written: the last are lost")
    if len(lines) > seq:
        return ChainFault(
            seq + 1, f"{seq} records were written, and there are {len(lines)}: another process has added some"
        )
    if digest != (lines[-1].digest if lines else Chain(run_id).digest):
        return ChainFault(seq, "the last record is not the one that the row of the run knows")
    return None


def owner_text(row: Record) -> str:
    """Return the holder of a run, for people; empty if the run is free."""
    owner = decode(row["owner"])
    return str(owner) if owner is not None else row["owner"] and "somebody unknown"


def is_held(row: Record) -> bool:
    """Return whether the run cannot be opened now."""
    return bool(row["is_running"]) and not _is_dead(decode(row["owner"]))


def _is_dead(owner: Owner | None) -> bool:
    """Return whether a process is known to have ended.

    Two machines can have the same name; so only a process of this start of this machine can be checked.
    """
    return owner is not None and bool(owner.boot) and owner.boot == this_process().boot and owner.is_dead()


def held_error(row: Record) -> RunHeld:
    """Return the error for a run that is held."""
    return RunHeld(held_text(row["run_id"], Holding(row["token"], decode(row["owner"]), row["expires"])))

"""The table of submitted runs in PostgreSQL, and its SQL.

Locks, in this order, so that no letter is lost between a worker that releases a run and a process that posts one:

1. Who posts writes the letter, then changes the row of the queue, in one transaction. The change of the row waits for a
   release that goes on, and sees what that has written.
2. Who releases locks the row first, and looks for letters in a second statement: it sees each letter whose poster has
   had the lock before.
3. Who claims skips the rows that others have locked, and so never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from asyncpg import Connection

    from dagrun.journal.queue import Release


class QueueSql:
    """The statements about the queue of one schema.

    Args:
        schema: The name of the schema, already checked.
    """

    # The fence: a former owner releases nothing, and so changes no standing.
    fence: ClassVar[str] = "token = $2"

    def __init__(self, schema: str) -> None:
        self.channel = f"{schema}.queue"
        tables = f'"{schema}"'
        queue, runs, letters = f"{tables}.queue", f"{tables}.runs", f"{tables}.letters"
        self.tables = (
            # Half of each page stays free: a row changes with each claim.
            f"""CREATE TABLE IF NOT EXISTS {queue} (
                run bigint PRIMARY KEY REFERENCES {runs} ON DELETE CASCADE,
                standing text NOT NULL, pool text NOT NULL, build text NOT NULL, priority integer NOT NULL,
                not_before timestamptz NOT NULL, takeovers integer NOT NULL DEFAULT 0, reason text NOT NULL DEFAULT '',
                queued timestamptz NOT NULL DEFAULT clock_timestamp(), -- since when it is in the queue
                fitted timestamptz NOT NULL DEFAULT '-infinity' -- when a worker that fits it has released it
            ) WITH (fillfactor = 50)""",
            # The first queues had neither.
            f"""ALTER TABLE {queue} ADD COLUMN IF NOT EXISTS queued timestamptz NOT NULL DEFAULT clock_timestamp(),
                ADD COLUMN IF NOT EXISTS fitted timestamptz NOT NULL DEFAULT '-infinity'""",
            f"""CREATE INDEX IF NOT EXISTS queue_open ON {queue} (pool, priority DESC, run)
                WHERE standing IN ('queued', 'running')""",
        )
        # One statement, so that a caller's own transaction needs no savepoint.
        self.submit = f"""WITH run AS (
                INSERT INTO {runs} (run_id, token, owner, claim, expires, seq, digest)
                VALUES ($1, 1, '', $2, '-infinity', 1, $3) ON CONFLICT (run_id) DO NOTHING RETURNING number
            ), record AS (
                INSERT INTO {tables}.records (run, seq, text, digest) SELECT number, 1, $4, $3 FROM run
            ), secret AS (
                INSERT INTO {tables}.answer_keys (run, key) SELECT number, $5 FROM run
            ), queued AS (
                INSERT INTO {queue} (run, standing, pool, build, priority, not_before)
                SELECT number, 'queued', $6, $7, $8, to_timestamp($9) FROM run
            )
            SELECT pg_notify($10, $6) FROM run"""
        self.is_ours = f"SELECT EXISTS (SELECT FROM {runs} WHERE run_id = $1 AND claim = $2)"
        claimable = f"""FROM {queue} AS queue JOIN {runs} AS run ON run.number = queue.run
            WHERE queue.standing IN ('queued', 'running') AND queue.pool = ANY ($1::text[])
                AND NOT queue.build = ANY ($2::text[])
                AND NOT (queue.run, queue.queued) IN (SELECT * FROM unnest($3::bigint[], $4::timestamptz[]))"""
        columns = "run.number, run.run_id, run.token, run.seq, run.digest, queue.takeovers, queue.queued"
        self.find_next = f"""SELECT {columns}, queue.standing = 'running' AS is_takeover
            {claimable} AND queue.not_before <= clock_timestamp() AND run.expires < clock_timestamp()
            ORDER BY queue.priority DESC, queue.run LIMIT 1 FOR NO KEY UPDATE OF queue, run SKIP LOCKED"""
        # What an earlier try has taken, whose answer was lost with its connection.
        self.find_claimed = f"""SELECT {columns}, false AS is_takeover
            FROM {queue} AS queue JOIN {runs} AS run ON run.number = queue.run
            WHERE queue.standing = 'running' AND run.claim = $1 FOR NO KEY UPDATE OF queue, run SKIP LOCKED"""
        self.take = f"""WITH taken AS (UPDATE {queue} SET standing = 'running', reason = '', takeovers = $6
                WHERE run = $1)
            UPDATE {runs} SET token = $2, owner = $3, claim = $4,
                expires = clock_timestamp() + make_interval(secs => $5) WHERE number = $1"""
        self.next_due = f"""SELECT extract(epoch FROM
                min(greatest(queue.not_before, run.expires)) - clock_timestamp())::float8 {claimable}
                AND queue.not_before < 'infinity'"""
        self.open = f"UPDATE {queue} SET standing = 'running', reason = '' WHERE run = $1 RETURNING takeovers"
        self.set_aside = f"UPDATE {queue} SET standing = 'stuck', reason = $2 WHERE run = $1"
        self.say_why = f"UPDATE {queue} SET reason = $2 WHERE run = $1 AND standing = 'queued'"
        # A build is alive where a run of it is, or was a while ago, in the hands of a worker. Rows are locked in order,
        # and without waiting: two workers may say this at once.
        self.leave_unfit = f"""WITH refused AS (
                SELECT * FROM unnest($2::text[], $3::text[]) AS refused (build, differences)
            ), alive AS (
                SELECT DISTINCT queue.pool, queue.build
                FROM {queue} AS queue JOIN {runs} AS run ON run.number = queue.run
                WHERE queue.fitted > clock_timestamp() - make_interval(secs => $4)
                    OR queue.standing = 'running' AND run.expires > clock_timestamp() - make_interval(secs => $4)
            ), left_alone AS (
                SELECT queue.run, refused.differences,
                    greatest(queue.queued, queue.not_before) < clock_timestamp() - make_interval(secs => $4)
                        AND NOT EXISTS (SELECT FROM alive WHERE (alive.pool, alive.build) = (queue.pool, queue.build))
                        AS is_unfit
                FROM {queue} AS queue JOIN refused ON refused.build = queue.build
                WHERE queue.standing IN ('queued', 'running') AND queue.pool = ANY ($1::text[])
                ORDER BY queue.run FOR NO KEY UPDATE OF queue SKIP LOCKED
            )
            UPDATE {queue} AS queue SET reason = left_alone.differences,
                standing = CASE WHEN left_alone.is_unfit THEN 'stuck' ELSE queue.standing END
            FROM left_alone WHERE queue.run = left_alone.run
                AND (left_alone.is_unfit OR queue.standing = 'queued' AND queue.reason = '')"""
        self.lock = f"SELECT FROM {queue} WHERE run = $1 FOR NO KEY UPDATE"
        self.release = f"""WITH freed AS (
                UPDATE {runs} SET token = token + 1, owner = '', claim = '', expires = '-infinity'
                WHERE number = $1 AND {self.fence} RETURNING number
            ), unseen AS (
                SELECT $3 = 'waiting' AND EXISTS (
                    SELECT FROM {letters} AS letter WHERE letter.run = $1 AND NOT letter.id = ANY ($6::text[])
                ) AS is_there
            ), released AS (
                UPDATE {queue} SET reason = CASE WHEN unseen.is_there THEN '' ELSE $4 END, takeovers = $5,
                    queued = CASE WHEN $8 THEN queued ELSE clock_timestamp() END,
                    fitted = CASE WHEN $8 THEN fitted ELSE clock_timestamp() END,
                    standing = CASE WHEN unseen.is_there THEN 'queued' ELSE $3 END
                FROM freed, unseen WHERE run = freed.number RETURNING standing, pool
            )
            SELECT pg_notify($7, pool) FROM released WHERE standing = 'queued'"""
        self.wake = f"""WITH woken AS (
                UPDATE {queue} AS queue SET
                    reason = CASE WHEN standing = 'waiting' THEN '' ELSE reason END,
                    standing = CASE WHEN standing = 'waiting' THEN 'queued' ELSE standing END,
                    queued = CASE WHEN standing = 'waiting' THEN clock_timestamp() ELSE queued END
                FROM {runs} AS run WHERE run.run_id = $1 AND queue.run = run.number RETURNING standing, pool
            )
            SELECT pg_notify($2, pool) FROM woken WHERE standing = 'queued'"""
        self.list = f"""SELECT run.run_id, run.owner, queue.standing, queue.pool, queue.build, queue.priority,
                extract(epoch FROM queue.not_before)::float8 AS not_before, queue.takeovers, queue.reason,
                extract(epoch FROM queue.queued)::float8 AS queued
            FROM {queue} AS queue JOIN {runs} AS run ON run.number = queue.run
            WHERE queue.standing <> ALL ($1::text[]) ORDER BY queue.run"""
        self.find = f"""SELECT queue.standing FROM {queue} AS queue JOIN {runs} AS run ON run.number = queue.run
            WHERE run.run_id = $1 FOR NO KEY UPDATE OF queue"""
        self.put_back = f"""WITH back AS (
                UPDATE {queue} AS queue SET standing = 'queued', reason = '', takeovers = 0,
                    queued = clock_timestamp()
                FROM {runs} AS run WHERE run.run_id = $1 AND queue.run = run.number RETURNING pool
            )
            SELECT pg_notify($2, pool) FROM back"""


async def release(
    connection: Connection, sql: QueueSql, claim: tuple[int, int], left: Release, seen: list[str]
) -> None:
    """Release a run and write its queue status, unless another process has taken it over.

    Args:
        connection: The connection.
        sql: The statements.
        claim: The number of the run, and the token of its owner.
        left: How it is released.
        seen: The letters that the owner has seen: none of them puts the run back into the queue.
    """
    standing, reason = left.standing
    values = (*claim, str(standing), reason, left.takeovers, seen, sql.channel, left.is_untouched)
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(sql.lock, claim[0])
        await connection.execute(sql.release, *values)

"""Schemas and databases of tests in a server of PostgreSQL, and a way to say anything to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import asyncpg


@contextmanager
def fresh_schema(dsn: str) -> Iterator[str]:
    """The name of a schema that is not there, for as long as the body runs; then it is not there again."""
    schema = f"test_{token_hex(8)}"
    try:
        yield schema
    finally:
        say(dsn, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@contextmanager
def fresh_database(dsn: str) -> Iterator[str]:
    """The DSN of an empty database of the server, for as long as the body runs; the command line takes no schema."""
    name = f"test_{token_hex(8)}"
    say(dsn, f'CREATE DATABASE "{name}"')
    try:
        yield urlsplit(dsn)._replace(path=f"/{name}").geturl()
    finally:
        say(dsn, f'DROP DATABASE "{name}" WITH (FORCE)')


def say(dsn: str, statement: str, *values: Any) -> list[Any]:
    """Say something to the server, as anybody could who may; and what it answers."""
    # In a thread: this one may run a loop.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, _say(dsn, statement, values)).result()


async def _say(dsn: str, statement: str, values: tuple[Any, ...]) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *values)]
    finally:
        await connection.close()

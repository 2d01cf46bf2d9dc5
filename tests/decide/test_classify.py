"""What an exception means: kind, whether it is transient, and a message that cannot hurt."""

import asyncio
import concurrent.futures
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from email.message import Message
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError, URLError

import anyio
import asyncpg
import httpx
import httpx2
import openai
import psycopg
import pytest
import trio
from pydantic import TypeAdapter, ValidationError

from dagrun import RetryRule, ToolError
from dagrun.errors import ContractError, StepCancelled, ValueRefused
from dagrun.extend import StillRunning, WorkerDied, WorkerLost
from dagrun.kernel.decide.classify import MAX_MESSAGE, classify
from dagrun.kernel.model.executor import CallFailed, ResultRefused
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.tool import make_tool


def fetch() -> None:
    """A tool; what it would do is of no interest here."""


TOOL = make_tool(fetch)


def of(error: BaseException) -> Failure:
    return classify(error, TOOL)


def answer(library: Any, status: int, headers: Mapping[str, str] | None = None) -> Any:
    return library.Response(status, headers=headers, request=library.Request("GET", "http://example.invalid"))


def status_error(library: Any, status: int, headers: Mapping[str, str] | None = None) -> BaseException:
    response = answer(library, status, headers)
    error: BaseException = library.HTTPStatusError(f"status {status}", request=response.request, response=response)
    return error


def sdk_error(status: int, headers: Mapping[str, str] | None = None, code: str | None = None) -> BaseException:
    body = {"code": code, "message": "no"}
    return openai.APIStatusError("no", response=answer(httpx2, status, headers), body=body)


def foreign(package: str, name: str, base: type[Exception] = Exception) -> Exception:
    """An exception of a library that is not installed here."""
    error: Exception = type(name, (base,), {"__module__": f"{package}._exceptions"})("text")
    return error


REQUEST = httpx2.Request("GET", "http://example.invalid")

CASES: list[tuple[BaseException, ErrorKind, bool]] = [
    (ValueError("text"), ErrorKind.EXCEPTION, False),
    (MemoryError(), ErrorKind.EXCEPTION, False),
    (FileNotFoundError(2, "no such file"), ErrorKind.EXCEPTION, False),
    (PermissionError(13, "denied"), ErrorKind.PERMISSION, False),
    (TimeoutError(), ErrorKind.TIMEOUT, True),
    (ConnectionRefusedError(111, "refused"), ErrorKind.CONNECTION, True),
    (BrokenPipeError(32, "broken"), ErrorKind.CONNECTION, True),
    (socket.gaierror(-3, "no name"), ErrorKind.CONNECTION, True),
    (URLError("refused"), ErrorKind.CONNECTION, True),
    (httpx.ReadTimeout("slow"), ErrorKind.TIMEOUT, True),
    (httpx2.ConnectTimeout("slow"), ErrorKind.TIMEOUT, True),
    (httpx.ConnectError("refused"), ErrorKind.CONNECTION, True),
    (httpx2.RemoteProtocolError("hung up"), ErrorKind.CONNECTION, True),
    (httpx.UnsupportedProtocol("gopher"), ErrorKind.EXCEPTION, False),
    (httpx2.LocalProtocolError("bad header"), ErrorKind.EXCEPTION, False),
    (openai.APITimeoutError(REQUEST), ErrorKind.TIMEOUT, True),
    (openai.APIConnectionError(request=REQUEST), ErrorKind.CONNECTION, True),
    (
        foreign("anthropic", "APITimeoutError", type(foreign("anthropic", "APIConnectionError"))),
        ErrorKind.TIMEOUT,
        True,
    ),
    (foreign("anthropic", "APIConnectionError"), ErrorKind.CONNECTION, True),
    (foreign("mylib", "TimeoutException"), ErrorKind.EXCEPTION, False),
    (trio.TooSlowError(), ErrorKind.TIMEOUT, True),
    (asyncio.CancelledError(), ErrorKind.FOREIGN_CANCELLATION, False),
    (concurrent.futures.CancelledError(), ErrorKind.FOREIGN_CANCELLATION, False),
    (StepCancelled("stop"), ErrorKind.FOREIGN_CANCELLATION, False),
    (SystemExit(3), ErrorKind.FORBIDDEN_EXCEPTION, False),
    (KeyboardInterrupt(), ErrorKind.FORBIDDEN_EXCEPTION, False),
    (GeneratorExit(), ErrorKind.FORBIDDEN_EXCEPTION, False),
    (BaseException("mine"), ErrorKind.FORBIDDEN_EXCEPTION, False),
    (BaseExceptionGroup("", [SystemExit(), ValueError()]), ErrorKind.FORBIDDEN_EXCEPTION, False),
    (ValueRefused("a set"), ErrorKind.BAD_OUTPUT, False),
    (ResultRefused("too large"), ErrorKind.BAD_OUTPUT, False),
    (WorkerDied("exit code 3"), ErrorKind.WORKER_DIED, False),
    (WorkerLost("node 2 has gone"), ErrorKind.WORKER_DIED, True),
    (StillRunning("no end"), ErrorKind.TIMEOUT, False),
]


@pytest.mark.parametrize(("error", "kind", "is_transient"), CASES, ids=lambda value: type(value).__name__)
def test_class_decides_kind_and_whether_to_try_again(error: BaseException, kind: ErrorKind, is_transient: bool) -> None:
    """Only what may be cured by time is transient, and no exception of a tool vouches for no effect."""
    failure = of(error)
    assert (failure.kind, failure.is_transient, failure.nothing_happened) == (kind, is_transient, False)
    assert failure.error == type(error).__name__
    assert failure.message


def database_error(package: str, name: str, *args: object, base: type[Exception] = Exception, **facts: Any) -> Any:
    """An exception of a database driver that is not installed here."""
    return type(name, (base,), {"__module__": f"{package}.errors", **facts})(*args)


def locked_sqlite() -> Exception:
    """What the driver itself raises when another connection writes."""
    with TemporaryDirectory() as folder:
        first, second = (sqlite3.connect(f"{folder}/a.db", timeout=0, isolation_level=None) for _ in range(2))
        try:
            first.execute("BEGIN IMMEDIATE")
            second.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return error
        finally:
            first.close()
            second.close()
    raise AssertionError("it was not locked")


def closed_asyncpg() -> Exception:
    return asyncpg.InterfaceError("cannot call Connection.fetch(): connection is closed")


def wrapped(package: str, name: str, where: str, inner: Exception, **facts: Any) -> Any:
    error = database_error(package, name, "text", **facts)
    setattr(error, where, inner)
    return error


REDIS_LOST = database_error("redis", "ConnectionError", "lost")

DATABASES: list[tuple[BaseException, ErrorKind, bool]] = [
    (locked_sqlite(), ErrorKind.SERVER, True),
    (sqlite3.OperationalError("database table is locked: rows"), ErrorKind.SERVER, True),
    (sqlite3.OperationalError("no such table: rows"), ErrorKind.EXCEPTION, False),
    (REDIS_LOST, ErrorKind.CONNECTION, True),
    (database_error("redis", "BusyLoadingError", "loading", base=type(REDIS_LOST)), ErrorKind.CONNECTION, True),
    (database_error("redis", "TimeoutError", "late"), ErrorKind.TIMEOUT, True),
    (database_error("redis", "ClusterDownError", "down"), ErrorKind.SERVER, True),
    (database_error("redis", "AuthenticationError", "no", base=type(REDIS_LOST)), ErrorKind.PERMISSION, False),
    (database_error("redis", "ResponseError", "wrong type"), ErrorKind.EXCEPTION, False),
    (database_error("valkey", "ConnectionError", "lost"), ErrorKind.CONNECTION, True),
    (asyncpg.ConnectionDoesNotExistError("closed amid the operation"), ErrorKind.CONNECTION, True),
    (asyncpg.CannotConnectNowError("starting"), ErrorKind.SERVER, True),
    (asyncpg.DeadlockDetectedError("deadlock"), ErrorKind.SERVER, True),
    (asyncpg.SerializationError("could not serialize"), ErrorKind.SERVER, True),
    (asyncpg.TooManyConnectionsError("too many"), ErrorKind.SERVER, True),
    (asyncpg.UniqueViolationError("twice"), ErrorKind.EXCEPTION, False),
    (closed_asyncpg(), ErrorKind.CONNECTION, True),
    (asyncpg.InterfaceError("another operation is in progress"), ErrorKind.EXCEPTION, False),
    (psycopg.OperationalError("connection failed"), ErrorKind.CONNECTION, True),
    (psycopg.errors.SerializationFailure("no"), ErrorKind.SERVER, True),
    (psycopg.errors.DeadlockDetected("no"), ErrorKind.SERVER, True),
    (psycopg.errors.DiskFull("no"), ErrorKind.EXCEPTION, False),  # an OperationalError, too
    (psycopg.errors.UniqueViolation("no"), ErrorKind.EXCEPTION, False),
    (database_error("psycopg2", "OperationalError", "server closed the connection"), ErrorKind.CONNECTION, True),
    (database_error("psycopg2", "InterfaceError", "connection already closed"), ErrorKind.CONNECTION, True),
    (database_error("psycopg2", "DeadlockDetected", pgcode="40P01"), ErrorKind.SERVER, True),
    (database_error("pymysql", "OperationalError", 1213, "deadlock"), ErrorKind.SERVER, True),
    (database_error("pymysql", "OperationalError", 1045, "denied"), ErrorKind.EXCEPTION, False),
    (database_error("asyncmy", "OperationalError", 2013, "lost"), ErrorKind.SERVER, True),
    (database_error("mysql", "DatabaseError", "text", errno=1205, sqlstate="HY000"), ErrorKind.SERVER, True),
    (database_error("mylib", "OperationalError", 1213, "no driver"), ErrorKind.EXCEPTION, False),
    (wrapped("sqlalchemy", "DBAPIError", "orig", locked_sqlite()), ErrorKind.SERVER, True),
    (wrapped("sqlalchemy", "DBAPIError", "orig", asyncpg.DeadlockDetectedError("no")), ErrorKind.SERVER, True),
    (wrapped("sqlalchemy", "DBAPIError", "orig", sqlite3.IntegrityError("no")), ErrorKind.EXCEPTION, False),
    (
        wrapped("sqlalchemy", "DBAPIError", "orig", ValueError("no"), connection_invalidated=True),
        ErrorKind.CONNECTION,
        True,
    ),
    (database_error("sqlalchemy", "TimeoutError", "the pool is empty"), ErrorKind.TIMEOUT, True),
    (wrapped("django", "Error", "__cause__", psycopg.OperationalError("lost")), ErrorKind.CONNECTION, True),
]


@pytest.mark.parametrize(("error", "kind", "is_transient"), DATABASES, ids=lambda value: type(value).__name__)
def test_database_that_is_busy_or_gone_is_transient(error: BaseException, kind: ErrorKind, is_transient: bool) -> None:
    """A lock, a deadlock and a lost connection pass; a wrong statement and a wrong password do not."""
    failure = of(error)
    assert (failure.kind, failure.is_transient, failure.nothing_happened) == (kind, is_transient, False)


class Busy(Exception):
    """Of a library of the host."""


@pytest.mark.parametrize(
    ("retry_on", "is_transient"),
    [
        (Busy, True),
        ((KeyError, Busy), True),
        (Exception, True),
        (KeyError, False),
        (lambda error: "later" in str(error), True),
        (lambda error: 1 / 0, False),
    ],
    ids=["class", "classes", "all", "another", "function", "function that raises"],
)
def test_tool_says_which_of_its_exceptions_are_transient(retry_on: Any, is_transient: bool) -> None:
    """By class or by function, alone or in a group; a function that raises says nothing."""
    tool = make_tool(fetch, retry_on=retry_on)
    for error in (Busy("later"), ExceptionGroup("", [Busy("later"), TimeoutError()])):
        assert (classify(error, tool).is_transient, classify(error, TOOL).is_transient) == (is_transient, False)
    assert not classify(SystemExit(), tool).is_transient  # no exception of a tool


@pytest.mark.parametrize(
    "retry_on", [KeyboardInterrupt, (ValueError, 3), 3, anyio.sleep], ids=["class", "classes", "number", "async"]
)
def test_tool_cannot_declare_nonsense_as_transient(retry_on: Any) -> None:
    with pytest.raises(ContractError, match="fetch: retry_on"):
        make_tool(fetch, retry_on=retry_on)


def test_retry_rule_names_classes_and_their_bases() -> None:
    """By name, so that it can be recorded; where a worker process has sent only the class, its package is not known."""
    rule = RetryRule(retry_on=[Busy, sqlite3.Error])
    assert RetryRule.model_validate_json(rule.model_dump_json()) == rule
    assert rule.retry_on == ("test_classify.Busy", "sqlite3.Error")
    assert RetryRule.model_validate({"retry_on": Busy}).retry_on == ("test_classify.Busy",)
    for error in (Busy("no"), sqlite3.IntegrityError("no"), ExceptionGroup("", [Busy("no"), TimeoutError()])):
        assert classify(error, TOOL, None, rule.retry_on).is_transient
    assert not classify(ValueError("no"), TOOL, None, rule.retry_on).is_transient
    away = CallFailed(Failure(ErrorKind.EXCEPTION, "no", "Busy"))
    assert (classify(away, TOOL, None, rule.retry_on).is_transient, of(away).is_transient) == (True, False)


@pytest.mark.parametrize("make", [lambda s: status_error(httpx, s), lambda s: status_error(httpx2, s), sdk_error])
@pytest.mark.parametrize(
    ("status", "kind", "is_transient"),
    [
        (400, ErrorKind.EXCEPTION, False),
        (401, ErrorKind.PERMISSION, False),
        (403, ErrorKind.PERMISSION, False),
        (404, ErrorKind.EXCEPTION, False),
        (408, ErrorKind.TIMEOUT, True),
        (429, ErrorKind.RATE_LIMITED, True),
        (500, ErrorKind.SERVER, True),
        (503, ErrorKind.SERVER, True),
        (529, ErrorKind.SERVER, True),
    ],
)
def test_status_of_an_answer_decides(make: Any, status: int, kind: ErrorKind, is_transient: bool) -> None:
    """The same answer means the same in every client library."""
    failure = of(make(status))
    assert (failure.kind, failure.is_transient) == (kind, is_transient)


def test_status_beats_class() -> None:
    """urllib's error for a 404 is a kind of its error for a lost connection."""
    headers = Message()
    headers["Retry-After"] = "9"
    missing = of(HTTPError("http://example.invalid", 404, "Not Found", headers, None))
    busy = of(HTTPError("http://example.invalid", 503, "Busy", headers, None))
    assert (missing.kind, missing.is_transient) == (ErrorKind.EXCEPTION, False)
    assert (busy.kind, busy.retry_after) == (ErrorKind.SERVER, 9.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1" * 5000}, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [lambda h: status_error(httpx, 429, h), lambda h: sdk_error(503, h)])
def test_retry_after_is_read_in_seconds(make: Any, headers: Mapping[str, str], seconds: float | None) -> None:
    """A date would need a clock, which has no place in a pure function; nonsense counts for nothing."""
    assert of(make(headers)).retry_after == seconds


def test_account_without_credit_is_not_tried_again() -> None:
    """It answers 429 like a busy server, and will do so until somebody pays."""
    failure = of(sdk_error(429, code="insufficient_quota"))
    assert (failure.kind, failure.is_transient) == (ErrorKind.RATE_LIMITED, False)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ToolError("no"), Failure(ErrorKind.TOOL, "no", "ToolError", nothing_happened=True)),
        (
            ToolError("busy", retryable=True, retry_after=2),
            Failure(ErrorKind.TOOL, "busy", "ToolError", is_transient=True, nothing_happened=True, retry_after=2.0),
        ),
        (
            ToolError("which?", missing_input="region"),
            Failure(ErrorKind.MISSING_INPUT, "which?", "ToolError", nothing_happened=True, missing_input="region"),
        ),
        (ToolError("no", permission=True), Failure(ErrorKind.PERMISSION, "no", "ToolError", nothing_happened=True)),
        (
            ToolError("gone", unreachable=True),
            Failure(ErrorKind.UNREACHABLE, "gone", "ToolError", nothing_happened=True),
        ),
        (ToolError("no", retry_after=float("nan")), Failure(ErrorKind.TOOL, "no", "ToolError", nothing_happened=True)),
    ],
    ids=["plain", "retryable", "missing input", "permission", "unreachable", "nan"],
)
def test_tool_error_says_it_all(error: ToolError, expected: Failure) -> None:
    """Its fields are the contract; and it alone vouches that nothing happened."""
    assert of(error) == expected


def test_failure_of_an_executor_is_taken_as_it_is() -> None:
    """It was named where it happened, by this very function perhaps, in another process."""
    failure = Failure(ErrorKind.CEILING, "too many", nothing_happened=True)
    assert of(CallFailed(failure)) is failure


def test_group_of_one_means_what_is_in_it_but_vouches_for_nothing() -> None:
    """Every task group wraps its error; but the tasks beside the one that failed may have done something."""
    failure = of(ExceptionGroup("unhandled", [ExceptionGroup("unhandled", [ToolError("busy", retryable=True)])]))
    assert (failure.kind, failure.is_transient, failure.nothing_happened) == (ErrorKind.TOOL, True, False)


def test_group_is_transient_if_all_in_it_are() -> None:
    """When a server goes away, several children of a task group fail in one turn of the loop."""
    soon, later = ToolError("busy", retryable=True, retry_after=2), ToolError("busy", retryable=True, retry_after=7)
    lost, refused = ConnectionResetError("reset"), ToolError("no", retryable=True, permission=True)
    deep = of(ExceptionGroup("", [lost, ExceptionGroup("", [later, ExceptionGroup("", [soon, TimeoutError()])])]))
    assert (deep.kind, deep.is_transient, deep.retry_after, deep.nothing_happened) == (ErrorKind.TOOL, True, 7.0, False)
    assert of(ExceptionGroup("", [lost, TimeoutError()])).is_transient
    for final in (ValueError("no"), ToolError("no"), refused, asyncio.CancelledError(), SystemExit()):
        group = of(BaseExceptionGroup("", [lost, BaseExceptionGroup("", [TimeoutError(), final])]))
        assert (group.is_transient, group.kind) == (False, of(BaseExceptionGroup("", [lost, final])).kind)


def test_deeply_nested_group_is_unwrapped() -> None:
    """Recursion would end at a thousand."""
    error: Exception = TimeoutError()
    for _ in range(5000):
        error = ExceptionGroup("", [error])
    assert of(error).kind is ErrorKind.TIMEOUT


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_real_cancellation_of_either_backend_is_known() -> None:
    """trio's cannot be made by hand."""
    found: list[Failure] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as error:
            found.append(of(error))
            raise
    assert [failure.kind for failure in found] == [ErrorKind.FOREIGN_CANCELLATION]


class Hostile(Exception):
    """Every question to it ends in an exception that should have ended the program."""

    def __str__(self) -> str:
        raise SystemExit(1)

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


def test_hostile_exception_is_a_failure_like_any_other() -> None:
    """What asks it stands outside the one place that contains exceptions of tools."""
    assert of(Hostile()) == Failure(ErrorKind.EXCEPTION, "Hostile", "Hostile")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 100_000_000),
        ToolError("x" * 1_000_000, missing_input="y" * 1_000_000),
        ValueRefused("\x1b[31m" * 100_000),
        type("E" * 100_000, (Exception,), {})("x"),
    ],
    ids=["huge", "huge fields", "escapes", "huge name"],
)
def test_message_is_short_and_printable(error: BaseException) -> None:
    """It ends up in the journal, in logs and on terminals."""
    failure = of(error)
    for text in (failure.message, failure.error, failure.missing_input or ""):
        assert text.isprintable()
        assert len(text) <= 4 * MAX_MESSAGE + 40  # each control character is written as four


def test_validation_error_does_not_show_the_values() -> None:
    """pydantic prints what it was given, which may be a secret, or 55 MB."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("hunter2")
    failure = of(caught.value)
    assert "hunter2" not in failure.message
    assert "integer" in failure.message


@pytest.mark.costly
def test_no_client_library_is_imported() -> None:
    """A run without HTTP must not pay for two of them."""
    code = "import sys, dagrun.kernel.decide.classify; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"httpx", "httpx2", "openai", "trio", "anyio"}.isdisjoint(loaded)

"""Confines this process, then runs code in it. `run_code` starts this file as a program.

It imports the standard library alone, on any platform. Every limit is set, and whatever the host has open is closed,
before the code is compiled. If a limit cannot be set, nothing is run: the process ends with `UNCONFINED`, and says why.

1. Limits of resources: CPU time, address space, bytes of a file, open files, no core dump. An alarm ends the process
   some seconds after its time, should its host have died.
2. No capabilities, and none to be had: `no_new_privs`, so that a host that is root gives the code nothing.
3. Landlock: reads below the folders of Python alone; writes to the files that exist in the scratch folder already, and
   no new files, links or folders. No TCP, no signals to processes outside.
4. Seccomp: a list of system calls that a single process needs to compute. All others fail with EPERM: sockets, new
   processes, programs, signals to others, io_uring, mounts, keys, shared memory.
"""

from __future__ import annotations

import ctypes
import json
import linecache
import os
import signal
import struct
import sys
import traceback

UNCONFINED = 78
FAILED = 79
RESULT = ".result.json"
_LATE = 5  # seconds

_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 22, 24, 4, 38
_CAPSET, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 126, 444, 445, 446

# Rights of Landlock to files and folders, by bit.
_WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_ALL_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}  # by version; later ones: below
_RIGHTS_NOW = (1 << 16) - 1

_ARCH = 0xC000003E  # x86-64, little endian
_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_CLONE, _TGKILL, _PRLIMIT, _CLONE3, _THREAD = 56, 234, 302, 435, 0x10000
_FCNTL, _FCNTLS = 72, (*range(8), 1030)  # duplicates, flags and locks
_IOCTL, _IOCTLS = 16, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # whether it is a terminal; bytes to read; flags
# read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sig* ioctl pread pwrite readv writev
# access pipe select sched_yield mremap msync mincore madvise dup dup2 nanosleep getpid exit uname fcntl flock
# fsync truncate getdents getcwd chdir readlink umask times ids sigaltstack arch_prctl gettid futex affinity clocks
# openat fstatat readlinkat faccessat pselect ppoll robust_list pipe2 dup3 getcpu getrandom membarrier statx rseq
_CALLS = (
    *range(16), *range(17, 29), 32, 33, 35, 39, 60, 63, 73, 74, 75, 76, 77, 78, 79, 80, 89, 95, 96, 97, 98, 99, 100,
    102, 104, 107, 108, 110, 131, 158, 186, 201, 202, 204, 217, 218, 221, 228, 229, 230, 231, 257, 262, 267, 269, 270,
    271, 273, 292, 293, 309, 318, 324, 332, 334, 436, 439,
)  # fmt: skip

_libc = ctypes.CDLL("kernel32" if sys.platform == "win32" else None, use_errno=True)


class Unconfined(Exception):
    """A limit cannot be set here."""


def _called(result: int, what: str) -> int:
    if result < 0:
        raise Unconfined(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _limit_resources(limits: dict[str, int]) -> None:
    import resource  # here: there is no such module on Windows

    signal.alarm(limits["seconds"] + _LATE)
    for name, most in (
        ("RLIMIT_CPU", limits["cpu_seconds"]),
        ("RLIMIT_AS", limits["memory"]),
        ("RLIMIT_FSIZE", limits["file_bytes"]),
        ("RLIMIT_NOFILE", 64),
        ("RLIMIT_CORE", 0),
    ):
        try:
            resource.setrlimit(getattr(resource, name), (most, most))
        except (OSError, ValueError) as error:
            raise Unconfined(f"{name}: {error}") from error


def _drop_privileges() -> None:
    _called(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _called(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # there is no such capability, or there is none to drop
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _called(_libc.syscall(_CAPSET, header, none), "capset")


def _confine_files(reads: list[str], scratch: str) -> None:
    version = _called(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1), "Landlock")
    handled = _ALL_RIGHTS.get(version, _RIGHTS_NOW)
    rules = struct.pack("QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _called(_libc.syscall(_LANDLOCK_CREATE, rules, len(rules), 0), "Landlock")
    if version < 3:
        raise Unconfined("Landlock of version 3 or later is needed, for truncate: Linux 6.2")
    own = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE
    for path, rights in [*((path, _READ_FILE | _READ_DIR) for path in reads), (scratch, own)]:
        try:
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        except OSError:
            if path == scratch:
                raise Unconfined("the scratch folder cannot be opened") from None
            continue  # there is no such folder to read from
        rule = struct.pack("=Qi", rights, folder)
        _called(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0), "Landlock")
        os.close(folder)
    _called(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)


def _confine_calls() -> None:
    def op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    def argument(number: int) -> bytes:
        return op(_LOAD, 16 + 8 * number)

    allow, deny = op(_RETURN, _ALLOW), op(_RETURN, _EPERM)
    program = [op(_LOAD, 4), op(_EQUAL, _ARCH, 1, 0), op(_RETURN, _KILL)]
    program += [op(_LOAD, 0), op(_AT_LEAST, 0x40000000, 0, 1), op(_RETURN, _KILL)]  # another table of calls
    # No signals through a file: F_SETOWN and FIOSETOWN would let the kernel send one to any process of the user.
    for call, allowed in ((_FCNTL, _FCNTLS), (_IOCTL, _IOCTLS)):
        program += [op(_EQUAL, call, 0, 2 * len(allowed) + 2), argument(1)]
        for value in allowed:
            program += [op(_EQUAL, value, 0, 1), allow]
        program.append(deny)
    # Threads, but no processes; signals to this process; limits may be read, also those of others, and not set.
    program += [op(_EQUAL, _CLONE, 0, 4), argument(0), op(_ANY_BIT, _THREAD, 0, 1), allow, deny]
    program += [op(_EQUAL, _TGKILL, 0, 4), argument(0), op(_EQUAL, os.getpid(), 0, 1), allow, deny]
    program += [op(_EQUAL, _PRLIMIT, 0, 6), argument(2), op(_EQUAL, 0, 0, 3), op(_LOAD, 36), op(_EQUAL, 0, 0, 1)]
    program += [allow, deny]
    program += [op(_EQUAL, _CLONE3, 0, 1), op(_RETURN, _ENOSYS)]  # its flags cannot be looked at: libc takes clone then
    for call in _CALLS:
        program += [op(_EQUAL, call, 0, 1), allow]
    program.append(deny)
    code = ctypes.create_string_buffer(b"".join(program))
    filter_ = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    _called(_libc.prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(filter_), 0, 0), "seccomp")


def _run(code: str, inputs: object) -> int:
    scope = {"__name__": "__main__", "inputs": inputs}
    linecache.cache["<code>"] = (len(code), None, code.splitlines(keepends=True), "<code>")
    try:
        exec(compile(code, "<code>", "exec"), scope)
        text = json.dumps(scope.get("result"), allow_nan=False, ensure_ascii=False)
    except SystemExit as error:
        sys.stderr.write(f"SystemExit: {error.code}\n")
        return FAILED
    except BaseException as error:  # noqa: BLE001  (whatever it is, its author is told)
        trace = error.__traceback__.tb_next if error.__traceback__ is not None else None  # not this frame
        traceback.print_exception(type(error), error, trace, limit=-5)
        return FAILED
    try:
        with open(RESULT, "w", encoding="utf-8") as file:
            file.write(text)
    except (OSError, UnicodeError) as error:
        sys.stderr.write(f"the result cannot be kept: {error}\n")
        return FAILED
    return 0


def main() -> int:
    """Read a job from the standard input, and do it."""
    os.closerange(3, 1 << 30)  # whatever the loop of the host has handed on
    job = json.loads(sys.stdin.buffer.read())
    os.environ.clear()
    sys.argv = ["<code>"]
    sys.path[:] = [path for path in sys.path if path and path != os.path.dirname(__file__)] + job["packages"]
    try:
        _limit_resources(job["limits"])
        _drop_privileges()
        _confine_files(job["reads"], os.getcwd())
        _confine_calls()
    except Unconfined as error:
        sys.stderr.write(f"{error}\n")
        return UNCONFINED
    ended = _run(job["code"], job["inputs"])
    sys.stdout.flush()
    return ended


if __name__ == "__main__":
    raise SystemExit(main())

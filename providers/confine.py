"""What a sandbox child may still do: compute, allocate, and speak through the socket that it already holds.

Loaded by the sandbox process from this file, so it imports the standard library alone. Limits of the kernel end a child
that runs or grows too far. On Linux a seccomp filter refuses all system calls but a few besides: code that slipped past
the check of its syntax tree can name no file (not even to remove one), open no socket, start or signal no process.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
"""REFUSE fails the call with EPERM, which Python raises as PermissionError."""

ARCHITECTURES = {
    "x86_64": (
        0xC000003E,
        {
            **{"read": 0, "write": 1, "close": 3, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12},
            **{"rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25},
            **{"madvise": 28, "sendto": 44, "recvfrom": 45, "exit": 60, "futex": 202, "restart_syscall": 219},
            **{"clock_gettime": 228, "exit_group": 231, "getrandom": 318},
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            **{"close": 57, "read": 63, "write": 64, "exit": 93, "exit_group": 94, "futex": 98},
            **{"clock_gettime": 113, "sched_yield": 124, "restart_syscall": 128, "rt_sigaction": 134},
            **{"rt_sigprocmask": 135, "rt_sigreturn": 139, "sendto": 206, "recvfrom": 207, "brk": 214},
            **{"munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233, "getrandom": 278},
        },
    ),
}
"""Machine -> its number in the kernel's audit, and the system calls that stay, by their numbers on it."""

MACHINE = platform.machine()
_C_LIBRARY = ctypes.CDLL(None, use_errno=True)


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def confine(cpu_seconds: int, memory_bytes: int) -> None:
    """Give this process up to its limits and, on Linux, to the filter; there is no way back.

    OSError where a Linux kernel takes no filter: skills do not run there.
    """
    for kind, limit in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    if sys.platform == "linux" and MACHINE in ARCHITECTURES:
        _filter_calls(*ARCHITECTURES[MACHINE])


def _filter_calls(architecture: int, allowed: dict[str, int]) -> None:
    numbers = sorted(allowed.values())
    steps = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
        *((JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    program = _Program(len(steps), (_Instruction * len(steps))(*(_Instruction(*step) for step in steps)))
    prctl = _C_LIBRARY.prctl
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)):
        number = ctypes.get_errno()
        raise OSError(number, f"this kernel takes no seccomp filter ({os.strerror(number)}), so skills cannot run here")

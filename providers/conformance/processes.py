"""Stores in processes of their own: some at once, and some that are killed before their n-th write.

Run as `python -m providers.conformance.processes JOB PROVIDER FOLDER`. It forks one child per process wanted, before
any thread has started, and prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

from providers.base import MemoryProvider
from providers.conformance.bench import Bench, NotConforming, query_of
from providers.conformance.corpus import CORRECT, TOPICS, WRONG, made_run, mixed_runs, question_of
from providers.types import Effect, Outcome, Trajectory

WRITERS = 4
FILLED = "filled.sqlite"
"""The bank, filled and closed by the caller, whose effects are applied in `crash_in_effects`."""
MOST_CRASHES = 400
_WRITES = ("BEGIN", "INSERT", "UPDATE", "DELETE", "REPLACE", "COMMIT", "CREATE", "DROP", "ALTER")


def crash_runs() -> list[tuple[Trajectory, Outcome]]:
    """A correct run, another of the same lesson, and a wrong one."""
    first, second = TOPICS[:2]
    return [
        (made_run(*first), CORRECT),
        (made_run(*first, seed=1, task="again"), CORRECT),
        (made_run(*second), WRONG),
    ]


async def most_effects(provider: MemoryProvider) -> tuple[Effect, ...]:
    """The effects of the question, among those of the topics, that has the most."""
    questions = [question_of(asked, subject) for asked, _, subject in TOPICS]
    retrievals = [await provider.retrieve(query_of(question)) for question in questions]
    return max((retrieval.effects for retrieval in retrievals), key=len)


def run_job(job: str, bench: Bench) -> dict[str, Any]:
    """Run a job in a fresh interpreter that sees the same packages; NotConforming where a process failed in it."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "providers.conformance.processes", job, bench.name, str(bench.folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise NotConforming(f"a process that stored ended in an error: {done.stderr.strip().splitlines()[-1:]}")
    return cast(dict[str, Any], json.loads(done.stdout))


def main(job: str, name: str, folder: str) -> None:
    import faiss  # noqa: F401 - loaded once here, not in every child

    bench = Bench(name, Path(folder))
    _ = bench.card
    print(json.dumps(JOBS[job](bench)))


def store_at_once(bench: Bench) -> dict[str, Any]:
    """Every process offers its own part of the runs, and all of them the first run."""
    runs = mixed_runs()

    async def store(part: int) -> None:
        with bench.bank() as bank:
            await bench.filled(bank, [runs[0], *runs[part::WRITERS]])

    children = [_fork(partial(store, part)) for part in range(WRITERS)]
    for child in children:
        if (code := _wait(child)) != 0:
            raise SystemExit(f"one of {WRITERS} storing processes ended with {code}")
    return {"processes": WRITERS}


def crash_in_stores(bench: Bench) -> dict[str, Any]:
    """Banks `store-N.sqlite` whose storing process was killed before its N-th write, N = 1, 2, ... to the last."""

    async def store(file: str) -> None:
        with bench.bank(file) as bank:
            await bench.filled(bank, crash_runs())

    return {"files": _crash_everywhere(bench, "store", store)}


def crash_in_effects(bench: Bench) -> dict[str, Any]:
    """As `crash_in_stores`, for a process that applies the effects of one retrieval."""

    async def apply(file: str) -> None:
        with bench.bank(file) as bank:
            provider = bench.provider(bank)
            provider.apply(await most_effects(provider), CORRECT)

    return {"files": _crash_everywhere(bench, "effects", apply, start=bench.folder / FILLED)}


JOBS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "store_at_once": store_at_once,
    "crash_in_stores": crash_in_stores,
    "crash_in_effects": crash_in_effects,
}


def _crash_everywhere(
    bench: Bench, stem: str, work: Callable[[str], Coroutine[Any, Any, None]], start: Path | None = None
) -> list[str]:
    """The files left by killing `work` before each of its writes; each begins as a copy of the bank `start`."""
    files: list[str] = []
    for write in range(1, MOST_CRASHES + 1):
        file = f"{stem}-{write}.sqlite"
        if start is not None:
            shutil.copyfile(start, bench.folder / file)
        child = _fork(partial(_until_write, write, partial(work, file)))
        code = _wait(child)
        if code == 0:
            return files
        if code != -signal.SIGKILL:
            raise SystemExit(f"the process that was to be killed at write {write} ended with {code}")
        files.append(file)
    raise SystemExit(f"storing three runs took more than {MOST_CRASHES} writes")


async def _until_write(write: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    left = write

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class Mortal(sqlite3.Connection):
        """Dies before the n-th statement that writes."""

        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql.lstrip().upper().startswith(_WRITES):
                count()
            return super().execute(sql, *rest)

        def executemany(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            count()
            return super().executemany(sql, *rest)

        def executescript(self, script: str) -> sqlite3.Cursor:
            count()
            return super().executescript(script)

    connect, replace = sqlite3.connect, os.replace

    def counted_replace(*arguments: Any, **named: Any) -> None:
        count()
        replace(*arguments, **named)

    sqlite3.connect = lambda *arguments, **named: connect(*arguments, **{"factory": Mortal, **named})
    os.replace = counted_replace
    await work()


def _fork(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        asyncio.run(work())
        code = 0
    except BaseException:  # noqa: BLE001 - a child must end here, whatever went wrong in it
        traceback.print_exc()
    finally:
        os._exit(code)


def _wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main(*sys.argv[1:])

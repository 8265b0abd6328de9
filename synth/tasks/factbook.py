"""The factbook suite: web research over the CIA World Factbook, served as real pages over loopback HTTP."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from providers.errors import ConfigError, SuiteError
from providers.tools import Tool
from providers.types import Outcome, Split, Task
from synth.tasks.factbook_score import score
from synth.tasks.factbook_server import SiteServer
from synth.tasks.factbook_site import load_site
from synth.tasks.factbook_tasks import CAPACITY, make_tasks
from synth.tasks.factbook_tools import OpenTool, SearchTool

if TYPE_CHECKING:
    from aiohttp import ClientSession

CONNECTIONS = 64


class Factbook:
    """Seven families of question, four pools that share neither countries asked about nor wording.

    `port` is the port of the site on 127.0.0.1; 0 takes any free one. `explore` is how many exploration tasks are made.
    """

    name = "factbook"

    def __init__(self, seed: int = 0, port: int = 0, explore: int = CAPACITY[Split.EXPLORE]) -> None:
        if not isinstance(port, int) or not 0 <= port <= 65535:
            raise ConfigError(f"suite.options.port is {port!r}: give a port from 1 to 65535, or 0 for any free one.")
        if not isinstance(explore, int) or explore < 0:
            raise ConfigError(f"suite.options.explore is {explore!r}: give a number of tasks from 0 up.")
        self._seed = seed
        self._explore = explore
        self._port = port
        self._tasks: dict[Split, list[Task]] | None = None
        self._server: SiteServer | None = None
        self._client: ClientSession | None = None
        self._tools: tuple[Tool, ...] = ()

    async def __aenter__(self) -> Self:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        server = SiteServer(load_site(), self._port)
        server.start()
        self._client = ClientSession(
            connector=TCPConnector(limit=CONNECTIONS), timeout=ClientTimeout(total=30), cookie_jar=DummyCookieJar()
        )
        self._server = server
        self._tools = (SearchTool(server.url, self._client), OpenTool(server.url, self._client))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()
        if self._server is not None:
            self._server.stop()
        self._client, self._server, self._tools = None, None, ()

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        """Tasks of a split in a fixed order that keeps the mix of families at any prefix."""
        if self._tasks is None:
            self._tasks = make_tasks(load_site(), self._seed, self._explore)
        tasks = self._tasks[split]
        if limit is not None and limit > len(tasks):
            raise SuiteError(
                f"The factbook suite has {len(tasks)} {split} tasks, not {limit}: lower suite.{split} in the config."
            )
        return tasks[:limit]

    def score(self, task: Task, answer: str | None) -> Outcome:
        """Exact match with normalisation against the task's gold; None where it has none."""
        return score(task.gold, answer)

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """`search` and `open`, the same for every task. Raises SuiteError outside `async with`."""
        return self.site_tools

    @property
    def site_tools(self) -> tuple[Tool, ...]:
        """The tools, for suites that use the site in place of the web."""
        if not self._tools:
            raise SuiteError("The factbook site is not running: use the suite's tools inside `async with`.")
        return self._tools

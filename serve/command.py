"""`memroute serve`: the app on a socket, until it is told to end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType

import structlog
import uvicorn

from providers.errors import ConfigError
from serve.app import make_app
from serve.auth import Keys, add_key
from serve.chat import add_chat
from serve.logs import log_as_json
from serve.opening import open_sessions
from serve.proxy import Proxy
from serve.sessions import Sessions
from synth.config import ProxyConfig, RunConfig

log = structlog.get_logger("memroute.serve")


def serve(config: RunConfig) -> None:
    """Serve until SIGTERM or SIGINT; requests that have begun are answered first."""
    keys = Keys.load(config.serve.keys_file, config.serve.key_env)
    keys.check_host(config.serve.host)
    log_as_json(sys.stderr)
    asyncio.run(_serve(config, keys))


def make_key(config: RunConfig, name: str, namespace: str, rights: Sequence[str]) -> str:
    """Add a key to the config's key file and return it; it is shown once, and stands nowhere."""
    if config.serve.keys_file is None:
        raise ConfigError("There is no key file to add to: set serve.keys_file in the config, or with --set.")
    return add_key(config.serve.keys_file, name, namespace, rights)


async def _serve(config: RunConfig, keys: Keys) -> None:
    settings = config.serve
    async with open_sessions(config) as sessions, proxying(sessions, settings.proxy, keys) as proxy:
        app = make_app(sessions, keys)
        if proxy is not None:
            add_chat(app, proxy)
        server = _Server(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
            ),
            sessions,
        )
        for sign in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(sign, server.handle_exit, sign, None)
        with _listening_on(settings.host, settings.port) as listener:
            await server.serve(sockets=[listener])


def _listening_on(host: str, port: int) -> socket.socket:
    """A socket that listens there and knows that it is TCP. Raises ConfigError where nothing can.

    `create_server` leaves the protocol out, and asyncio lets small writes go at once only where it is named: the body
    of an answer would wait until the client has acknowledged its head, some 40 ms.
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        return socket.socket(fileno=listener.detach())
    except OSError as error:
        raise ConfigError(
            f"Nothing can listen on {host}:{port} ({error.strerror}): give another --host or --port."
        ) from error


@asynccontextmanager
async def proxying(sessions: Sessions, config: ProxyConfig, keys: Keys) -> AsyncIterator[Proxy | None]:
    """The proxy, where the config names an endpoint to stand before."""
    if config.base_url is None:
        yield None
        return
    proxy = Proxy(sessions, config, own_keys=not keys.anonymous)
    proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


class _Server(uvicorn.Server):
    """Uvicorn, which begins no session once it was told to end, and says where it listens."""

    def __init__(self, config: uvicorn.Config, sessions: Sessions) -> None:
        super().__init__(config)
        self._sessions = sessions

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own way raises the signal again once it has ended, before the sessions could be closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            port = sockets[0].getsockname()[1]
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            log.info("listening", url=f"http://{host}:{port}", policy=self._sessions.policy_name)
            print(f"memroute serves {self._sessions.policy_name} on http://{host}:{port}", file=sys.stderr, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._sessions.draining = True
        super().handle_exit(sig, frame)

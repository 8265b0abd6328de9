"""vLLM as a process of its own, from an environment of its own (`scripts/setup_engine`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from router.base_model import base_location
from serve.failures import EngineFailure

if TYPE_CHECKING:
    from synth.config import EngineConfig
    from synth.runs import Run

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes for `--max-lora-rank`."""

_ROOT = Path(__file__).resolve().parent.parent
_TAIL = 6
"""Lines of the engine's log that an error shows."""


class VllmProcess:
    """One vLLM on a free loopback port, with a key that is made for it. It ends with us, even where we are killed."""

    def __init__(self, run: Run, config: EngineConfig) -> None:
        """Raises `EngineFailure` (refused) where the environment, or what the training left, is missing."""
        self.python = engine_python(config.environment)
        gpu = has_gpu() if config.device == "auto" else config.device == "cuda"
        lora = gpu if config.weights == "auto" else config.weights == "lora"
        self.port = 0
        """Chosen at every start: a port that was free once need not be later."""
        self.key = secrets.token_urlsafe(24)
        self.log = run.root / "engine.log"
        self._arguments = [*vllm_arguments(run, config.model, gpu=gpu, lora=lora), *config.arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int:
        """Of the server, which heads its process group; 0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def command(self) -> list[str]:
        """Without the key, which is handed over in the environment."""
        # setpriv (util-linux) lets the kernel end the child when this process dies, however it dies.
        tied = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        address = ("--host", "127.0.0.1", "--port", str(self.port))
        return [*tied, str(self.python), "-m", "vllm.entrypoints.openai.api_server", *self._arguments, *address]

    def start(self) -> None:
        """Start it, or start it again; what it says goes to `engine.log` of the run."""
        self._sweep()
        self.port = _free_port()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command,
                env=_environment(self.key),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def require_alive(self) -> None:
        """Raise `EngineFailure` (down) with the end of its log where it has ended."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            raise EngineFailure(
                f"vLLM ended with exit code {code}; {self.log} says: {self._said() or 'nothing'}.", kind="down"
            )

    async def stop(self, grace: float = 10.0) -> None:
        """Ask it to end, and kill it with all its children where it has not after `grace` seconds."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(process.wait), grace)
        self._sweep()

    def _sweep(self) -> None:
        """Kill what is left of its process group: an engine core that outlived the server still holds the memory."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _said(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines[-_TAIL:] if line.strip())[-800:]


def engine_python(environment: Path) -> Path:
    """The engine's own Python; a relative folder is looked for here and beside memroute."""
    for folder in (environment.expanduser(), _ROOT / environment):
        if (python := folder / "bin" / "python").exists():
            return python.absolute()
    raise EngineFailure(
        f"There is no engine environment {environment}: run scripts/setup_engine, or set serve.engine.environment, "
        "or serve.engine.kind to local.",
        kind="refused",
    )


def vllm_arguments(run: Run, name: str, *, gpu: bool, lora: bool) -> list[str]:
    """How vLLM serves a run's router under `name`: the merged model, or the base with the adapter beside it."""
    train = run.config.train
    model = base_location(train.base) if lora else str(run.merged.absolute())
    served = ["--model", model, "--served-model-name", f"{name}-base" if lora else name]
    if lora:
        rank = json.loads((run.adapter / "adapter_config.json").read_text(encoding="utf-8"))["r"]
        served += ["--enable-lora", "--max-lora-rank", str(next(known for known in RANKS if known >= rank))]
        served += ["--max-loras", "1", "--lora-modules", f"{name}={run.adapter.absolute()}"]
    longest = _positions(Path(model) if Path(model).is_dir() else run.merged)
    # Blanks stay free: without them xgrammar forbids the ones that the router was trained to write.
    grammar = {"backend": "xgrammar"}
    return [
        *served,
        *("--tokenizer", str(run.merged.absolute())),
        *("--dtype", train.dtype),
        # A marks prompt stays within train.max_tokens; a json answer stands behind it.
        *("--max-model-len", str(min(longest, 2 * train.max_tokens + 512))),
        "--enable-prefix-caching",
        *("--structured-outputs-config", json.dumps(grammar)),
        # The sampling defaults of the model's folder are not for greedy decisions.
        *("--generation-config", "vllm"),
        # Compiling takes minutes and gains little on a CPU. A prefix is cached in whole blocks: in those of 128 tokens
        # that vLLM takes on a CPU a marks guide of 100 is never found again. Its CPU kernels want multiples of 32.
        *(() if gpu else ("--enforce-eager", "--block-size", "32")),
    ]


def has_gpu() -> bool:
    """Whether an NVIDIA GPU can be seen."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    return listed.returncode == 0 and listed.stdout.startswith("GPU")


def _positions(model: Path) -> int:
    """The longest sequence that the model takes."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    return int(config.get("max_position_embeddings") or config["text_config"]["max_position_embeddings"])


def _environment(key: str) -> dict[str, str]:
    """Ours, without what belongs to our own Python; what the user has set for vLLM stands."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    defaults = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
    }
    return defaults | own | {"VLLM_API_KEY": key}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

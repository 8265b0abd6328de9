"""The container files name what is there: files, arguments that parse, keys of the config, the engine's own flags."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from memroute import build_parser
from serve.vllm import vllm_arguments
from synth.load_config import load_config
from synth.runs import Run

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "examples" / "containers"


def compose() -> dict[str, dict[str, dict[str, object]]]:
    loaded: dict[str, dict[str, dict[str, object]]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return loaded


def test_the_apps_arguments_are_memroutes() -> None:
    dockerfile = (FOLDER / "app.Dockerfile").read_text()
    default = json.loads(re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)[-1])
    for arguments in (default, compose()["services"]["app"]["command"]):
        assert isinstance(arguments, list)
        parsed = build_parser().parse_args(["serve", *arguments])
        chosen = load_config(ROOT / parsed.config, parsed.overrides, runs_dir=parsed.runs_dir)
        assert parsed.host == "0.0.0.0"
        assert str(chosen.runs_dir) == "/runs"
    assert chosen.serve.engine.kind == "endpoint"
    assert chosen.serve.engine.base_url == "http://engine:8000/v1"


def test_the_engine_is_started_as_memroute_would(tmp_path: Path) -> None:
    config = load_config(ROOT / "configs" / "embedded.yaml", [], runs_dir=tmp_path)
    with Run.open(config) as run:
        run.merged.mkdir()
        (run.merged / "config.json").write_text('{"max_position_embeddings": 8192}')
        ours = vllm_arguments(run, config.serve.engine.model, gpu=False, lora=False)
        tokenizer = ours.index("--tokenizer")
        del ours[tokenizer : tokenizer + 2]  # the model's own
        theirs = compose()["services"]["engine"]["command"]
        assert [part.replace(str(run.merged.absolute()), "/runs/embedded/merged") for part in ours] == theirs


def test_what_is_copied_and_run_exists() -> None:
    for dockerfile in FOLDER.glob("*.Dockerfile"):
        text = dockerfile.read_text()
        for source in re.findall(r"^COPY (\S+)", text, re.MULTILINE):
            assert (ROOT / source).exists(), source
        for script in re.findall(r"scripts/\w+", text):
            assert (ROOT / script).is_file(), script
        assert re.search(r"^USER (?!root)\w+$", text, re.MULTILINE), dockerfile
        ignored = Path(f"{dockerfile}.dockerignore").read_text().split()
        assert {"runs", "keys.yaml", ".git"} <= set(ignored)
    services = compose()["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["tls"]
    for service in services.values():
        build = service.get("build")
        if isinstance(build, dict):
            assert (FOLDER / build["context"] / build["dockerfile"]).is_file()

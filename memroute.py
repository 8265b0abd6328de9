"""memroute: the command line (one verb per stage), and the one name that other packages import from.

Nothing heavy is imported until a verb needs it, so that `memroute --help` is quick and works without torch.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from evaluation.result import Evaluation as Evaluation
    from evaluation.retrained import Ablations, LearningCurve, LeftOutTable
    from providers.base import Distiller as Distiller
    from providers.base import MemoryProvider as MemoryProvider
    from providers.base import ProviderCard as ProviderCard
    from providers.errors import ConfigError as ConfigError
    from providers.errors import MemrouteError as MemrouteError
    from providers.errors import ProviderError as ProviderError
    from providers.long_term.base import SpaceProvider as SpaceProvider
    from providers.space import Space as Space
    from providers.tools import Tool as Tool
    from providers.tools import ToolResult as ToolResult
    from providers.types import Outcome as Outcome
    from providers.types import Parameter as Parameter
    from providers.types import Preview as Preview
    from providers.types import Query as Query
    from providers.types import Record as Record
    from providers.types import Retrieval as Retrieval
    from providers.types import Split as Split
    from providers.types import Step as Step
    from providers.types import StoreReceipt as StoreReceipt
    from providers.types import Task as Task
    from providers.types import Trajectory as Trajectory
    from router.decisions import BeginDecision as BeginDecision
    from router.decisions import EndDecision as EndDecision
    from router.decisions import InDecision as InDecision
    from router.decisions import Policy as Policy
    from router.session import MemorySession as MemorySession
    from router.table import RoutingTable as RoutingTable
    from serve.client import MemoryClient as MemoryClient
    from serve.client import SyncMemoryClient as SyncMemoryClient
    from synth.agents.base import AgentSession as AgentSession
    from synth.agents.base import TaskAgent as TaskAgent
    from synth.config import RunConfig as RunConfig
    from synth.doctor import Finding
    from synth.load_config import load_config as load_config
    from synth.plan import Plan
    from synth.runs import Run as Run
    from synth.tasks.base import TaskSuite as TaskSuite

_EXPORTS = {
    "evaluation.result": ("Evaluation",),
    "providers.base": ("Distiller", "MemoryProvider", "ProviderCard"),
    "providers.errors": ("ConfigError", "MemrouteError", "ProviderError"),
    "providers.long_term.base": ("SpaceProvider",),
    "providers.space": ("Space",),
    "providers.tools": ("Tool", "ToolResult"),
    "providers.types": (
        "Outcome",
        "Parameter",
        "Preview",
        "Query",
        "Record",
        "Retrieval",
        "Split",
        "Step",
        "StoreReceipt",
        "Task",
        "Trajectory",
    ),
    "router.decisions": ("BeginDecision", "EndDecision", "InDecision", "Policy"),
    "router.session": ("MemorySession",),
    "router.table": ("RoutingTable",),
    "serve.client": ("MemoryClient", "SyncMemoryClient"),
    "synth.agents.base": ("AgentSession", "TaskAgent"),
    "synth.config": ("RunConfig",),
    "synth.load_config": ("load_config",),
    "synth.runs": ("Run",),
    "synth.tasks.base": ("TaskSuite",),
}
"""Public names by the module they live in; each is imported when it is first asked for."""

__all__ = ["main", *(name for names in _EXPORTS.values() for name in names)]

ROOT = Path(__file__).resolve().parent
PURPOSES = ("agent", "distiller", "judge", "verifier", "router", "scorer", "vision", "audio")
"""What chat models are asked for, as `synth.config.Purpose` has it."""
RUN_FORMATS = ("auto", "openai", "swe-agent", "openhands")
"""Formats of finished runs, as `synth.importers.read.FORMS` has them."""
ROOMS = ("lm", "providers", "router", "synth", "evaluation", "train", "serve")


def __getattr__(name: str) -> Any:
    for module, names in _EXPORTS.items():
        if name in names:
            for sentence in shadowed_rooms():
                raise ImportError(sentence)
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def shadowed_rooms() -> list[str]:
    """One sentence per room that Python finds elsewhere than beside this file; imports nothing."""
    sentences = []
    for room in ROOMS:
        found = _location(room)
        if found is None:
            sentences.append(f'The folder "{room}" is missing beside {ROOT / "memroute.py"}; install memroute again.')
        elif found != ROOT / room:
            sentences.append(
                f'{found} hides memroute\'s own "{room}"; rename it, or keep its folder off PYTHONPATH and '
                "start `memroute` from another folder."
            )
    return sentences


def _location(room: str) -> Path | None:
    """Where `import room` comes from: a package's folder, or the file of a single module."""
    spec = importlib.util.find_spec(room)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    found = folders[0] if folders else spec.origin
    return Path(found).resolve() if found else None


@dataclass(frozen=True)
class Verb:
    """One verb: its words, what it does with the parsed arguments, and which arguments it takes."""

    name: str
    summary: str
    description: str
    lands: str
    """Where the result is found."""
    example: str
    handler: Callable[[argparse.Namespace], int]
    arguments: Callable[[argparse.ArgumentParser], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code: 0 done, 1 the work failed, 2 the call or config was wrong, 130 stopped."""
    _set_environment()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    if not arguments:
        parser.print_help()
        return 2
    args = parser.parse_args(arguments)
    try:
        if args.verb != "doctor":
            for sentence in shadowed_rooms():
                return _complain(sentence, 2)
        code: int = args.handler(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _complain("stopped; nothing done so far is lost, the same command continues.", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        explained = _explain(error)
        if explained is None:
            raise
        return _complain(*explained)


def _set_environment() -> None:
    """What must stand before torch and the hub clients load; the user's own settings win."""
    for name, value in {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }.items():
        os.environ.setdefault(name, value)


def _complain(sentence: str, code: int) -> int:
    print(f"memroute: {sentence}", file=sys.stderr)
    return code


def _explain(error: Exception) -> tuple[str, int] | None:
    """One sentence and the exit code for an error that a user can mend; None for a fault of ours."""
    import errno
    import sqlite3

    from providers.errors import ConfigError, MemrouteError

    if isinstance(error, ExceptionGroup):
        explained = [found for inner in error.exceptions if (found := _explain(inner))]
        return explained[0] if len(explained) == len(error.exceptions) else None
    if isinstance(error, MemrouteError):
        return str(error), 2 if isinstance(error, ConfigError) else 1
    if isinstance(error, sqlite3.DatabaseError):
        if "full" in str(error):
            return "the disk is full; free some space and run the same command, it continues where it stopped.", 1
        return (
            f"a database of the run cannot be used ({error}); see `memroute doctor`, or start under another --name.",
            1,
        )
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] not in ROOMS:
        return (
            f'the Python package "{error.name}" is missing; run scripts/setup, or install memroute with pip again.',
            1,
        )
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return (
                f"the disk is full{where}; free some space and run the same command, it continues where it stopped.",
                1,
            )
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            return f"no permission to write or read{where}; choose another folder with --runs-dir.", 1
        if error.errno == errno.EADDRINUSE:
            return f"a loopback port is already in use ({error}); end the program that holds it, or wait a moment.", 1
    return None


def build_parser() -> argparse.ArgumentParser:
    """The command line of all verbs, from `VERBS`."""
    parser = _Parser(
        prog="memroute",
        description="Trains a small router that manages many agent memories at once, and measures what it is worth.",
        epilog="example: memroute run configs/embedded.yaml\n\n"
        'Every verb explains itself: "memroute VERB --help". Exit codes: 0 done, 1 the work failed, '
        "2 the call or config was wrong, 130 stopped.",
        formatter_class=_Paragraphs,
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    for verb in VERBS:
        sub = verbs.add_parser(
            verb.name,
            help=verb.summary,
            description=f"{verb.description}\n\nResult: {verb.lands}",
            epilog=f"example: {verb.example}",
            formatter_class=_Paragraphs,
        )
        verb.arguments(sub)
        sub.set_defaults(handler=verb.handler)
    return parser


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, with the nearest verb where one was misspelt."""

    def error(self, message: str) -> NoReturn:
        import difflib
        import re

        misspelt = re.search(r"argument VERB: invalid choice: '([^']*)'", message)
        if misspelt:
            near = difflib.get_close_matches(misspelt[1], [verb.name for verb in VERBS], n=1, cutoff=0.4)
            message = f'there is no verb "{misspelt[1]}"' + (f" (nearest: {near[0]})" if near else "")
        self.exit(_complain(f'{message}; see "{self.prog} --help".', 2))


class _Paragraphs(argparse.HelpFormatter):
    """Wraps a description's paragraphs one by one instead of running them together."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=20)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(paragraph, width, indent) for paragraph in text.split("\n\n"))


class _Version(argparse.Action):
    """Prints the installed version; looked up only when asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and end")

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        from importlib.metadata import version

        print(f"memroute {version('memroute')}")
        parser.exit()


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a config file, e.g. configs/embedded.yaml")
    _override_arguments(parser)


def _override_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        metavar="A.B=C",
        action="append",
        default=[],
        dest="overrides",
        help='set one key, e.g. --set suite.explore=40 (repeatable; "memroute config schema" lists the keys)',
    )
    parser.add_argument("--seed", type=int, help="the run's seed (instead of the config's)")
    parser.add_argument("--name", help="the run's name, which is its folder's (instead of the config's)")
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", help="where runs live (instead of the config's)")


def _stage_arguments(parser: argparse.ArgumentParser) -> None:
    _config_arguments(parser)
    _output_arguments(parser)


def _output_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done and how long it takes; do nothing"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on standard output")


def _floors_arguments(parser: argparse.ArgumentParser) -> None:
    _config_arguments(parser)
    parser.add_argument(
        "--within-error",
        action="store_true",
        help="the highest floor whose accuracy is within one standard error of the best (instead of the best)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _explore_arguments(parser: argparse.ArgumentParser) -> None:
    _stage_arguments(parser)
    for flag, key, meaning in (
        ("--max-episodes", "explore.max_episodes", "stop the exploration after N episodes over all its starts"),
        ("--max-cost", "explore.max_cost", "stop the exploration at so many US dollars of model calls"),
    ):
        parser.add_argument(
            flag,
            metavar="N",
            dest="overrides",
            action="append",
            type=f"{key}={{}}".format,
            help=meaning,
        )


def _build_arguments(parser: argparse.ArgumentParser) -> None:
    _stage_arguments(parser)
    parser.add_argument(
        "--explain", metavar="TASK", help="show one task: every arm, its rewards, and why each row was kept or dropped"
    )
    parser.add_argument("--export", type=Path, metavar="DIR", help="also write the dataset to a folder of its own")
    parser.add_argument(
        "--format", choices=("jsonl", "parquet"), help="of the exported files (default: parquet); only with --export"
    )


def _train_arguments(parser: argparse.ArgumentParser) -> None:
    _stage_arguments(parser)
    parser.add_argument("--only", choices=("lm", "heads"), help="train one of the two routers alone")
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument(
        "--parity",
        action="store_true",
        help="compare the decisions of adapter, merged and reloaded model instead of training",
    )
    actions.add_argument(
        "--compare",
        metavar="A.B=C",
        action="append",
        help="train variants from the same exploration and compare them (repeatable; A.B=C;D.E=F for several keys)",
    )


def _evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    _stage_arguments(parser)
    parser.add_argument(
        "--split",
        choices=("dev", "test"),
        default="dev",
        help="dev to work on (default); test once, for results that are written down",
    )
    parser.add_argument(
        "--policies",
        metavar="NAMES",
        help="standard (default), all (with ablations, and fresh runs of what replay cannot say), or names with commas",
    )


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="a run's folder, or its config file; several are compared"
    )
    _override_arguments(parser)
    _output_arguments(parser)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    show = actions.add_parser("show", help="print a config as it is resolved: file, overrides and defaults together")
    _config_arguments(show)
    schema = actions.add_parser("schema", help="print every key with its type, default and meaning")
    for sub in (show, schema):
        sub.add_argument("--json", action="store_true", help="print JSON (for schema: a JSON Schema)")


def _provider_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    listing = actions.add_parser("list", help="the installed providers, one line each")
    listing.set_defaults(names=[])
    listing.add_argument("--markdown", action="store_true", help="print a Markdown table, as docs/providers.md has it")
    describe = actions.add_parser("describe", help="what a provider stores, how it retrieves, and its gate")
    check = actions.add_parser("check", help="put providers through the conformance kit; exit code 1 where one fails")
    name = "a provider's name or dotted path package.module:Class"
    describe.add_argument("names", nargs="+", metavar="NAME", help=name)
    check.add_argument("names", nargs="*", metavar="NAME", help=name)
    check.add_argument("--all", action="store_true", help="check every installed provider")
    check.add_argument("--property", action="append", metavar="NAME", help="check this property alone (repeatable)")
    for sub in actions.choices.values():
        sub.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _bank_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    stats = actions.add_parser("stats", help="how many records each provider has in each namespace")
    show = actions.add_parser("show", help="records, or all of some record")
    history = actions.add_parser("history", help="all that became of a record, with the reasons")
    review = actions.add_parser("review", help="what waits for a decision, or a decision on it")
    verify = actions.add_parser(
        "verify", help="read all of it and name what is damaged; exit code 1 where something is"
    )
    export = actions.add_parser("export", help="write it as JSON Lines")
    take = actions.add_parser("import", help="take in what export wrote, all or nothing")
    forget = actions.add_parser("forget", help="remove records and everything made of them, for good")
    for sub in (stats, show, history, review, verify, export, take, forget):
        sub.add_argument("bank", metavar="BANK", type=Path, help="a bank file, or a run's folder")
        sub.add_argument("--json", action="store_true", help="print the result as one JSON object")
    for sub in (export, take):
        sub.add_argument("file", metavar="FILE", type=Path, help="the JSON Lines file")
    for sub in (stats, show, history, review, export, forget):
        sub.add_argument("--provider", metavar="NAME", help="this provider's records alone")
        sub.add_argument(
            "--namespace", metavar="T[/U[/P]]", help="this tenant, user or project, and what lies below it"
        )
    show.add_argument("--id", action="append", default=[], help="all of this record (repeatable)")
    show.add_argument("--kind", help="records of this kind")
    show.add_argument("--state", help="records in this state, e.g. archived")
    for sub in (show, review):
        sub.add_argument("--limit", type=_count, default=20, metavar="N", help="show at most N (20)")
    history.add_argument("record", metavar="ID", help="the record")
    review.add_argument("--accept", metavar="ID", help="let this record be retrieved")
    review.add_argument("--reject", metavar="ID", help="keep this record, and all that say the same, out")
    review.add_argument("--text", help="what the accepted record is to say instead")
    review.add_argument("--note", default="", help="why; kept in the record's history")
    review.add_argument("--encoder", metavar="NAME", help="encode an edited record with this encoder")
    take.add_argument("--encoder", metavar="NAME", help="encode anew with this encoder, where the file has another's")
    forget.add_argument("--task", metavar="ID", help="what comes from this task")
    forget.add_argument("--source", metavar="URL", help="what comes from runs that saw this page or tool")
    forget.add_argument("--text", help="what has this text in it")
    forget.add_argument("--older-than", metavar="AGE", help="what was stored longer ago, e.g. 12h, 30d, 2w")
    forget.add_argument("--cache", metavar="FILE", type=Path, help="the encoder's cache (default: beside the bank)")


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    _config_arguments(parser)
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="a file of finished runs, or a folder that holds some"
    )
    parser.add_argument(
        "--format", choices=RUN_FORMATS, default="auto", help="of the files (default: told from what is in them)"
    )
    parser.add_argument(
        "--outcomes", metavar="JSON", type=Path, help="which runs were correct: task ids with true or false"
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="also write the arms of the runs as the exploration that heads are trained on",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _bench_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    govmem = actions.add_parser("govmem", help="write policies on candidate memories of seven kinds (GovMem-Bench)")
    govmem.add_argument("--seeds", type=int, metavar="N", help="the first N of the frozen seeds (default: all)")
    govmem.add_argument(
        "--sweep", action="store_true", help="also AUPRC as the clustering gets worse (six times as long)"
    )
    govmem.add_argument(
        "--judge", type=Path, metavar="CONFIG", help="also a chat model: models.verifier of this config"
    )
    drift = actions.add_parser("drift", help="long streams with noisy verdicts into governed and other banks")
    drift.add_argument(
        "--noise", type=float, nargs="+", metavar="SHARE", help="shares of tasks told wrong (default: 0 0.1 0.2 0.3)"
    )
    drift.add_argument(
        "--wrong",
        choices=("verdicts", "signs"),
        default="verdicts",
        help="the verifier's verdicts, at their thresholds (default), or the signs that it reads and believes",
    )
    drift.add_argument("--variants", nargs="+", metavar="NAME", help="banks at every noise: main (default), all, names")
    drift.add_argument("--switches", nargs="+", metavar="NAME", help="further banks at the last noise: all, or names")
    drift.add_argument("--seeds", type=_positive, metavar="N", default=1, help="streams per bank (default: 1)")
    drift.add_argument("--fill", type=_count, metavar="N", default=200, help="warm-up tasks first (default: 200)")
    harm = actions.add_parser("harm", help="tasks with false memories, with the write gate in between, with safe ones")
    harm.add_argument(
        "--sources", type=_positive, metavar="N", default=120, help="runs that memories are made of (default: 120)"
    )
    harm.add_argument(
        "--copies", type=_positive, metavar="N", default=5, help="agents that tell each of them (default: 5)"
    )
    for action, tasks in ((drift, 300), (harm, 150)):
        action.add_argument("--tasks", type=_positive, metavar="N", default=tasks, help=f"measured (default: {tasks})")
        action.add_argument("--split", choices=("explore", "dev", "test"), default="explore", help="their split")
        action.add_argument("--runs-dir", metavar="DIR", type=Path, default=Path("runs"), help="where it is kept")
    for action in (govmem, drift, harm):
        action.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
        action.add_argument("--json", action="store_true", help="print the result as one JSON object")
    _retraining_arguments(actions)


def _retraining_arguments(actions: argparse._SubParsersAction[_Parser]) -> None:
    """The benchmarks that train a finished run's routers again."""
    ablations = actions.add_parser("ablations", help="routers trained again with one thing changed, side by side")
    ablations.set_defaults(handler=_do_bench_ablations)
    ablations.add_argument(
        "--changes",
        metavar="NAMES",
        help="with commas, e.g. no_probe,begin_by_judge (default: all that the run allows)",
    )
    ablations.add_argument(
        "--online", action="store_true", help="with --lm, also changes of In and End, by fresh runs of the agent"
    )
    left_out = actions.add_parser("left-out", help="each provider unseen in training and added for the test")
    left_out.set_defaults(handler=_do_bench_left_out)
    left_out.add_argument("--providers", metavar="NAMES", default="all", help="with commas (default: each in turn)")
    curve = actions.add_parser("curve", help="routers trained on growing shares of the exploration's tasks")
    curve.set_defaults(handler=_do_bench_curve)
    curve.add_argument(
        "--shares", metavar="NUMBERS", help="with commas, above 0 and up to 1 (default: 0.125,0.25,0.5,1)"
    )
    for sub, runs in ((ablations, "+"), (left_out, 1), (curve, 1)):
        several = "; several are taken together" if runs == "+" else ""
        sub.add_argument(
            "runs", metavar="RUN", nargs=runs, type=Path, help=f"a finished run's folder, or its config file{several}"
        )
        _override_arguments(sub)
        sub.add_argument("--split", choices=("dev", "test"), default="dev", help="which tasks to compare on")
        sub.add_argument("--lm", action="store_true", help="also the language model: minutes for every training")
        sub.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _positive(text: str) -> int:
    """A whole number from 1 up."""
    if not (count := _count(text)):
        raise argparse.ArgumentTypeError("0 is too few")
    return count


def _count(text: str) -> int:
    """A whole number from 0 up."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 up")
    return int(text)


def _days(text: str) -> float:
    """A number of days from 0 up."""
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 0 up")
    return days


def _cache_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    stats = actions.add_parser("stats", help="kept answers, how often they were given, what all calls cost")
    prune = actions.add_parser("prune", help="delete kept answers; what was spent stays counted")
    prune.add_argument("--unused-days", type=_days, metavar="N", help="answers neither made nor given for N days")
    prune.add_argument("--model", help="answers of this model")
    prune.add_argument("--purpose", choices=PURPOSES, metavar="PURPOSE", help=f"answers to it: {', '.join(PURPOSES)}")
    prune.add_argument("--never-hit", action="store_true", help="answers that were never given again")
    prune.add_argument("--all", action="store_true", help="all answers")
    for sub in (stats, prune):
        _config_arguments(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON object")


def _mcp_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="CONFIG", type=Path, nargs="?", help="a finished run's config file; none with --through"
    )
    parser.add_argument(
        "--through",
        metavar="URL",
        help="a `memroute serve` that runs, whose memories are served; its key is read from MEMROUTE_SERVE_KEY",
    )
    _override_arguments(parser)
    parser.add_argument("--router", metavar="NAME", help="who decides: heads, trained, average, or any policy's name")
    parser.add_argument(
        "--namespace",
        metavar="NS",
        help="whose memories, as T[/U[/P]] (default: default; with --through the key's own)",
    )


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    _config_arguments(parser)
    parser.add_argument(
        "--host", help="the address to listen on (instead of the config's); beyond loopback keys are needed"
    )
    parser.add_argument(
        "--port", metavar="N", help="the port to listen on (instead of the config's); 0 takes a free one"
    )
    parser.add_argument("--router", metavar="NAME", help="who decides: heads, trained, average, or any policy's name")
    parser.add_argument(
        "--new-key", metavar="NAME", help="make a key, print it once, and add its hash to serve.keys_file"
    )
    parser.add_argument(
        "--namespace", default="default", metavar="NS", help="of --new-key; * is all (default: default)"
    )
    parser.add_argument("--rights", default="read,write", metavar="R,R", help="of --new-key: read, write, admin")


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="CONFIG", type=Path, nargs="?", help="also ask the endpoints that this config names"
    )
    parser.add_argument(
        "--set", metavar="A.B=C", action="append", default=[], dest="overrides", help="set one key of CONFIG"
    )
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", default=Path("runs"), help="where runs live")
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")


@dataclass(frozen=True)
class Stage:
    """One stage of a run: what it does in a few words, and the work itself, which continues where it stopped."""

    name: str
    does: str
    work: Callable[[Run, argparse.Namespace], object]


def _warmup(run: Run, args: argparse.Namespace) -> object:
    from synth.warmup import warm_up

    return asyncio.run(warm_up(run))


def _explore(run: Run, args: argparse.Namespace) -> object:
    from synth.explore import explore

    return asyncio.run(explore(run))


def _score(run: Run, args: argparse.Namespace) -> object:
    import json

    from synth.rewards import score

    asyncio.run(score(run))
    return json.loads(run.rewards.read_text(encoding="utf-8"))


def _build(run: Run, args: argparse.Namespace) -> object:
    from synth.dataset import build, load_card

    build(run)
    if getattr(args, "export", None) is not None:
        from synth.export import export_dataset

        export_dataset(run, args.export, args.format or "parquet")
        print(f"build: exported to {args.export}", file=sys.stderr)
    if getattr(args, "explain", None) is not None:
        from synth.explain import explain

        return explain(run, args.explain)
    return load_card(run)


def _train(run: Run, args: argparse.Namespace) -> object:
    if getattr(args, "parity", False):
        from train.parity import check_parity

        return check_parity(run)
    if getattr(args, "compare", None):
        from train.variants import compare_variants

        return compare_variants(run, args.compare)
    only = getattr(args, "only", None)
    if only != "lm":
        from train.heads import train_heads

        train_heads(run)
    if only != "heads":
        from train.sft import train

        train(run)
    return {"heads": run.heads, "adapter": run.adapter, "merged": run.merged}


def _evaluate(run: Run, args: argparse.Namespace) -> Evaluation:
    from evaluation.replay import evaluate

    return asyncio.run(evaluate(run, getattr(args, "split", "dev")))


def _report(run: Run, args: argparse.Namespace) -> Path:
    from evaluation.report.html import write_report

    return write_report(run)


STAGES = (
    Stage("warmup", "fill the memories from a stream of other tasks", _warmup),
    Stage("explore", "force every provider on every task", _explore),
    Stage("score", "reward each decision", _score),
    Stage("build", "write the rows that routers are trained on", _build),
    Stage("train", "train the routers", _train),
    Stage("evaluate", "compare all policies", _evaluate),
    Stage("report", "write the report", _report),
)


def _do_stages(args: argparse.Namespace) -> int:
    """Run the stage that the verb names, or all of them for `run`."""
    from synth.load_config import load_config
    from synth.plan import plan

    if getattr(args, "format", None) is not None and args.export is None:
        return _complain('--format is of the files that --export writes: give both; see "memroute build --help".', 2)
    overrides = [*args.overrides, *_policy_override(getattr(args, "policies", None))]
    config = load_config(args.config, overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    stages = tuple(stage for stage in STAGES if args.verb in (stage.name, "run"))
    planned = plan(config, [stage.name for stage in stages], getattr(args, "split", "dev"))
    if args.dry_run:
        return _show_training_plan(planned, config, args) if args.verb == "train" else _show_plan(planned, args)
    for sentence in planned.missing:
        return _complain(sentence, 2)
    from synth.runs import Run

    results: dict[str, object] = {}
    started = time.monotonic()
    # Stages may print; with --json, standard output belongs to the result alone.
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext(), Run.open(config) as run:
        for number, stage in enumerate(stages, start=1):
            began = time.monotonic()
            title = f"[{number}/{len(stages)}] {stage.name}"
            _heading(f"{title}: {stage.does}")
            results[stage.name] = stage.work(run, args)
            _give_back_memory()
            _heading(f"{title}: done in {_clock(time.monotonic() - began)}")
    _show_results(results, run.root, args, time.monotonic() - started)
    return 0


def _give_back_memory() -> None:
    """Return what a stage freed to the system: glibc keeps gigabytes of a training, and evaluation comes on top."""
    import ctypes
    import gc

    gc.collect()  # trainers hold themselves in cycles
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _policy_override(policies: str | None) -> list[str]:
    """`--policies` as a `--set`."""
    if policies is None:
        return []
    return [f"evaluate.policies={policies if policies in ('standard', 'all') else f'[{policies}]'}"]


def _do_report(args: argparse.Namespace) -> int:
    configs = [_config_of(run, args) for run in args.runs]
    if args.dry_run:
        from synth.plan import plan

        return max(_show_plan(plan(config, ["report"], "dev"), args) for config in configs)
    from evaluation.report.runs import report_runs

    written = report_runs(configs)
    if args.json:
        first = written.reports[0]
        _print_json({"run": first.run, "report": first.report, **written.model_dump()})
        return 0
    for one in written.reports:
        print(f"Report: {one.report}")
    if written.comparison is not None:
        print(f"Comparison: {written.comparison}")
    return 0


def _do_import(args: argparse.Namespace) -> int:
    from synth.importers.read import read_runs
    from synth.importers.take import take_in
    from synth.load_config import load_config
    from synth.runs import Run

    config = load_config(args.config, args.overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    finished = read_runs(args.files, args.format, args.outcomes)
    with Run.open(config) as run:
        taken = asyncio.run(take_in(run, finished, table=args.table))
    _print_json(taken) if args.json else print(taken.lines())
    return 0


def _config_of(run: Path, args: argparse.Namespace) -> RunConfig:
    """The config of a run that is named by its folder or by its config file."""
    from providers.errors import ConfigError
    from synth.load_config import load_config

    if not run.is_dir():
        return load_config(run, args.overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    if not (run / "config.yaml").exists():
        raise ConfigError(f"{run} is no run's folder: it has no config.yaml")
    folder = run.resolve()
    return load_config(folder / "config.yaml", args.overrides, seed=args.seed, name=folder.name, runs_dir=folder.parent)


def _heading(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _print_json(value: object) -> None:
    import json

    from pydantic import BaseModel

    def plain(part: object) -> object:
        return part.model_dump(mode="json") if isinstance(part, BaseModel) else str(part)

    print(json.dumps(value, indent=2, ensure_ascii=False, default=plain))


def _show_plan(plan: Plan, args: argparse.Namespace) -> int:
    if args.json:
        _print_json(plan)
        return 0
    from synth.plan import describe

    print(describe(plan))
    return 0


def _show_training_plan(planned: Plan, config: RunConfig, args: argparse.Namespace) -> int:
    """The plan and, where the dataset stands, the checks before a training; exit code 1 where one fails."""
    if not (config.runs_dir / config.name / "dataset" / "train.jsonl").exists():
        _heading("no dataset yet: what would be trained is checked once `memroute build` has run")
        return _show_plan(planned, args)
    from synth.runs import Run
    from train.guards import guard_lines
    from train.sft import check_run

    with Run.open(config) as run:
        guards = check_run(run)
    if args.json:
        _print_json({**planned.model_dump(mode="json"), "guards": guards})
    else:
        _show_plan(planned, args)
        print("\n".join(guard_lines(guards)))
    return 0 if guards.passed else 1


def _show_results(results: dict[str, object], run_root: Path, args: argparse.Namespace, seconds: float) -> None:
    """Print what the stages gave: the evaluation's table and the report's path for people, one object for programs."""
    evaluation = results.get("evaluate")
    report = results.get("report")
    if args.json:
        if evaluation is not None:
            _print_json(evaluation)
        else:
            _print_json({"run": str(run_root), "seconds": round(seconds, 1), **results})
        return
    if evaluation is not None:
        from evaluation.report.terminal import print_table

        print_table(cast("Evaluation", evaluation))
    table = getattr(results.get("train"), "lines", None)
    if table is not None:
        print("\n".join(table()))
    if getattr(args, "explain", None) is not None:
        from synth.explain import Explanation, explanation_lines

        print("\n".join(explanation_lines(cast(Explanation, results["build"]))))
    if report is not None:
        print(f"Report: {report}")


def _do_floors(args: argparse.Namespace) -> int:
    from synth.floors import floor_lines, tune_floors
    from synth.load_config import load_config
    from synth.runs import Run

    config = load_config(args.config, args.overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    with Run.open(config) as run:
        report = asyncio.run(tune_floors(run, "within_error" if args.within_error else "best"))
    if args.json:
        _print_json(report)
    else:
        print("\n".join(floor_lines(report)))
    return 0


def _do_config(args: argparse.Namespace) -> int:
    if args.action == "schema":
        return _show_schema(args)
    from synth.load_config import load_config
    from synth.runs import dump_config

    config = load_config(args.config, args.overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    if args.json:
        _print_json(config)
    else:
        print(dump_config(config), end="")
    return 0


def _show_schema(args: argparse.Namespace) -> int:
    from synth.config import RunConfig
    from synth.load_config import config_keys

    if args.json:
        _print_json(RunConfig.model_json_schema())
        return 0
    for key in config_keys():
        print(
            f"{key.name} ({key.type}; default {key.default})"
            if key.default != "required"
            else f"{key.name} ({key.type}; required)"
        )
        if key.doc:
            print(f"    {key.doc}")
    return 0


def _do_providers(args: argparse.Namespace) -> int:
    from providers.cards import card_line, card_page, cards_table
    from providers.registry import provider_cards, provider_paths

    if args.action == "check":
        return _check_providers(args)
    cards = provider_cards(args.names or sorted(provider_paths()))
    if args.json:
        _print_json({"providers": [card.model_dump() for card in cards]})
    elif args.action == "describe":
        print("\n\n".join(card_page(card) for card in cards))
    else:
        print(cards_table(cards).rstrip() if args.markdown else "\n".join(card_line(card) for card in cards))
    return 0


def _check_providers(args: argparse.Namespace) -> int:
    from providers.conformance import PROPERTIES, check_providers, print_checks
    from providers.registry import provider_paths

    if bool(args.names) == args.all:
        return _complain('name the providers to check, or give --all; see "memroute providers check --help".', 2)
    checks = check_providers(args.names or sorted(provider_paths()), args.property or tuple(PROPERTIES))
    seen = list(checks) if args.json else print_checks(checks)
    passed = all(check.passed for check in seen)
    if args.json:
        _print_json({"passed": passed, "checks": [check.model_dump() for check in seen]})
    return 0 if passed else 1


def _do_bank(args: argparse.Namespace) -> int:
    from providers.bank_verbs import act

    done = act(args.action, vars(args))
    if args.json:
        _print_json(done.result)
    else:
        print("\n".join(done.lines))
    return 0 if done.ok else 1


def _do_bench(args: argparse.Namespace) -> int:
    from evaluation.benches import bench_of
    from evaluation.text_tables import markdown, print_tables

    done = asyncio.run(bench_of(args.action, vars(args)))
    if args.json:
        _print_json(done.result)
    elif args.markdown:
        print(markdown(done.tables))
    else:
        print_tables(done.tables)
    return 0


def _do_serve(args: argparse.Namespace) -> int:
    from serve.command import make_key, serve
    from synth.load_config import load_config

    chosen = {"serve.router": args.router, "serve.host": args.host, "serve.port": args.port}
    overrides = [*args.overrides, *(f"{key}={value}" for key, value in chosen.items() if value is not None)]
    config = load_config(args.config, overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    if args.new_key is not None:
        print(make_key(config, args.new_key, args.namespace, args.rights.split(",")))
        return 0
    serve(config)
    return 0


def _do_mcp(args: argparse.Namespace) -> int:
    from providers.errors import ConfigError
    from serve.mcp import serve_mcp, serve_mcp_through
    from synth.load_config import load_config

    if (args.config is None) == (args.through is None):
        raise ConfigError("Name a config, or a service that runs with --through, and not both.")
    if args.through is not None:
        if args.router is not None or args.overrides:
            raise ConfigError("--through takes no --router and no --set: the service that runs has its own settings.")
        asyncio.run(serve_mcp_through(args.through, args.namespace, os.environ.get("MEMROUTE_SERVE_KEY")))
        return 0
    overrides = [*args.overrides, *([f"serve.router={args.router}"] if args.router is not None else [])]
    config = load_config(args.config, overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    asyncio.run(serve_mcp(config, args.namespace or "default"))
    return 0


def _do_bench_ablations(args: argparse.Namespace) -> int:
    from train.ablations import Request, bench_ablations

    changes = None if args.changes is None else tuple(name.strip() for name in args.changes.split(","))
    request = Request(changes=changes, split=args.split, language_model=args.lm, online=args.online)
    return _show_bench(bench_ablations([_config_of(run, args) for run in args.runs], request), args)


def _do_bench_left_out(args: argparse.Namespace) -> int:
    from evaluation.retrained import BOTH, HEADS
    from synth.runs import Run
    from train.left_out import leave_out

    with Run.open(_config_of(args.runs[0], args)) as run:
        table = leave_out(run, args.providers, args.split, BOTH if args.lm else HEADS)
    return _show_bench(table, args)


def _do_bench_curve(args: argparse.Namespace) -> int:
    from evaluation.retrained import BOTH, HEADS
    from synth.runs import Run
    from train.curve import SHARES, learning_curve

    try:
        shares = SHARES if args.shares is None else tuple(float(part) for part in args.shares.split(","))
    except ValueError:
        return _complain(f'{args.shares} is no list of numbers with commas; see "memroute bench curve --help".', 2)
    with Run.open(_config_of(args.runs[0], args)) as run:
        curve = learning_curve(run, args.split, shares, BOTH if args.lm else HEADS)
    return _show_bench(curve, args)


def _show_bench(table: Ablations | LeftOutTable | LearningCurve, args: argparse.Namespace) -> int:
    if args.json:
        _print_json(table)
    else:
        print("\n".join(table.lines()))
    return 0


def _do_cache(args: argparse.Namespace) -> int:
    from lm.cache_report import cache_stats, prune_cache, stats_lines
    from synth.load_config import load_config

    config = load_config(args.config, args.overrides, seed=args.seed, name=args.name, runs_dir=args.runs_dir)
    path = config.runs_dir / config.name / "cache.sqlite"
    if args.action == "stats":
        stats = cache_stats(path)
        if args.json:
            _print_json(stats)
        else:
            print("\n".join(stats_lines(stats)))
        return 0
    chosen = {name: getattr(args, name) for name in ("unused_days", "model", "purpose", "never_hit")}
    if args.all == any(value not in (None, False) for value in chosen.values()):
        return _complain('say which answers to delete, or --all; see "memroute cache prune --help".', 2)
    gone = prune_cache(path, **chosen)
    if args.json:
        _print_json({"path": str(path), "deleted": gone})
    else:
        print(f"{path}: {gone:,} answers deleted.")
    return 0


def _do_doctor(args: argparse.Namespace) -> int:
    findings = _room_findings()
    if not any(finding["status"] == "failed" for finding in findings):
        from synth.doctor import examine

        findings += [finding.model_dump() for finding in (*examine(args.runs_dir), *_endpoint_findings(args))]
    failed = sum(finding["status"] == "failed" for finding in findings)
    if args.json:
        _print_json({"ok": failed == 0, "checks": findings})
        return 1 if failed else 0
    for finding in findings:
        print(f"{finding['status']:<8} {finding['check']:<12} {finding['detail']}")
        if finding["mend"]:
            print(f"{'':<21} -> {finding['mend']}")
    print(f"{failed} problem{'s' * (failed != 1)} found." if failed else "Everything that memroute needs is here.")
    return 1 if failed else 0


def _endpoint_findings(args: argparse.Namespace) -> Sequence[Finding]:
    """What the endpoints of the config that was given answer; nothing without one."""
    if args.config is None:
        return ()
    from synth.endpoints import examine_endpoints
    from synth.load_config import load_config

    return asyncio.run(examine_endpoints(load_config(args.config, args.overrides).models))


def _room_findings() -> list[dict[str, str]]:
    """Rooms that are hidden now, and folders here that would hide them under `python -m memroute`."""
    hidden = [{"check": "rooms", "status": "failed", "detail": sentence, "mend": ""} for sentence in shadowed_rooms()]
    here = Path.cwd().resolve()
    risky = [room for room in ROOMS if here != ROOT and ((here / room).is_dir() or (here / f"{room}.py").is_file())]
    if hidden or risky:
        mend = "start `memroute` itself, not `python -m memroute`, from this folder"
        names = ", ".join(f'"{room}"' for room in risky)
        warning = {"check": "rooms", "status": "warning", "detail": f"{here} has its own {names}", "mend": mend}
        return hidden or [warning]
    return [{"check": "rooms", "status": "ok", "detail": f"all loaded from {ROOT}", "mend": ""}]


VERBS = (
    Verb(
        "run",
        "the main job: all stages in order",
        "Warms up, explores, scores, builds, trains, evaluates and reports, each stage as the verb of its name does. "
        "Stopped or killed, it continues where it was when the same command is given again.",
        "the table of policies on the terminal, and everything in runs/<name>/ (report.html, evaluation/, adapter/).",
        "memroute run configs/embedded.yaml --set suite.explore=80 --name small",
        _do_stages,
        _explore_arguments,
    ),
    Verb(
        "warmup",
        "fill the memories from a stream of other tasks",
        "Runs tasks that are used for nothing else, without memory and under each provider, and offers every finished "
        "run to every provider: empty memories would teach a router nothing.",
        "runs/<name>/bank.sqlite (memories) and run.sqlite (episodes).",
        "memroute warmup configs/embedded.yaml",
        _do_stages,
        _stage_arguments,
    ),
    Verb(
        "explore",
        "force every provider on every task",
        "Runs each exploration task under every arm (no memory, each provider; with and without working memory) over "
        "memories that are frozen within a wave and grow between waves.",
        "runs/<name>/run.sqlite and tables/explore.json (who solved what).",
        "memroute explore configs/embedded.yaml --set explore.waves=2",
        _do_stages,
        _explore_arguments,
    ),
    Verb(
        "score",
        "reward each decision",
        "Turns the facts of exploration into rewards: correctness, the judge's reading, and later reuse of what was "
        "stored. Runs no episode, so it can be repeated with another judge, other weights or another definition of "
        "reuse. Prints how each dimension is distributed and whether it agrees with correctness.",
        "runs/<name>/rewards.json.",
        "memroute score configs/embedded.yaml --set rewards.end=uplift",
        _do_stages,
        _stage_arguments,
    ),
    Verb(
        "build",
        "write the rows that routers are trained on",
        "Keeps the decisions that tell providers apart and writes them as prompts with targets, split by task.",
        "runs/<name>/dataset/, a folder that Hugging Face datasets loads: train.jsonl, validation.jsonl, README.md and "
        "card.json with counts, reasons and the dataset's hash.",
        "memroute build configs/embedded.yaml --export shared/ --format parquet",
        _do_stages,
        _build_arguments,
    ),
    Verb(
        "train",
        "train both routers",
        "Trains the heads (seconds) and the language model with LoRA (minutes); a stopped training continues from its "
        "last checkpoint.",
        "runs/<name>/heads.json, adapter/ and merged/; losses in metrics.jsonl.",
        "memroute train configs/embedded.yaml --only heads",
        _do_stages,
        _train_arguments,
    ),
    Verb(
        "evaluate",
        "compare all policies on dev or test",
        "Runs every arm on the split's tasks over the final memories, then replays every policy on the outcomes: "
        "no memory, random, each provider alone, simple rules, untrained and trained routers, and the oracle. "
        "With --policies all, policies that change what later tasks see get fresh runs over a bank of their own.",
        "a table on the terminal, and runs/<name>/evaluation/<split>.json.",
        "memroute evaluate configs/embedded.yaml --json",
        _do_stages,
        _evaluate_arguments,
    ),
    Verb(
        "report",
        "write the report, or compare runs",
        "Draws what stands in a run's folder as one self-contained page, and says which stages have not been run. "
        "Of two runs or more it also writes a page that shows them side by side. Every table is written as CSV too.",
        "runs/<name>/report.html, evaluation/csv/, and comparison.html in the first run's folder.",
        "memroute report runs/embedded runs/other",
        _do_report,
        _report_arguments,
    ),
    Verb(
        "serve",
        "serve the router and its memories to an agent over HTTP",
        "Serves a finished run: sessions that begin with retrieved memory, show working memory between steps, and end "
        "with the run stored where the router decides; or single decisions for agents with memories of their own. The "
        "run's own bank stays as it was evaluated: the server works on a copy.",
        "answers over HTTP until it is stopped; runs/<name>/serve.bank.sqlite (memories) and serve.sqlite (sessions).",
        "memroute serve configs/embedded.yaml --port 8080",
        _do_serve,
        _serve_arguments,
    ),
    Verb(
        "mcp",
        "serve the memories as tools of the Model Context Protocol",
        "Serves a finished run over standard input and output, as clients of the Model Context Protocol start it: "
        "tools to retrieve what earlier tasks left, to store a finished one, and to explain what was decided. One "
        "process works in a run at a time: where several clients share its memories, `memroute serve` runs and each "
        "client goes through it. It needs the extra memroute[mcp]; as with serve, the run's own bank stays as it was "
        "evaluated.",
        "answers on standard output; runs/<name>/serve.bank.sqlite (memories) and serve.sqlite (sessions).",
        "memroute mcp configs/embedded.yaml --namespace ann",
        _do_mcp,
        _mcp_arguments,
    ),
    Verb(
        "floors",
        "tune relevance floors on dev",
        "Says for each provider what leaving out items below a cosine to the question would do to its accuracy on dev, "
        "chooses a floor by that accuracy alone, and how much of the exploration's grid would then be shared. Reads "
        "what was run without floors: where nothing reaches a floor, the arm is the one without long-term memory.",
        "printed, with the line `relevance_floors` for a config, whose run then needs a --name of its own.",
        "memroute floors configs/embedded.yaml --json",
        _do_floors,
        _floors_arguments,
    ),
    Verb(
        "config",
        "show a config or explain its keys",
        "Shows a config with all defaults and overrides in place, or lists every key with its type, default "
        "and meaning.",
        "printed.",
        "memroute config show configs/embedded.yaml --set seed=1",
        _do_config,
        _show_arguments,
    ),
    Verb(
        "providers",
        "list, describe or check the memory providers",
        "Lists the installed providers, those of other packages included, describes some of them, or checks that they "
        "keep to what every provider must: stores that survive crashes, pure previews, gates, namespaces and so on.",
        "printed; check ends with exit code 1 where a provider fails.",
        "memroute providers check awm my_package.memory:MyProvider",
        _do_providers,
        _provider_arguments,
    ),
    Verb(
        "bank",
        "look into a bank of memories, check it, move it, forget",
        "Counts or shows what a bank holds, tells a record's life, lists what waits for review and takes the decision, "
        "verifies every row, exports and imports it as JSON Lines, or forgets what comes from a task, a source, a "
        "text, a time or a namespace, with everything made of it.",
        "printed; verify ends with exit code 1 where something is damaged.",
        "memroute bank forget runs/embedded --source http://example.org/page --json",
        _do_bank,
        _bank_arguments,
    ),
    Verb(
        "import",
        "take finished runs of other agents into the memories",
        "Reads runs as OpenAI chat messages (JSON Lines), SWE-agent .traj files or OpenHands event logs and offers "
        "each to every memory of a new run, whose gates want to know which were correct. With --table, runs that say "
        "which memory they had become the exploration, so that heads can be trained without running an agent.",
        "runs/<name>/bank.sqlite; with --table also tables/explore.json.",
        "memroute import configs/embedded.yaml runs.jsonl --name mine --table",
        _do_import,
        _import_arguments,
    ),
    Verb(
        "bench",
        "measure what governing memories is worth, and each part of a training",
        "govmem makes candidate memories of known kinds (independent, copied, correlated, stale, adversarial, out of "
        "scope), lets every write policy decide on them, and says what was promoted wrongly, found, and left to a "
        "person. drift runs long streams of tasks whose verdicts are wrong at times into governed, filtered and "
        "ungoverned banks. harm runs the same tasks with false memories, with the write gate in between and with safe "
        "ones. ablations, left-out and curve train a finished run's routers again, with one thing changed, without a "
        "provider, or on fewer tasks, and compare them by task on the outcomes that its evaluation has.",
        "printed; shares are fractions of 1. What drift and harm ran is kept in runs/bench-drift and runs/bench-harm; "
        "the last three write runs/<name>/evaluation/ (JSON, and CSV in csv/<split>/).",
        "memroute bench govmem --seeds 2 --json",
        _do_bench,
        _bench_arguments,
    ),
    Verb(
        "cache",
        "show or prune the kept answers of chat models",
        "Shows how many answers of chat models a run keeps, how often they were given instead of a call, what all "
        "calls cost by purpose, and why others were asked for; or deletes some of them.",
        "printed.",
        "memroute cache stats configs/factbook-llm.yaml",
        _do_cache,
        _cache_arguments,
    ),
    Verb(
        "doctor",
        "check this machine, this folder, and a config's endpoints",
        "Checks the interpreter, torch, packages, model files, disk, memory, loopback, and folders that hide "
        "memroute's own. With a config it also asks each chat endpoint a few short questions: whether it answers, and "
        "follows JSON schemas and tool choice.",
        "printed; exit code 1 where something must be mended.",
        "memroute doctor configs/factbook-llm.yaml",
        _do_doctor,
        _doctor_arguments,
    ),
)


if __name__ == "__main__":
    sys.exit(main())

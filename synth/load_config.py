"""A run's config from its YAML file and `--set` overrides; every error names the key and the nearest right one."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from providers.errors import ConfigError
from synth.config import RunConfig

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class ConfigKey:
    """One key that a config may have, dotted; `default` is as YAML spells it, or `required`."""

    name: str
    type: str
    default: str
    doc: str


def load_config(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    seed: int | None = None,
    name: str | None = None,
    runs_dir: Path | None = None,
) -> RunConfig:
    """Read `path`, apply `overrides` ("a.b=c", c in YAML) in order, then the keyword values, and validate.

    Raises ConfigError for a missing or unreadable file, an unknown key, a wrong type or a name that is no folder name.
    """
    values = _read(path)
    for override in overrides:
        _apply(values, override)
    named = {"seed": seed, "name": name, "runs_dir": None if runs_dir is None else str(runs_dir)}
    values.update({key: value for key, value in named.items() if value is not None})
    config = validate(values, source=str(path))
    if not _RUN_NAME.fullmatch(config.name):
        raise ConfigError(
            f'name: "{config.name}" cannot name a run\'s folder; use letters, digits, ".", "_" and "-", '
            "starting with a letter or digit."
        )
    return config


def validate(values: dict[str, Any], *, source: str) -> RunConfig:
    """Make a `RunConfig` of plain values; `source` says in errors where they come from."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {render_errors(error)}") from error


def render_errors(error: ValidationError) -> str:
    """All problems of a config as `section.key: what is wrong (nearest: ...)`, joined by semicolons."""
    problems: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False):
        key, message = _problem(detail["type"], detail["loc"], detail["msg"], detail.get("input"))
        messages = problems.setdefault(key, [])
        if message not in messages:
            messages.append(message)
    return "; ".join(f"{key}: {' or '.join(messages)}" for key, messages in problems.items())


def config_keys() -> tuple[ConfigKey, ...]:
    """Every key of the schema in the order of the file, sections flattened."""
    return tuple(_keys_of(RunConfig, ""))


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML in which a key that is given twice is an error instead of a silent overwrite."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                mark = key_node.start_mark
                raise yaml.MarkedYAMLError(problem=f'the key "{key}" is given twice', problem_mark=mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"There is no config file {path}{_nearest_file(path)}.")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text, so it cannot be a config.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): mend its permissions, or copy it.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML{_yaml_problem(error)}.") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f'{path} must hold "key: value" lines; "memroute config schema" lists the keys.')
    return values


def _nearest_file(path: Path) -> str:
    candidates = [path.parent, Path("configs")]
    names = {str(p) for folder in candidates if folder.is_dir() for p in folder.glob("*.y*ml")}
    near = difflib.get_close_matches(str(path), sorted(names), n=1, cutoff=0.5)
    if near:
        return f" (nearest: {near[0]})"
    return f" (there are: {', '.join(sorted(names))})" if names else ""


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f", line {error.problem_mark.line + 1}: {error.problem}"
    return f": {error}"


def _apply(values: dict[str, Any], override: str) -> None:
    """Set one `a.b=c` in the nested `values`."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f'--set wants "section.key=value", not "{override}".')
    try:
        value = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f'--set {key}: "{text}" is not a YAML value{_yaml_problem(error)}.') from error
    section = values
    for depth, part in enumerate(parts[:-1], start=1):
        inner = section.get(part)
        if inner is None:
            inner = section[part] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {'.'.join(parts[:depth])} is a value, not a section.")
        section = inner
    section[parts[-1]] = value


def _problem(kind: str, loc: tuple[int | str, ...], message: str, value: Any) -> tuple[str, str]:
    """The dotted key that an error belongs to, and what is wrong with it in words."""
    keys = {key.name for key in config_keys()}
    known = keys | {name.rsplit(".", 1)[0] for name in keys if "." in name}
    prefixes = [".".join(map(str, loc[:length])) for length in range(len(loc), 0, -1)]
    if kind == "extra_forbidden":
        return prefixes[0], f"there is no such key{_nearest_key(prefixes[0], known)}"
    key = next((prefix for prefix in prefixes if prefix in known), prefixes[0])
    if kind == "missing":
        return key, "is required"
    if kind in {"model_type", "model_attributes_type"}:
        return key, 'must be a section of "key: value" lines'
    if kind in {"tuple_type", "list_type"}:
        return key, f"must be a list such as [a, b], not {value!r}"
    if kind in {"base_url", "key_env"}:
        return key, message  # the value may be a key: it is not shown
    return key, f"{message[0].lower()}{message[1:]}, not {value!r}"


def _nearest_key(key: str, known: set[str]) -> str:
    """The key whose last name is spelt most alike: in the same section, else anywhere."""
    section, _, leaf = key.rpartition(".")
    leaves: dict[str, list[str]] = {}
    for name in sorted(known):
        leaves.setdefault(name.rpartition(".")[2], []).append(name)
    siblings = [last for last, names in leaves.items() if any(n.rpartition(".")[0] == section for n in names)]
    near = (
        ([leaf] if leaf in leaves else [])
        or difflib.get_close_matches(leaf, siblings, n=1)
        or difflib.get_close_matches(leaf, leaves, n=1)
    )
    if not near:
        return ' ("memroute config schema" lists all)'
    return f" (nearest: {difflib.get_close_matches(key, leaves[near[0]], n=1, cutoff=0.0)[0]})"


def _keys_of(section: type[BaseModel], prefix: str) -> list[ConfigKey]:
    keys: list[ConfigKey] = []
    for name, field in section.model_fields.items():
        inner = _section_of(field.annotation)
        if inner is not None:
            if not field.is_required() and field.get_default(call_default_factory=True) is None:
                doc = " ".join((field.description or "").split())
                keys.append(ConfigKey(f"{prefix}{name}", "section or null", "null", doc))
            keys.extend(_keys_of(inner, f"{prefix}{name}."))
            continue
        default = "required" if field.is_required() else _as_flow_yaml(field.get_default(call_default_factory=True))
        keys.append(
            ConfigKey(f"{prefix}{name}", _type_words(field), default, " ".join((field.description or "").split()))
        )
    return keys


def _section_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _type_words(field: FieldInfo) -> str:
    limits = [
        f"{sign} {getattr(bound, attribute)}"
        for bound in field.metadata
        for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if getattr(bound, attribute, None) is not None
    ]
    return ", ".join([_annotation_words(field.annotation), *limits])


def _annotation_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(choice) for choice in inner)
    if origin in (Union, types.UnionType):
        return " | ".join(_annotation_words(choice) for choice in inner)
    if origin is tuple:
        return f"list of {_annotation_words(inner[0])}"
    if origin is dict:
        return "section of its own keys"
    words = {type(None): "null", str: "text", Path: "path", float: "number"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _as_flow_yaml(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")

"""What a run did, freed of its detours, read from the steps that any agent leaves behind."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from providers import page_text
from providers.types import Step, Trajectory

READ = re.compile(r'[Rr]ead "([^"]+)" on "([^"]+)"')
_LISTED = re.compile(r'among the names under "([^"]+)"')
ENDING = re.compile(r"[Aa]nswer with ([^.]*)")


@dataclass
class RunShape:
    """What a run did, freed of detours: the pages that were read from and how the answer came from them."""

    question: str
    searches: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    """Titles in order, detours included."""
    reads: list[tuple[str, str]] = field(default_factory=list)
    """(label, title) in order."""
    listing: str = ""
    """The label or title whose names were looped over."""
    ending: str = ""
    """How the answer was formed; empty where it was a guess, which teaches nothing."""
    sites: dict[str, str] = field(default_factory=dict)
    """Title -> site it was read on."""
    updated: dict[str, str] = field(default_factory=dict)
    contested: set[str] = field(default_factory=set)
    """Titles that a search offered on more than one site."""
    skill: str = ""
    actions: list[str] = field(default_factory=list)
    """What was done in a world that lists what can be done, in order, without what it refused."""

    @property
    def tells(self) -> bool:
        """Whether a way to an answer is seen: one that is no guess, from pages or from actions."""
        return bool((self.reads or self.actions) and self.ending)

    @property
    def label(self) -> str:
        """The label that the answer's values came from."""
        return self.reads[-1][0] if self.reads else ""

    @property
    def title(self) -> str:
        return self.reads[-1][1] if self.reads else ""

    @property
    def section(self) -> str:
        return self.title.partition(": ")[2]

    @property
    def kind(self) -> str:
        """`value`, `extreme` or `count`, from how the answer was formed."""
        if "number of names" in self.ending:
            return "count"
        return "extreme" if "name of" in self.ending else "value"

    @property
    def subjects(self) -> list[str]:
        """Whom the final label was read for, in order."""
        return list(dict.fromkeys(subject_of(title) for label, title in self.reads if label == self.label))

    @property
    def names(self) -> list[str]:
        """Page subjects and search words that stand in the question, in its order: the task's inputs."""
        candidates = {subject_of(title) for title in self.opened} | set(self.searches)
        candidates |= {title.partition(": ")[2] for title in self.opened if title == self.listing}
        inside = [name for name in candidates if name and name in self.question]
        kept = [n for n in inside if not any(n != other and n in other for other in inside)]
        return sorted(kept, key=self.question.index)


def subject_of(title: str) -> str:
    return title.partition(": ")[0]


def read_shape(trajectory: Trajectory) -> RunShape:
    """The shape of a run, from its steps' tools, observations and thoughts."""
    shape = RunShape(trajectory.question)
    for step in trajectory.steps:
        shape.reads += READ.findall(step.thought)
        if listed := _LISTED.search(step.thought):
            shape.listing = listed.group(1)
        if step.tool == "answer":
            ending = ENDING.search(step.thought)
            shape.ending = ending.group(1) if ending else ""
        elif "query" in step.arguments:
            _see_search(shape, step)
        elif "page" in step.arguments:
            _see_page(shape, step)
        elif "action" in step.arguments:
            shape.actions += [str(step.arguments["action"])] if step.error is None else []
        elif step.error is None:
            shape.skill = step.tool
    return shape


def _see_search(shape: RunShape, step: Step) -> None:
    shape.searches.append(str(step.arguments["query"]))
    sites: dict[str, set[str]] = {}
    for line in step.observation.splitlines():
        for text, _ in page_text.links(line):
            offered = line.rpartition(") - ")[2] if ") - " in line else ""
            sites.setdefault(text, set()).add(offered.split(" - ")[0])
    shape.contested |= {title for title, offered in sites.items() if len(offered) > 1}


def _see_page(shape: RunShape, step: Step) -> None:
    title = page_text.title(step.observation)
    if step.error is not None or not title:
        return
    shape.opened.append(title)
    header = page_text.fields(step.observation)
    shape.sites[title] = header.get("Site", "")
    shape.updated[title] = header.get("Last updated", "")

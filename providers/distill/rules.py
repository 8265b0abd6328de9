"""A distiller without a language model: artefacts from a trajectory's structure alone, deterministic.

It reads what any agent leaves behind: which pages were opened, what the thoughts say was read there, how the answer was
formed, and the signs seen at run time. What stands in the question becomes a blank in workflows; labels of pages stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from providers import page_text
from providers.base import Insight, Narrative, Skill, Workflow
from providers.lexical import tokenise
from providers.types import Outcome, Parameter, Step, Trajectory

_READ = re.compile(r'[Rr]ead "([^"]+)" on "([^"]+)"')
_LISTED = re.compile(r'among the names under "([^"]+)"')
_ENDING = re.compile(r"[Aa]nswer with ([^.]*)")
_ORDER_WORDS = re.compile(r"name of the (\w+)")
_DIRECTION = re.compile(r"number of names (above|below)")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.])")


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
        return list(dict.fromkeys(_subject(title) for label, title in self.reads if label == self.label))

    @property
    def names(self) -> list[str]:
        """Page subjects and search words that stand in the question, in its order: the task's inputs."""
        candidates = {_subject(title) for title in self.opened} | set(self.searches)
        candidates |= {title.partition(": ")[2] for title in self.opened if title == self.listing}
        inside = [name for name in candidates if name and name in self.question]
        kept = [n for n in inside if not any(n != other and n in other for other in inside)]
        return sorted(kept, key=self.question.index)


def _subject(title: str) -> str:
    return title.partition(": ")[0]


def read_shape(trajectory: Trajectory) -> RunShape:
    """The shape of a run, from its steps' tools, observations and thoughts."""
    shape = RunShape(trajectory.question)
    for step in trajectory.steps:
        shape.reads += _READ.findall(step.thought)
        if listed := _LISTED.search(step.thought):
            shape.listing = listed.group(1)
        if step.tool == "answer":
            ending = _ENDING.search(step.thought)
            shape.ending = ending.group(1) if ending else ""
        elif "query" in step.arguments:
            _see_search(shape, step)
        elif "page" in step.arguments:
            _see_page(shape, step)
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


class RuleDistiller:
    """The embedded distiller. Every method gives None (or nothing) where the run has nothing to teach."""

    async def insights(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Insight, ...]:
        """At most four imperative lessons of at most 30 words (MemAgent B.3.4)."""
        shape = read_shape(trajectory)
        if not shape.reads or not shape.ending:
            return ()
        if outcome.correct is False:
            return tuple(Insight(text=line, kind="failure") for line in _failure_lessons(shape)[:4])
        return tuple(Insight(text=line, kind="success") for line in _success_lessons(shape)[:4])

    async def condensed_run(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        """The run without its detours, with its own names."""
        shape = read_shape(trajectory)
        if not shape.reads or not shape.ending:
            return None
        return f"Case: {shape.question}\n" + "; ".join([*_direct_steps(shape), f"answer with {shape.ending}."])

    async def workflow(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None:
        """The run as numbered steps in which all that stood in the question is a blank."""
        shape = read_shape(trajectory)
        if not shape.reads or not shape.ending:
            return None
        blanks = _blanks(shape)
        steps = [*_loop_steps(shape), f"answer with {shape.ending}"]
        text = "\n".join(f"{number}. {_with_blanks(step, blanks)}" for number, step in enumerate(steps, 1))
        query = _with_blanks(shape.question, blanks)
        return Workflow(query=query, text=text, variables=tuple(dict.fromkeys(blanks.values())))

    async def skill(self, trajectory: Trajectory, outcome: Outcome) -> Skill | None:
        """A function that reads one label for any names and does what the run did with the values."""
        shape = read_shape(trajectory)
        if not shape.reads or not shape.section or shape.skill or not shape.ending:
            return None
        if shape.kind == "value":
            return _value_skill(shape)
        return _extreme_skill(shape) if shape.kind == "extreme" else _count_skill(shape)

    async def narrative(self, trajectory: Trajectory, outcome: Outcome) -> Narrative | None:
        """What was asked and every step taken, detours included, with the run's own names."""
        shape = read_shape(trajectory)
        if not trajectory.steps:
            return None
        steps = _literal_steps(trajectory)
        seen = " It ended at the step limit." if "step limit reached" in trajectory.status else ""
        summary = f"{shape.question} Answered from {shape.title or 'no page'}.{seen}"
        return Narrative(summary=summary, digest=f"Task: {shape.question}\nSteps: " + "; ".join(steps) + ".")


# --- steps ---


def _literal_steps(trajectory: Trajectory) -> list[str]:
    steps: list[str] = []
    for step in trajectory.steps:
        steps += [f'read "{label}"' for label, _ in _READ.findall(step.thought)]
        if step.tool == "answer":
            ending = _ENDING.search(step.thought)
            steps.append(f"answer with {ending.group(1)}" if ending else "guess")
        elif "query" in step.arguments:
            steps.append(f'search for "{step.arguments["query"]}"')
        elif "page" in step.arguments and (title := page_text.title(step.observation)):
            steps.append(f'open "{title}"')
    return steps


def _direct_steps(shape: RunShape) -> list[str]:
    steps = _entrance(shape)
    for label, title in shape.reads:
        if f'open "{title}"' not in steps:
            steps.append(f'open "{title}"')
        steps.append(f'read "{label}"')
    return steps


def _entrance(shape: RunShape) -> list[str]:
    """The search that had to come first: where the question names no page, or where two sites offer the page."""
    first = shape.searches[0] if shape.searches else ""
    subject = _subject(shape.reads[0][1])
    if first and (subject not in shape.question or _contested(shape)):
        return [f'search for "{first}"']
    return []


def _contested(shape: RunShape) -> bool:
    subjects = {_subject(title) for _, title in shape.reads}
    return any(_subject(title) in subjects for title in shape.contested)


def _loop_steps(shape: RunShape) -> list[str]:
    """As `_direct_steps`, with the repeated visits folded into one `for each`."""
    if shape.kind == "value":
        return _direct_steps(shape)
    loop = f'for each name there, open "{{name}}: {shape.section}" and read "{shape.label}"'
    if not shape.listing:
        return [loop.replace("there", "in the question")]
    if shape.listing in shape.opened:
        return [f'open "{shape.listing}"', loop]
    source = next((title for label, title in shape.reads if label == shape.listing), "")
    page = next((t for t in shape.opened if _subject(t) == _subject(source) and ": " in t), source)
    return [f'open "{page}"', f'read "{shape.listing}"', loop]


# --- blanks ---


def _blanks(shape: RunShape) -> dict[str, str]:
    """What stands in the question -> its blank, longest first."""
    blanks: dict[str, str] = {}
    for position, name in enumerate(shape.names):
        blanks[name] = f"{{name {position + 1}}}" if len(shape.names) > 1 else "{subject}"
    if (order := _ORDER_WORDS.search(shape.ending)) and order.group(1) in shape.question.lower():
        blanks[order.group(1)] = "{superlative}"
    if (side := _DIRECTION.search(shape.ending)) and side.group(1) in shape.question.lower():
        blanks[side.group(1)] = "{direction}"
    for title in shape.opened:
        subject = _subject(title)
        if shape.searches and subject == _subject(shape.title) and subject not in shape.question and not shape.listing:
            blanks[subject] = "{found}"
    for year in _YEAR.findall(shape.question):
        blanks[year] = "{year}"
    if _named(shape.label, shape.question):
        blanks[shape.label] = "{field}"
    return dict(sorted(blanks.items(), key=lambda item: -len(item[0])))


def _named(label: str, question: str) -> bool:
    """Whether the question names the label itself: more than half of its words."""
    words = set(tokenise(label))
    return len(words & set(tokenise(question))) > len(words) / 2


def _with_blanks(text: str, blanks: dict[str, str]) -> str:
    for value, blank in blanks.items():
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", blank, text)
    return text


# --- lessons ---


def _cue(shape: RunShape, words: int = 14) -> str:
    """What the question asked, without its inputs."""
    text = shape.question
    for name in shape.names:
        text = text.replace(name, "")
    text = _NUMBER.sub("", text)
    return " ".join(re.sub(r"[\"?.,;:]", " ", text).split()[:words])


def _success_lessons(shape: RunShape) -> list[str]:
    if shape.skill:
        return []
    place = f' under "{shape.section}"' if shape.section else ""
    lessons = [f'Read "{shape.label}"{place} when asked: {_cue(shape)}.']
    if _contested(shape) and shape.sites.get(shape.title):
        updated = shape.updated.get(shape.title, "")
        site = shape.sites[shape.title]
        lessons.append(f'Take the page on "{site}" (last updated {updated}) when asked: {_cue(shape)}.')
    if shape.listing and shape.listing not in shape.opened:
        source = next((title for label, title in shape.reads if label == shape.listing), "")
        page = next((t for t in shape.opened if _subject(t) == source and ": " in t), source)
        lessons.append(f'Names to go through stand in "{shape.listing}" under "{page.partition(": ")[2]}".')
    if shape.listing in shape.opened:
        lessons.append(f'Open a list such as "{shape.listing}" first, then each name on it.')
    if shape.section and shape.kind != "value":
        lessons.append(f'Go to each section at once: open "{{name}}: {shape.section}".')
    if _subject(shape.title) not in shape.question and shape.searches:
        lessons.append("Search for the thing named and take whose page it stands on.")
    return lessons


def _failure_lessons(shape: RunShape) -> list[str]:
    lessons: list[str] = []
    if _contested(shape):
        site, updated = shape.sites.get(shape.title, ""), shape.updated.get(shape.title, "")
        if site:
            lessons.append(f'Do not take figures from "{site}" (last updated {updated}) when asked: {_cue(shape)}.')
    elif shape.kind == "value":
        lessons.append(f'Not "{shape.label}" when asked: {_cue(shape)}.')
    if shape.kind != "value" and shape.section:
        lessons.append(f'Do not spend calls on the way: open "{{name}}: {shape.section}" at once.')
    return lessons


# --- skills ---


def _identifier(*parts: str) -> str:
    words = re.findall(r"[a-z0-9]+", " ".join(parts).lower())
    return "_".join(dict.fromkeys(words))[:80].strip("_")


def _value_skill(shape: RunShape) -> Skill | None:
    if _subject(shape.title) not in shape.question:
        return None
    name = _identifier(shape.label)
    code = (
        f"def {name}(tools, subject: str) -> str:\n"
        f"    page = tools.open(subject + {': ' + shape.section!r})\n"
        f"    return fields(page).get({shape.label!r}, '')\n"
    )
    doc = f"Read {shape.label} of a subject.\n{_cue(shape)}."
    return Skill(name=name, parameters=(Parameter(name="subject"),), doc=doc, code=code)


_LOOP = (
    "    best = None\n"
    "    for name in {names}:\n"
    "        value = fields(tools.open(name + {section!r})).get({label!r}, '')\n"
    "        amount = number(value)\n"
    "        if amount is None:\n"
    "            continue\n"
    "        if best is None or (amount > best[0]) == (direction == 'largest'):\n"
    "            best = (amount, name, value)\n"
    "    return '' if best is None else {result}\n"
)


def _extreme_skill(shape: RunShape) -> Skill | None:
    direction = Parameter(name="direction", doc="largest or smallest")
    result = "best[1]" if shape.listing else "best[1] + '; ' + best[2]"
    loop = {"section": f": {shape.section}", "label": shape.label, "result": result}
    if not shape.listing:
        name = _identifier("compare", shape.label)
        code = f"def {name}(tools, names: list, direction: str) -> str:\n" + _LOOP.format(names="names", **loop)
        parameters = (Parameter(name="names", type="list"), direction)
        return Skill(
            name=name, parameters=parameters, doc=f"Compare {shape.label} of names.\n{_cue(shape)}.", code=code
        )
    source = next((title for label, title in shape.reads if label == shape.listing), "")
    page = next((t for t in shape.opened if _subject(t) == source and ": " in t), "")
    if not page:
        return None
    name = _identifier(shape.label, shape.listing)
    code = (
        f"def {name}(tools, subject: str, direction: str) -> str:\n"
        f"    listed = fields(tools.open(subject + {': ' + page.partition(': ')[2]!r})).get({shape.listing!r}, '')\n"
        + _LOOP.format(names="[text for text, url in links(listed)]", **loop)
    )
    doc = f"Compare {shape.label} of the names under {shape.listing}.\n{_cue(shape)}."
    return Skill(name=name, parameters=(Parameter(name="subject"), direction), doc=doc, code=code)


def _count_skill(shape: RunShape) -> Skill | None:
    if shape.listing not in shape.opened or ": " not in shape.listing:
        return None
    name = _identifier("count", shape.label)
    prefix = shape.listing.partition(": ")[0] + ": "
    code = (
        f"def {name}(tools, subject: str, direction: str, threshold: float) -> str:\n"
        f"    page = tools.open({prefix!r} + subject)\n"
        "    count = 0\n"
        "    for name, url in links(page):\n"
        "        if ': ' in name:\n"
        "            continue\n"
        f"        amount = number(fields(tools.open(name + {': ' + shape.section!r})).get({shape.label!r}, ''))\n"
        "        if amount is None:\n"
        "            continue\n"
        "        if (amount > threshold) if direction == 'largest' else (amount < threshold):\n"
        "            count = count + 1\n"
        "    return str(count)\n"
    )
    parameters = (
        Parameter(name="subject"),
        Parameter(name="direction", doc="largest: above; smallest: below"),
        Parameter(name="threshold", type="float"),
    )
    doc = f"Count how many on a list have {shape.label} above or below a number.\n{_cue(shape)}."
    return Skill(name=name, parameters=parameters, doc=doc, code=code)

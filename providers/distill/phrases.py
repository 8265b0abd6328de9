"""Sentences about a run: its steps, its blanks and its lessons, in plain English that any reader follows."""

from __future__ import annotations

import re
import unicodedata

from providers import page_text
from providers.distill.shape import ENDING, READ, RunShape, read_shape, subject_of
from providers.lexical import tokenise
from providers.types import Trajectory

_ORDER_WORDS = re.compile(r"name of the (\w+)")
_DIRECTION = re.compile(r"number of names (above|below)")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.])")

LAST_ACTIONS = 3
"""Of a run that was won by what was done: those that a lesson tells of."""

# --- steps ---


def literal_steps(trajectory: Trajectory) -> list[str]:
    shape = read_shape(trajectory)
    steps: list[str] = []
    for step in trajectory.steps:
        steps += [f'read "{label}"' for label, _ in READ.findall(step.thought)]
        if step.tool == "answer":
            ending = ENDING.search(step.thought)
            steps.append(f"answer with {ending.group(1)}" if ending else "guess")
        elif "query" in step.arguments:
            steps.append(f'search for "{step.arguments["query"]}"')
        elif "page" in step.arguments and (title := page_text.title(step.observation)):
            steps.append(_opening(shape, title))
        elif "action" in step.arguments and step.error is None:
            steps.append(_doing(str(step.arguments["action"])))
    return steps


def _doing(action: str) -> str:
    return f'do "{action}"'


def _opening(shape: RunShape, title: str) -> str:
    """How a case tells of a page: with its source, where a search offered the thing on more than one site."""
    contested = subject_of(title) in {subject_of(other) for other in shape.contested}
    site = shape.sites.get(title, "") if contested else ""
    return f'open "{title}"' + (f' on "{site}"' if site else "")


def direct_steps(shape: RunShape) -> list[str]:
    if not shape.reads:
        return [_doing(action) for action in shape.actions]
    steps = entrance(shape)
    for label, title in shape.reads:
        if (opening := _opening(shape, title)) not in steps:
            steps.append(opening)
        steps.append(f'read "{label}"')
    return steps


def entrance(shape: RunShape) -> list[str]:
    """The search that had to come first: where the question names no page, or where two sites offer the page."""
    first = shape.searches[0] if shape.searches else ""
    subject = subject_of(shape.reads[0][1])
    if first and (subject not in shape.question or is_contested(shape)):
        return [f'search for "{first}"']
    return []


def is_contested(shape: RunShape) -> bool:
    subjects = {subject_of(title) for _, title in shape.reads}
    return any(subject_of(title) in subjects for title in shape.contested)


def loop_steps(shape: RunShape) -> list[str]:
    """As `direct_steps`, with the repeated visits folded into one `for each`."""
    if shape.kind == "value" or not shape.reads:
        return direct_steps(shape)
    loop = f'for each name there, open "{{name}}: {shape.section}" and read "{shape.label}"'
    if not shape.listing:
        return [loop.replace("there", "in the question")]
    if shape.listing in shape.opened:
        return [f'open "{shape.listing}"', loop]
    source = next((title for label, title in shape.reads if label == shape.listing), "")
    page = next((t for t in shape.opened if subject_of(t) == subject_of(source) and ": " in t), source)
    return [f'open "{page}"', f'read "{shape.listing}"', loop]


# --- blanks ---


def blanks_of(shape: RunShape) -> dict[str, str]:
    """What stands in the question -> its blank, longest first."""
    blanks: dict[str, str] = {}
    for position, name in enumerate(shape.names):
        blanks[name] = f"{{name {position + 1}}}" if len(shape.names) > 1 else "{subject}"
    if (order := _ORDER_WORDS.search(shape.ending)) and order.group(1) in shape.question.lower():
        blanks[order.group(1)] = "{superlative}"
    if (side := _DIRECTION.search(shape.ending)) and side.group(1) in shape.question.lower():
        blanks[side.group(1)] = "{direction}"
    for title in shape.opened:
        subject = subject_of(title)
        if (
            shape.searches
            and subject == subject_of(shape.title)
            and subject not in shape.question
            and not shape.listing
        ):
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


def with_blanks(text: str, blanks: dict[str, str]) -> str:
    for value, blank in blanks.items():
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", blank, text)
    return text


# --- lessons ---


def cue_of(shape: RunShape, words: int = 14) -> str:
    """What the question asked, without its inputs."""
    text = shape.question
    for name in shape.names:
        text = text.replace(name, "")
    text = _NUMBER.sub("", text)
    return " ".join(re.sub(r"[\"?.,;:]", " ", text).split()[:words])


def success_lessons(shape: RunShape) -> list[str]:
    return [*operational_lessons(shape), *strategic_lessons(shape)]


def operational_lessons(shape: RunShape) -> list[str]:
    """Where the values of such a task stand, or what such a task ends with."""
    if shape.skill:
        return []
    if not shape.reads:
        last = ", ".join(_doing(action) for action in dict.fromkeys(shape.actions[-LAST_ACTIONS:]))
        return [f"End with {last} when asked: {cue_of(shape)}."]
    place = f' under "{shape.section}"' if shape.section else ""
    lessons = [f'Read "{shape.label}"{place} when asked: {cue_of(shape)}.']
    if is_contested(shape) and shape.sites.get(shape.title):
        updated = shape.updated.get(shape.title, "")
        site = shape.sites[shape.title]
        lessons.append(f'Take the page on "{site}" (last updated {updated}) when asked: {cue_of(shape)}.')
    if shape.listing and shape.listing not in shape.opened:
        source = next((title for label, title in shape.reads if label == shape.listing), "")
        page = next((t for t in shape.opened if subject_of(t) == source and ": " in t), source)
        lessons.append(f'Names to go through stand in "{shape.listing}" under "{page.partition(": ")[2]}".')
    return lessons


def strategic_lessons(shape: RunShape) -> list[str]:
    """How to go about such a task."""
    if shape.skill or not shape.reads:
        return []
    lessons: list[str] = []
    if shape.listing in shape.opened:
        lessons.append(f'Open a list such as "{shape.listing}" first, then each name on it.')
    if shape.section and shape.kind != "value":
        lessons.append(f'Go to each section at once: open "{{name}}: {shape.section}".')
    if subject_of(shape.title) not in shape.question and shape.searches:
        lessons.append("Search for the thing named and take whose page it stands on.")
    return lessons


def failure_lessons(shape: RunShape) -> list[str]:
    lessons: list[str] = []
    if not shape.reads:
        return lessons
    if is_contested(shape):
        site, updated = shape.sites.get(shape.title, ""), shape.updated.get(shape.title, "")
        if site:
            lessons.append(f'Do not take figures from "{site}" (last updated {updated}) when asked: {cue_of(shape)}.')
    elif shape.kind == "value":
        lessons.append(f'Not "{shape.label}" when asked: {cue_of(shape)}.')
    if shape.kind != "value" and shape.section:
        lessons.append(f'Do not spend calls on the way: open "{{name}}: {shape.section}" at once.')
    return lessons


# --- names ---


def identifier(*parts: str) -> str:
    """A Python name made of the words of `parts`, each once, of at most 80 characters.

    Words of other scripts are taken where there are no Latin ones.
    """
    text = " ".join(parts).lower()
    words = re.findall(r"[a-z0-9]+", text) or re.findall(r"\w+", unicodedata.normalize("NFKC", text))
    return "_".join(dict.fromkeys(words))[:80].strip("_")

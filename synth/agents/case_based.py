"""A task agent without a language model: it reads pages and memory as plain text and ranks what it could do next.

One generic matcher (word overlap with the question, plus what the memory's text says) ranks links to open and labels to
read. A procedure found in memory is followed as far as it fits the page; where it does not, or where there is none, the
agent explores. It has no branch on providers, families or templates, and its candidates come from the last few
observations and the working memory alone, so both kinds of memory can help it or lead it astray.

Where a world lists what can be done in it, it chooses among that instead: `choosing.py`.
"""

from __future__ import annotations

import random
import re
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from providers import page_text
from providers.tools import Tool, ToolResult
from providers.types import SkillSpec, Step, Task, Trajectory, content_hash
from synth.agents.base import AgentSession
from synth.agents.choosing import Choosing, acting_tool
from synth.agents.matching import Matcher
from synth.agents.pages import Hit, Page, read_hits, same_name
from synth.agents.reading import (
    Operation,
    Plan,
    PlanStep,
    Question,
    direction_words,
    read_advice,
    read_direction,
    read_operation,
    word_keys,
)

WINDOW = 4
"""Observations that the matcher still sees."""
ACCEPT = 0.6
"""A label at this score is taken without looking further."""
LEAST = 0.2
"""Below this score a label is not taken at all."""
HABIT = 0.5
"""What a section gains once a value of this task was read there."""
NOISE = 0.05
"""Spread of the seeded noise on every score: what makes repeats differ."""
FOUND = "{found}"
FIELD = "{field}"
_SLOT = re.compile(r"\{([^{}]+)\}")
_ADDRESS = re.compile(r"^- (\S*/\S+) \(", re.MULTILINE)


@dataclass
class Note:
    """The best reading so far for one target."""

    score: float
    label: str
    value: str
    title: str


@dataclass
class Target:
    """A thing whose value is wanted."""

    name: str
    subject: str = ""
    """Whose pages tell of it: the name itself, or whoever the thing named was found to belong to."""
    note: Note | None = None
    settled: bool = False
    searched: int = 0
    direct: bool = False
    opened: int = 0

    def __post_init__(self) -> None:
        self.subject = self.subject or self.name


@dataclass(frozen=True)
class Action:
    tool: str
    arguments: dict[str, Any]
    thought: str
    skill: SkillSpec | None = None


@dataclass
class _Following:
    """A plan being followed: its steps still to do, names and slots bound to the new question."""

    plan: Plan
    steps: deque[PlanStep]
    binding: dict[str, str]
    failed: bool = False


class CaseBased:
    """See the module. Options: `window` (observations the matcher sees), `noise` (spread of its scores)."""

    name = "case_based"

    def __init__(self, window: int = WINDOW, noise: float = NOISE) -> None:
        self.window = window
        self.noise = noise

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        acting = acting_tool(tools)
        if acting is not None:
            return await Choosing(
                task, acting, session, agent=self.name, seed=seed, max_steps=max_steps, noise=self.noise
            ).run()
        return await _Attempt(self, task, tools, session, seed, max_steps).run()


class _Attempt:
    """One run of one task."""

    def __init__(
        self, agent: CaseBased, task: Task, tools: tuple[Tool, ...], session: AgentSession, seed: int, max_steps: int
    ) -> None:
        self.agent = agent
        self.task = task
        self.tools = {tool.name: tool for tool in tools}
        self.toolset = tools
        self.session = session
        self.seed = seed
        self.max_steps = max_steps
        self.question = Question.read(task.question)
        self.operation = self.question.operation
        self.advice = read_advice(session.memory)
        self.matcher = Matcher(self.question, self.advice, agent.noise, random.Random(content_hash(task.id, seed)))
        self.window: deque[Page | tuple[Hit, ...]] = deque(maxlen=agent.window)
        self.steps: list[Step] = []
        self.reads: list[str] = []
        self.targets: list[Target] = []
        self.source: Target | None = None
        self.listing: str = ""
        self.working: Page | None = None
        self.working_addresses: set[str] = set()
        self.sites: set[str] = set()
        self.seen: deque[str] = deque(maxlen=agent.window)
        self.dead: set[str] = set()
        self.skill_tried = False
        self.section_habit: str = ""
        self.following: _Following | None = None
        self.skill_value = ""
        self._set_goal()
        self._choose_plan()

    # --- the loop ---

    async def run(self) -> Trajectory:
        answer: str | None = None
        while len(self.steps) < self.max_steps:
            shown = await self.session.step(tuple(self.steps))
            self.working = Page.read(shown) if shown else None
            self.working_addresses = set(_ADDRESS.findall(shown))
            last = len(self.steps) == self.max_steps - 1
            action = self._answer() if last else self._next()
            result, seconds, started = await self._act(action)
            self._keep(action, result, started, seconds)
            if action.tool == "answer":
                answer = str(action.arguments["text"])
                break
            self._observe(action, result)
        return Trajectory.make(
            task_id=self.task.id,
            question=self.task.question,
            agent=self.agent.name,
            seed=self.seed,
            settings={"max_steps": self.max_steps, "window": self.agent.window, "noise": self.agent.noise},
            steps=tuple(self.steps),
            answer=answer or None,
            status=self._status(),
            injections=self.session.injections,
            usage={"steps": float(len(self.steps))},
        )

    async def _act(self, action: Action) -> tuple[ToolResult, float, float]:
        started = time.time()
        clock = time.perf_counter()
        if action.tool == "answer":
            result = ToolResult(observation="Answer noted.")
        elif action.skill is not None:
            result = await self.session.call_skill(action.skill, action.arguments, self.toolset)
        else:
            result = await self.tools[action.tool].call(**action.arguments)
        return result, time.perf_counter() - clock, started

    def _keep(self, action: Action, result: ToolResult, started: float, seconds: float) -> None:
        thought = " ".join([*self.reads, action.thought])
        self.reads = []
        self.steps.append(
            Step(
                index=len(self.steps),
                thought=thought,
                tool=action.tool,
                arguments=action.arguments,
                observation=result.observation,
                error=result.error,
                started=started,
                seconds=seconds,
                lineage=result.lineage,
            )
        )

    def _observe(self, action: Action, result: ToolResult) -> None:
        if action.skill is not None:
            if result.error is None and result.observation.strip():
                self.skill_value = result.observation.strip()
            return
        key = str(action.arguments.get("page") or action.arguments.get("query"))
        if result.error is not None:
            self.dead.add(key)
            if self.following is not None:
                self.following.failed = True
            return
        if action.tool == "search":
            hits = read_hits(result.observation)
            self.window.append(hits)
            self.sites |= {hit.site for hit in hits}
            if not hits:
                self.dead.add(key)
            return
        page = Page.read(result.observation)
        self.window.append(page)
        self.seen.append(page.url)
        target = self._target_of(page)
        if target is not None:
            target.opened += 1

    def _status(self) -> tuple[str, ...]:
        signs = [f"step {step.index}: {step.error}" for step in self.steps if step.error]
        signs += [f"step {step.index}: no results" for step in self.steps if step.observation.startswith("No results")]
        if self.targets and (note := self.targets[0].note):
            signs.append(f"read from {note.title}")
        if len(self.steps) == self.max_steps:
            signs.append("step limit reached")
        return tuple(signs)

    # --- goals ---

    def _set_goal(self) -> None:
        names = list(self.question.names)
        if self.operation.kind != "value" and len(names) == 1:
            self.source = Target(names[0])
        else:
            self.targets = [Target(name) for name in names[:6]] or [Target(" ".join(sorted(self.question.words)[:4]))]
        if self.operation.kind == "value" and len(self.targets) > 1:
            self.targets = [self.targets[0]]

    def _set_targets(self, names: list[str], listing: str) -> None:
        self.targets = [Target(name) for name in names]
        self.listing = listing
        if self.source is not None:
            self.source.settled = True

    def _target_of(self, page: Page) -> Target | None:
        wanted = [*self.targets, *([self.source] if self.source else [])]
        return next((target for target in wanted if same_name(target.subject, page.subject)), None)

    # --- deciding ---

    def _next(self) -> Action:
        if not self.skill_tried and self.session.skills:
            self.skill_tried = True
            if (chosen := self.matcher.choose_skill(self.session.skills, self.operation)) is not None:
                skill, arguments = chosen
                return Action(skill.name, arguments, f"Call the skill {skill.name}.", skill=skill)
        if self.skill_value:
            return self._answer()
        if self.following is not None and not self.following.failed:
            action = self._follow(self.following)
            if action is not None:
                return action
        return self._improvise()

    def _improvise(self) -> Action:
        if self.source is not None and not self.source.settled:
            if self._find_listing():
                return self._improvise()
            action = self._approach(self.source, listing=True)
            if action is not None:
                return action
            self.source.settled = True
            self.targets = self.targets or [Target(self.source.name)]
        for target in self.targets:
            if target.settled:
                continue
            self._read_pages(target)
            if target.settled:
                continue
            action = self._approach(target, listing=False)
            if action is not None:
                return action
            self._settle(target)
        return self._answer()

    def _approach(self, target: Target, *, listing: bool) -> Action | None:
        """The next call that brings a page about `target` into view; None when nothing is left to try."""
        if target.opened > 12:
            return None
        self._adopt(target)
        pages = [page for page in self._pages() if not self.matcher.distrusts(page.site, self.sites)]
        about = any(same_name(page.subject, target.subject) for page in pages)
        titled = self.advice.opens_by_title(self.question.words)
        if titled and not target.direct and (section := self._section(listing=listing)):
            target.direct = True
            title = f"{target.subject}: {section}"
            if not any(page.title == title for page in pages):
                return Action("open", {"page": title}, f'Open "{title}".')
        options = self._links_about(target, pages) + self._hits_about(target, about)
        if not about and target.searched < 3 and not any(score >= 0.8 for score, _ in options):
            queries = (target.name, target.subject, target.name.partition(" ")[2])
            query = queries[target.searched]
            target.searched += 1
            if query and query not in self.dead:
                options.append((0.75, Action("search", {"query": query}, f'Search for "{query}".')))
        if not options:
            return None
        return max(options, key=lambda option: option[0] + self.matcher.jitter())[1]

    def _links_about(self, target: Target, pages: list[Page]) -> list[tuple[float, Action]]:
        options: list[tuple[float, Action]] = []
        for page in pages:
            mine = same_name(page.subject, target.subject)
            for text, url in page.links:
                if self._known(url):
                    continue
                head, _, section = text.partition(": ")
                if mine and section and same_name(head, target.subject):
                    habit = HABIT if section == self.section_habit else 0.0
                    options.append((1.0 + habit + self.matcher.rate(section), self._open(url, text)))
                elif same_name(text, target.subject):
                    options.append((0.9, self._open(url, text)))
        return options

    def _hits_about(self, target: Target, about: bool) -> list[tuple[float, Action]]:
        options: list[tuple[float, Action]] = []
        for hits in self._searches():
            for rank, hit in enumerate(hits):
                if self._known(hit.url):
                    continue
                rate = self.matcher.rate_hit(hit, rank)
                if target.subject.casefold() in hit.title.casefold():
                    options.append((0.9 + rate, self._open(hit.url, hit.title)))
                elif not about and target.opened == 0:
                    options.append((0.5 + rate, self._open(hit.url, hit.title)))
        return options

    def _adopt(self, target: Target) -> None:
        """A thing that is no page's subject belongs to whoever's page states it."""
        if target.subject != target.name or target.searched == 0:
            return
        pages = [page for page in self._pages() if page is not self.working]
        if any(target.name.casefold() in page.title.casefold() for page in pages):
            return
        stated = [
            (self.matcher.rate(label), label, page)
            for page in pages
            for label, value in page.fields.items()
            if re.search(rf"(?<!\w){re.escape(target.name)}(?!\w)", value)
        ]
        if stated:
            _, label, page = max(stated, key=lambda item: item[0])
            target.subject = page.subject
            target.opened = 1
            self.matcher.spent |= word_keys(label)
            self.reads.append(f'Read "{label}" on "{page.title}".')

    def _known(self, url: str) -> bool:
        """Seen in the last observations, dead, or listed as visited by the working memory."""
        visited = self.working is not None and any(url == link for _, link in self.working.links)
        return url in self.seen or url in self.dead or visited or url in self.working_addresses

    def _open(self, url: str, text: str) -> Action:
        return Action("open", {"page": url}, f'Open "{text}".')

    def _section(self, *, listing: bool) -> str:
        """The section that memory (or this run) speaks of most fittingly."""
        if self.section_habit and not listing:
            return self.section_habit
        best, section = 0.0, ""
        for mention in self.advice.mentions:
            name = mention.name.rsplit(": ", 1)[-1] if ": " in mention.name else ""
            if not name or _SLOT.search(name) or mention.weight <= 0:
                continue
            fit = mention.weight * (0.5 + self.matcher.relevance(mention.cue))
            if fit > best:
                best, section = fit, name
        return section

    # --- what is in view ---

    def _pages(self) -> list[Page]:
        pages = [seen for seen in reversed(self.window) if isinstance(seen, Page)]
        return [*pages, self.working] if self.working else pages

    def _searches(self) -> list[tuple[Hit, ...]]:
        return [seen for seen in reversed(self.window) if not isinstance(seen, Page)]

    def _read_pages(self, target: Target) -> None:
        for page in self._pages():
            if page is self.working or not same_name(page.subject, target.subject):
                continue
            if self.matcher.distrusts(page.site, self.sites):
                continue
            for label, value in page.fields.items():
                if label == self.listing:
                    continue
                score = self.matcher.rate(label) + self.matcher.jitter()
                if page.title.endswith(f": {self.section_habit}") and self.section_habit:
                    score += 0.05
                if score >= LEAST and (target.note is None or score > target.note.score):
                    target.note = Note(score, label, value, page.title)
        if target.note is not None and target.note.score >= ACCEPT:
            self._settle(target)

    def _settle(self, target: Target) -> None:
        target.settled = True
        if target.note is not None:
            self.section_habit = target.note.title.partition(": ")[2] or self.section_habit
            self.reads.append(f'Read "{target.note.label}" on "{target.note.title}".')

    def _find_listing(self) -> bool:
        """Find the names to loop over on the pages in view: a field that lists names, or a page that is a list."""
        assert self.source is not None
        best: tuple[float, list[str], str] | None = None
        for page in self._pages():
            if page is self.working or self.source.name.casefold() not in page.title.casefold():
                continue
            if page.listed:
                self._set_targets(page.listed, page.title)
                return True
            for label, value in page.fields.items():
                names = [text for text, _ in page_text.links(value)]
                if len(names) < 2:
                    continue
                score = self.matcher.rate(label) + self.matcher.jitter()
                if score > 0.3 and (best is None or score > best[0]):
                    best = (score, names, label)
        if best is None:
            return False
        self.reads.append(f'Read "{best[2]}" on "{self.source.name}".')
        self._set_targets(best[1], best[2])
        return True

    # --- following a procedure from memory ---

    def _choose_plan(self) -> None:
        fitting = [
            (len(word_keys(plan.cue) & self.question.words) / (1 + rank), -rank, plan, binding)
            for rank, plan in enumerate(self.advice.plans)
            if self._accounts_for_question(plan) and not self._foreign(plan, binding := self._bind(plan))
        ]
        if fitting:
            _, _, plan, binding = max(fitting, key=lambda item: item[:2])
            self.following = _Following(plan, deque(plan.steps), binding)

    def _accounts_for_question(self, plan: Plan) -> bool:
        """A procedure is a candidate when it ends in the kind of answer that the question asks for."""
        return _ending_kind(plan.ending) == self.operation.kind

    def _foreign(self, plan: Plan, binding: dict[str, str]) -> bool:
        """Whether a procedure leads to pages of things that the question does not speak of.

        Such a case is another question's: its labels and sections serve as hints, its way is not followed.
        """
        return any(
            not any(part and part in self.question.text for part in self._fill(step.argument, binding).split(": "))
            for step in plan.steps
            if step.kind in ("search", "open") and not _SLOT.search(step.argument)
        )

    def _bind(self, plan: Plan) -> dict[str, str]:
        """Slots and the old task's own names, in order, stand for the new question's names, numbers and years."""
        old = Question.read(plan.cue)
        names = deque(self.question.names)
        binding: dict[str, str] = {}
        for slot in dict.fromkeys(_SLOT.findall(" ".join([plan.cue, *(step.argument for step in plan.steps)]))):
            lowered = slot.lower()
            if lowered == "year":
                binding[f"{{{slot}}}"] = self.question.years[0] if self.question.years else ""
            elif lowered in ("number", "threshold", "direction", "superlative", "name", "found", "field"):
                continue
            elif names:
                binding[f"{{{slot}}}"] = names.popleft()
        if not binding:
            for mine, theirs in zip(old.names, self.question.names, strict=False):
                binding[mine] = theirs
        return binding

    def _fill(self, text: str, binding: dict[str, str]) -> str:
        for old, new in binding.items():
            text = text.replace(old, new)
        return text

    def _follow(self, following: _Following) -> Action | None:
        """Do the plan's next step; reading costs nothing, so steps are done until one needs a call."""
        while following.steps:
            self._skip_detours(following)
            step = following.steps.popleft()
            if step.kind == "read":
                self._follow_read(following, step)
            elif step.kind == "each":
                self._follow_each(following, step)
            else:
                if FOUND in step.argument:
                    self._bind_found(following)
                argument = self._fill(step.argument, following.binding)
                if _SLOT.search(argument) or argument in self.dead:
                    following.failed = True
                    return None
                if step.kind == "search":
                    return Action("search", {"query": argument}, f'Search for "{argument}".')
                return Action("open", {"page": self._resolve(argument)}, f'Open "{argument}".')
            if following.failed:
                return None
        self.operation = self._ending(following)
        return None

    def _bind_found(self, following: _Following) -> None:
        """`{found}` is whoever the search in view found."""
        hits = next(iter(self._searches()), ())
        if FOUND not in following.binding and hits:
            following.binding[FOUND] = hits[0].title.partition(": ")[0]
            if self.operation.kind == "value" and self.targets:
                self.targets[0].subject = following.binding[FOUND]

    def _skip_detours(self, following: _Following) -> None:
        """Where the page in view already has the label that the plan wants next, the openings before it are detours."""
        reads = [i for i, step in enumerate(following.steps) if step.kind == "read"]
        page = next(iter(self._pages()), None)
        target = self._target_of(page) if page is not None else None
        if not reads or page is None or target is None or target.settled:
            return
        skipped = list(following.steps)[: reads[0]]
        wanted = self._fill(following.steps[reads[0]].argument, following.binding)
        if wanted in page.fields and all(step.kind == "open" for step in skipped):
            for _ in skipped:
                following.steps.popleft()

    def _resolve(self, title: str) -> str:
        """A title that a search result in view carries is opened where the matcher likes it best."""
        offers = [
            (self.matcher.rate_hit(hit, rank) + self.matcher.jitter(), hit.url)
            for hits in self._searches()
            for rank, hit in enumerate(hits)
            if same_name(hit.title, title)
        ]
        return max(offers)[1] if offers else title

    def _follow_read(self, following: _Following, step: PlanStep) -> None:
        label = self._fill(step.argument, following.binding)
        page = next(iter(self._pages()), None)
        if page is None or self.matcher.distrusts(page.site, self.sites):
            following.failed = True
            return
        found = self._nearest_label(page, label)
        if found is None:
            following.failed = True
            return
        loops = following.steps and following.steps[0].kind == "each"
        if loops:
            names = [text for text, _ in page_text.links(page.fields[found])]
            if len(names) >= 2:
                self.reads.append(f'Read "{found}" on "{page.subject}".')
                self._set_targets(names, found)
            return
        later = any(following.steps[i].kind in ("open", "search") for i in range(len(following.steps)))
        target = self._target_of(page)
        if target is None and (not later or self.operation.kind != "value"):
            target = Target(page.subject)
            self.targets = [*(t for t in self.targets if t.note is not None), target]
        if target is not None:
            target.note = Note(1.0, found, page.fields[found], page.title)
            self._settle(target)

    def _nearest_label(self, page: Page, label: str) -> str | None:
        """The plan's label on this page, unless the question itself names another one there plainly.

        A blank label is for the matcher to fill.
        """
        if label == FIELD:
            rated = {candidate: self.matcher.rate(candidate) + self.matcher.jitter() for candidate in page.fields}
            best_rated = max(rated, key=lambda candidate: rated[candidate], default="")
            return best_rated if rated.get(best_rated, 0.0) >= ACCEPT else None
        wanted = set(word_keys(label))
        plain = max(page.fields, key=self.matcher.coverage, default=None)
        if plain is not None and self.matcher.coverage(plain) >= 0.75 > self.matcher.coverage(label):
            return plain
        best, found = 0.0, None
        for candidate in page.fields:
            words = set(word_keys(candidate))
            likeness = len(words & wanted) / len(words | wanted) if words | wanted else 0.0
            if likeness > best:
                best, found = likeness, candidate
        return found if best >= 0.6 else None

    def _follow_each(self, following: _Following, step: PlanStep) -> None:
        if not self.targets or (self.source is not None and not self.source.settled):
            page = next(iter(self._pages()), None)
            if page is not None and page.listed:
                self._set_targets(page.listed, page.title)
        if self.source is not None and not self.source.settled:
            following.failed = True
            return
        for target in reversed(self.targets):
            filled = self._fill(step.argument.replace("{name}", target.subject), following.binding)
            if step.label:
                following.steps.appendleft(PlanStep("read", step.label))
            following.steps.appendleft(PlanStep("open", filled))

    def _ending(self, following: _Following) -> Operation:
        """The plan's own last words count literally; a slot takes the question's."""
        ending = following.plan.ending
        literal = read_direction(_SLOT.sub(" ", ending))
        if self.operation.kind == "extreme" and literal:
            return Operation("extreme", literal, with_value=self.operation.with_value)
        if self.operation.kind == "count" and "{" not in ending:
            told = read_operation("how many " + ending)
            if told.kind == "count":
                return Operation("count", told.direction, self.operation.threshold)
        return self.operation

    # --- answering ---

    def _answer(self) -> Action:
        if self.skill_value:
            return Action("answer", {"text": self.skill_value}, "Answer with the skill's result.")
        for target in self.targets:
            if not target.settled:
                self._read_pages(target)
                if target.note is not None and not target.settled:
                    self._settle(target)
        noted = [(target, target.note) for target in self.targets if target.note is not None]
        if not noted:
            return Action("answer", {"text": ""}, "Nothing was found.")
        if self.operation.kind == "value":
            target, note = noted[-1] if self.following and not self.following.failed else noted[0]
            return Action("answer", {"text": note.value}, "Answer with the value.")
        numbers = [
            (number, target.name, note)
            for target, note in noted
            if (number := page_text.number(note.value)) is not None
        ]
        among = f' among the names under "{self.listing}"' if self.listing else " among the names in the question"
        if self.operation.kind == "count":
            assert self.operation.threshold is not None
            sign = self.operation.direction
            count = sum(sign * number > sign * self.operation.threshold for number, _, _ in numbers)
            word = "above" if sign > 0 else "below"
            return Action(
                "answer", {"text": str(count)}, f"Answer with the number of names {word} the number given{among}."
            )
        if not numbers:
            return Action("answer", {"text": noted[0][0].name}, "Guess the first name; no figure was found.")
        pick = max(numbers, key=lambda item: self.operation.direction * item[0])
        word = self._superlative()
        text = f"{pick[1]}; {pick[2].value}" if self.operation.with_value else pick[1]
        return Action("answer", {"text": text}, f"Answer with the name of the {word}{among}.")

    def _superlative(self) -> str:
        said = direction_words(self.question.text)
        if said and read_direction(said[0]) == self.operation.direction:
            return said[0]
        return "largest" if self.operation.direction > 0 else "smallest"


def _ending_kind(ending: str) -> str:
    lowered = ending.lower()
    if re.search(r"\b(number of|count)\b", lowered):
        return "count"
    return "extreme" if "name of" in lowered or read_direction(lowered) else "value"

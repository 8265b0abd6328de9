"""Makes the tasks of the factbook suite: seven families, four pools, deterministic by seed.

Each family is hard in one way of its own: lookup in its wording, extremum in its procedure, count in the number of
pages, bridge in finding the country, compare in keeping figures, trap in resisting a stored task, stale in choosing
the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random

from providers.errors import SuiteError
from providers.types import Split, Task, content_hash
from synth.tasks import factbook_drafts as drafts
from synth.tasks.factbook_data import Country
from synth.tasks.factbook_drafts import Draft
from synth.tasks.factbook_fields import BY_LABEL, FIELDS, NUMBERS, Field
from synth.tasks.factbook_frames import OPERATORS, THING_CLAUSES, Frame, frames
from synth.tasks.factbook_pools import Pool, endless, make_pools
from synth.tasks.factbook_site import Site

MIX = {
    "lookup": 0.20,
    "extremum": 0.15,
    "count": 0.13,
    "bridge": 0.15,
    "compare": 0.12,
    "trap": 0.12,
    "stale": 0.13,
}
"""Share of each family in explore, dev and test; warm-up has the same without traps."""
CAPACITY = {Split.WARMUP: 480, Split.EXPLORE: 1000, Split.DEV: 720, Split.TEST: 720}
BAIT = 200
"""Traps are baited by the first so many warm-up tasks."""
ARCHIVE_SHARE = 1 / 3
"""Share of the stale family that asks for the archived edition."""
_ATTEMPTS = 200
"""Drafts tried per task wanted before a family counts as exhausted."""
_TRAP_ATTEMPTS = 20
"""Baits tried for one trap before the next kind of trap has its turn."""


def make_tasks(site: Site, seed: int, explore: int = CAPACITY[Split.EXPLORE]) -> dict[Split, list[Task]]:
    """All tasks by split, in an order that keeps the mix of families at any prefix.

    More tasks for `explore` begin with those of fewer. Raises SuiteError where a family runs out before its capacity.
    """
    capacity = {**CAPACITY, Split.EXPLORE: explore}
    pools = make_pools(site, seed)
    tasks = {Split.WARMUP: _Maker(site, pools[Split.WARMUP], Split.WARMUP, seed, ()).tasks(capacity[Split.WARMUP])}
    bait = tuple(tasks[Split.WARMUP][:BAIT])
    for split in (Split.EXPLORE, Split.DEV, Split.TEST):
        tasks[split] = _Maker(site, pools[split], split, seed, bait).tasks(capacity[split])
    return tasks


class _Maker:
    """Makes the tasks of one split from its pool; traps are baited by warm-up tasks."""

    def __init__(self, site: Site, pool: Pool, split: Split, seed: int, bait: tuple[Task, ...]) -> None:
        self.site = site
        self.world = site.world
        self.pool = pool
        self.split = split
        self.seed = seed
        self.bait = bait
        self.centres = tuple(country for country in pool.countries if self._neighbours(country))

    def tasks(self, capacity: int) -> list[Task]:
        families = [family for family in MIX if family != "trap" or self.bait]
        total = sum(MIX[family] for family in families)
        shares = {family: MIX[family] / total for family in families}
        return _interleave(
            {family: self._family(family, round(shares[family] * capacity)) for family in families}, shares
        )

    def _family(self, family: str, wanted: int) -> list[Task]:
        """`wanted` tasks with different questions."""
        random = Random(content_hash("tasks", self.seed, self.split, family))
        stream: Iterator[Draft | None] = getattr(self, f"_{family}")(random)
        tasks: dict[str, Task] = {}
        for draft in islice(stream, wanted * _ATTEMPTS):
            if draft is not None:
                task = self._task(draft)
                tasks.setdefault(task.id, task)
            if len(tasks) == wanted:
                return list(tasks.values())
        raise SuiteError(
            f"The factbook suite finds only {len(tasks)} of {wanted} {self.split} tasks of the family {family} "
            f"for seed {self.seed}: take another seed."
        )

    def _task(self, draft: Draft) -> Task:
        question = draft.question[0].upper() + draft.question[1:]
        return Task(
            id=content_hash(question, self.split),
            question=question,
            suite="factbook",
            family=draft.family,
            split=self.split,
            gold=draft.gold,
            meta=draft.meta,
        )

    def _operator(self, family: str, field: Field, random: Random) -> str:
        """In warm-up each field keeps to one operator, so that the other one is a trap; elsewhere either."""
        if self.split is Split.WARMUP:
            random = Random(content_hash("operator", self.seed, family, field.label))
        return OPERATORS[family][random.random() < (ARCHIVE_SHARE if family == "stale" else 0.5)]

    def _frames(self, family: str, random: Random) -> Iterator[Frame]:
        return endless(frames(family, self.split), random)

    def _neighbours(self, country: Country) -> tuple[Country, ...]:
        """The neighbours of a country that has two to six of them, all with pages and none with archive pages."""
        slugs = {border.slug: None for border in self.world.borders(country)}
        known = [slug for slug in slugs if slug is not None and slug not in self.site.stale]
        if len(known) != len(slugs) or not 2 <= len(known) <= 6:
            return ()
        return tuple(self.world.countries[slug] for slug in known)

    def _lookup(self, random: Random) -> Iterator[Draft | None]:
        order = self._frames("lookup", random)
        for turn, field in enumerate(endless(FIELDS, random)):
            phrasings = field.phrasings(self.split)
            if self.split is Split.WARMUP:
                # The curriculum: a field asked for almost by its label teaches where it stands.
                phrasings = (f"the {field.name} of {{c}}", *phrasings)
            phrasing = phrasings[(turn + turn // len(FIELDS)) % len(phrasings)]
            yield drafts.lookup(random.choice(self.pool.countries), field, phrasing, next(order))

    def _extremum(self, random: Random) -> Iterator[Draft | None]:
        order, centres = self._frames("extremum", random), endless(self.centres, random)
        for turn, field in enumerate(endless(NUMBERS, random)):
            phrasing = random.choice(field.phrasings(self.split)) if turn % 2 else None
            centre, operator = next(centres), self._operator("extremum", field, random)
            yield drafts.extremum(centre, self._neighbours(centre), field, operator, phrasing, next(order))

    def _count(self, random: Random) -> Iterator[Draft | None]:
        order = self._frames("count", random)
        for region, field in endless(self.pool.sets, random):
            operator = self._operator("count", field, random)
            yield drafts.count(region, self.world.regions[region], field, operator, next(order))

    def _bridge(self, random: Random) -> Iterator[Draft | None]:
        order, kinds = self._frames("bridge", random), endless(tuple(THING_CLAUSES), random)
        for field in endless(FIELDS, random):
            country, (section, label) = random.choice(self.pool.countries), next(kinds)
            draft = drafts.bridge(country, section, label, field, self.world, next(order))
            yield draft if draft and self._findable(draft.meta["thing"], country) else None

    def _findable(self, thing: str, country: Country) -> bool:
        """Whether the first page of results for a thing has a page of its country."""
        return any(f"/{country.slug}/" in f"{url}/" for _, url, _, _ in self.site.search(thing).hits)

    def _compare(self, random: Random) -> Iterator[Draft | None]:
        order = self._frames("compare", random)
        for turn, field in enumerate(endless(NUMBERS, random)):
            group = tuple(random.sample(self.pool.countries, 2 if turn % 4 == 3 else 3))
            yield drafts.compare(group, field, self._operator("compare", field, random), next(order))

    def _stale(self, random: Random) -> Iterator[Draft | None]:
        order, countries = self._frames("stale", random), endless(self.pool.stale, random)
        undated = [field for field in NUMBERS if not re.search(r"\b20\d\d\b", field.label)]
        for field in endless(undated, random):
            yield drafts.stale(next(countries), field, self._operator("stale", field, random), next(order))

    def _trap(self, random: Random) -> Iterator[Draft | None]:
        """A warm-up frame and phrasing with entities of this pool and one changed constraint."""
        families = ("lookup", "extremum", "count", "compare", "stale")
        streams = {
            family: endless([task for task in self.bait if task.family == family and _can_bait(task)], random)
            for family in families
        }
        for family in endless(families, random):
            for bait in islice(streams[family], _TRAP_ATTEMPTS):
                index = int(str(bait.meta["frame"]).rpartition("/")[2])
                draft, changed = self._trap_draft(bait, frames(family, Split.WARMUP)[index], random)
                if draft is not None:
                    meta = {"trap": family, "kin": family, "constraint": changed, "matched": bait.id}
                    yield replace(draft, family="trap", meta=draft.meta | meta)
                    break
            else:
                yield None

    def _trap_draft(self, bait: Task, frame: Frame, random: Random) -> tuple[Draft | None, str]:
        """The bait's question turned against it, and what was changed."""
        field = BY_LABEL[bait.meta["label"]]
        if bait.family == "lookup":
            contrast = random.choice(field.contrasts)
            changed = replace(field, label=contrast.label)
            return drafts.lookup(
                random.choice(self.pool.countries), changed, contrast.phrasing, frame
            ), contrast.changed
        kept = bait.meta["operator"]
        operator = next(other for other in OPERATORS[bait.family] if other != kept)
        draft: Draft | None
        if bait.family == "extremum":
            centre = random.choice(self.centres)
            draft = drafts.extremum(centre, self._neighbours(centre), field, operator, bait.meta["phrasing"], frame)
        elif bait.family == "count":
            regions = [region for region, counted in self.pool.sets if counted == field]
            region = random.choice(regions) if regions else ""
            draft = drafts.count(region, self.world.regions[region], field, operator, frame) if regions else None
        elif bait.family == "compare":
            group = tuple(random.sample(self.pool.countries, len(bait.meta["countries"])))
            draft = drafts.compare(group, field, operator, frame)
        else:
            draft = drafts.stale(random.choice(self.pool.stale), field, operator, frame)
        return draft, f"{operator} for {kept}"


def _can_bait(task: Task) -> bool:
    """Whether a warm-up task has a changed twin: a contrasting phrasing, the other operator, the older edition."""
    if task.family == "lookup":
        field = BY_LABEL[task.meta["label"]]
        return bool(field.contrasts) and task.meta["phrasing"] == field.warmup[0]
    return task.family != "stale" or task.meta["operator"] == "current"


def _interleave(tasks: dict[str, list[Task]], shares: dict[str, float]) -> list[Task]:
    """One list in which every prefix has the shares of the families within one task."""
    total = sum(map(len, tasks.values()))
    taken = dict.fromkeys(tasks, 0)
    ordered: list[Task] = []
    for position in range(1, total + 1):
        left = [family for family in tasks if taken[family] < len(tasks[family])]
        family = max(left, key=lambda name: shares[name] * position - taken[name])
        ordered.append(tasks[family][taken[family]])
        taken[family] += 1
    return ordered

"""The factbook tasks: disjoint pools, balanced prefixes, honest traps, and gold that the site's pages yield."""

import re
from collections import Counter
from functools import cache

import pytest

from providers.errors import ConfigError, SuiteError
from providers.tools import Tool
from providers.types import Split, Task
from synth.tasks.factbook import Factbook
from synth.tasks.factbook_fields import FIELDS, NUMBERS
from synth.tasks.factbook_frames import frames
from synth.tasks.factbook_score import matches, parse_number
from synth.tasks.factbook_site import load_site
from synth.tasks.factbook_tasks import MIX

PLAIN_WORDS = frozenset(
    "about above after again against among anywhere average away been before below both brings come comes during each "
    "every everybody everything from have here into like many more much number once only other others out over part "
    "people person portion proportion percentage fraction share slice weight extent some somebody than that their them "
    "then there these they this those through together under upon what whether where which while whoever whom whose "
    "with would year years country female usually".split()
)


@cache
def suite_tasks(seed: int = 0) -> dict[Split, list[Task]]:
    suite = Factbook(seed=seed)
    return {split: suite.tasks(split) for split in Split}


def content_words(phrasings: tuple[str, ...]) -> set[str]:
    words = re.findall(r"[a-z]{4,}", " ".join(phrasings).replace("{c}", "").lower())
    return {word.rstrip("s") for word in words if word not in PLAIN_WORDS}


def test_enough_tasks_with_ids_of_their_own() -> None:
    tasks = suite_tasks()
    assert len(tasks[Split.WARMUP]) >= 400
    assert len(tasks[Split.EXPLORE]) >= 800
    assert len(tasks[Split.DEV]) >= 600
    assert len(tasks[Split.TEST]) >= 600
    everything = [task for split in Split for task in tasks[split]]
    assert len({task.id for task in everything}) == len(everything)
    assert len({task.question for task in everything}) == len(everything)
    with pytest.raises(SuiteError, match=r"lower suite\.dev"):
        Factbook().tasks(Split.DEV, 10_000)


def test_more_exploration_tasks_leave_the_first_ones_and_the_other_splits_as_they_are() -> None:
    usual, larger = suite_tasks(), Factbook(seed=0, explore=2400)
    explore = larger.tasks(Split.EXPLORE)
    assert len(explore) == len({task.id for task in explore}) == 2400
    assert explore[:1000] == usual[Split.EXPLORE]
    assert all(larger.tasks(split) == usual[split] for split in (Split.WARMUP, Split.DEV, Split.TEST))
    with pytest.raises(ConfigError, match="number of tasks"):
        Factbook(explore=-1)


def test_the_seed_decides_the_tasks() -> None:
    assert Factbook(seed=0).tasks(Split.DEV, 50) == suite_tasks(0)[Split.DEV][:50]
    assert {task.id for task in suite_tasks(1)[Split.DEV]} != {task.id for task in suite_tasks(0)[Split.DEV]}


@pytest.mark.parametrize("split", list(Split))
def test_every_prefix_keeps_the_mix_of_families(split: Split) -> None:
    tasks = suite_tasks()[split]
    families = set(MIX) - ({"trap"} if split is Split.WARMUP else set())
    total = sum(MIX[family] for family in families)
    assert {task.family for task in tasks} == families
    for length in (20, 50, 150, 400):
        counted = Counter(task.family for task in tasks[:length])
        for family in families:
            assert abs(counted[family] - MIX[family] / total * length) <= 1.5


def test_pools_ask_about_different_countries_and_sets() -> None:
    asked = {
        split: {slug for task in tasks for slug in task.meta["countries"]} for split, tasks in suite_tasks().items()
    }
    sets = {
        split: {(task.meta["region"], task.meta["label"]) for task in tasks if "region" in task.meta}
        for split, tasks in suite_tasks().items()
    }
    splits = list(Split)
    for i, one in enumerate(splits):
        for other in splits[i + 1 :]:
            assert not asked[one] & asked[other]
            assert not sets[one] & sets[other]


def test_only_stale_tasks_and_their_traps_ask_about_countries_with_an_archive() -> None:
    stale = load_site().stale
    for tasks in suite_tasks().values():
        for task in tasks:
            involved = set(task.meta["countries"]) | set(task.meta.get("neighbours", ()))
            if "region" in task.meta:
                involved |= {country.slug for country in load_site().world.regions[task.meta["region"]]}
            expected = task.family == "stale" or task.meta.get("trap") == "stale"
            assert bool(involved & stale) == expected


def test_pools_share_no_frame() -> None:
    for family in set(MIX) - {"trap"}:
        texts = [
            frame.text(operator)
            for split in Split
            for frame in frames(family, split)
            for operator in {"extremum": ("max", "min"), "compare": ("max", "min"), "count": ("above", "below")}.get(
                family, ("current", "archive") if family == "stale" else ("",)
            )
        ]
        assert len(texts) == len(set(texts))
        assert all(len(frames(family, split)) >= 3 for split in Split)
    for split, tasks in suite_tasks().items():
        wanted = {Split.WARMUP} if split is Split.WARMUP else {split, Split.WARMUP}
        assert {task.meta["frame"].split("/")[1] for task in tasks} == wanted
        assert all(f"/{split}/" in task.meta["frame"] for task in tasks if task.family != "trap")


def test_phrasings_of_two_pools_share_no_content_word() -> None:
    assert len(FIELDS) >= 40
    for field in FIELDS:
        pools = [field.phrasings(split) for split in Split]
        assert all(len(pool) >= 2 for pool in pools)
        for i, one in enumerate(pools):
            for other in pools[i + 1 :]:
                assert not content_words(one) & content_words(other), (field.label, one, other)


def test_most_phrasings_avoid_the_words_of_the_label() -> None:
    telling = [
        phrasing
        for field in FIELDS
        for split in Split
        for phrasing in field.phrasings(split)
        if content_words((phrasing,)) & content_words((field.label,))
    ]
    assert len(telling) / (8 * len(FIELDS)) < 0.05


def test_traps_turn_a_stored_warmup_task_against_the_solver() -> None:
    warmup = {task.id: task for task in suite_tasks()[Split.WARMUP]}
    kinds = Counter()
    for split in (Split.EXPLORE, Split.DEV, Split.TEST):
        for trap in (task for task in suite_tasks()[split] if task.family == "trap"):
            bait = warmup[trap.meta["matched"]]
            kinds[trap.meta["trap"]] += 1
            assert trap.meta["trap"] == bait.family
            assert trap.meta["frame"] == bait.meta["frame"]
            assert not set(trap.meta["countries"]) & set(bait.meta["countries"])
            changed = [key for key in ("label", "operator") if trap.meta.get(key) != bait.meta.get(key)]
            assert len(changed) == 1, trap
    assert min(kinds[family] for family in ("lookup", "extremum", "count", "compare", "stale")) > 30


def test_the_tempting_operator_is_the_only_one_in_warmup() -> None:
    seen: dict[tuple[str, str], set[str]] = {}
    for task in suite_tasks()[Split.WARMUP]:
        if "operator" in task.meta:
            seen.setdefault((task.family, task.meta["label"]), set()).add(task.meta["operator"])
    assert all(len(operators) == 1 for operators in seen.values())


def test_what_acts_sees_no_gold() -> None:
    for tasks in suite_tasks().values():
        public = tasks[0].public()
        assert (public.gold, public.family, public.meta) == (None, "", {})


class Reader:
    """Answers a task from its meta by reading the site's pages, as a perfect agent would."""

    def __init__(self, search: Tool, open_page: Tool) -> None:
        self.search = search
        self.open_page = open_page
        self.sections = {field.label: field.section for field in FIELDS}

    async def field(self, slug: str, task: Task, site: str = "factbook") -> str:
        section = task.meta["section"].lower().replace(" ", "-")
        text = (await self.open_page.call(page=f"/{site}/{slug}/{section}")).observation
        found = re.search(rf"^{re.escape(task.meta['label'])}: (.*)$", text, re.MULTILINE)
        assert found is not None, (slug, task.meta["label"])
        return found[1]

    async def number(self, slug: str, task: Task) -> float:
        parsed = parse_number(await self.field(slug, task))
        assert parsed is not None
        return parsed[0]

    async def title(self, slug: str) -> str:
        return (await self.open_page.call(page=f"/factbook/{slug}")).observation.splitlines()[0].removeprefix("# ")

    async def best(self, slugs: list[str], task: Task) -> str:
        values = [(await self.number(slug, task), slug) for slug in slugs]
        return (max if task.meta["operator"] == "max" else min)(values)[1]

    async def answer(self, task: Task) -> str:
        kind, countries = task.meta.get("trap", task.family), task.meta["countries"]
        if kind == "extremum":
            page = (await self.open_page.call(page=f"/factbook/{countries[0]}/geography")).observation
            borders = re.search(r"^Land boundaries - border countries: (.*)$", page, re.MULTILINE)
            assert borders is not None
            return await self.title(await self.best(re.findall(r"\(/factbook/([a-z-]+)\)", borders[1]), task))
        if kind == "compare":
            best = await self.best(countries, task)
            return f"{await self.title(best)}; {await self.field(best, task)}"
        if kind == "count":
            region = (await self.open_page.call(page=f"Region: {task.meta['region']}")).observation
            values = [await self.number(s, task) for s in re.findall(r"\(/factbook/([a-z-]+)\)", region)]
            above = sum(value > task.meta["threshold"] for value in values)
            return str(above if task.meta["operator"] == "above" else len(values) - above)
        if kind == "stale" and task.meta["operator"] == "archive":
            return await self.field(countries[0], task, "archive")
        return await self.field(countries[0], task)


@pytest.mark.parametrize("split", list(Split))
async def test_reading_the_right_pages_yields_the_gold(split: Split) -> None:
    tasks = suite_tasks()[split]
    async with Factbook() as suite:
        reader = Reader(*suite.tools(tasks[0]))  # type: ignore[arg-type]
        for family in MIX:
            for task in [task for task in tasks if task.family == family][:12]:
                answer = await reader.answer(task)
                assert suite.score(task, answer).correct, (task, answer)


async def test_the_thing_of_a_bridge_is_on_the_page_and_found_by_search() -> None:
    bridges = [task for task in suite_tasks()[Split.DEV] if task.family == "bridge"][:40]
    async with Factbook() as suite:
        search, open_page = suite.tools(bridges[0])
        for task in bridges:
            slug = task.meta["countries"][0]
            assert task.meta["thing"] in task.question
            section = task.meta["thing_section"].lower().replace(" ", "-")
            page = (await open_page.call(page=f"/factbook/{slug}/{section}")).observation
            assert task.meta["thing"] in page
            assert f"/factbook/{slug}" in (await search.call(query=task.meta["thing"])).observation


async def test_the_wrong_site_and_the_stored_constraint_give_wrong_answers() -> None:
    async with Factbook() as suite:
        reader = Reader(*suite.tools(suite_tasks()[Split.DEV][0]))  # type: ignore[arg-type]
        for task in [task for task in suite_tasks()[Split.DEV] if task.family == "stale"][:20]:
            other = "factbook" if task.meta["operator"] == "archive" else "archive"
            answer = await reader.field(task.meta["countries"][0], task, other)
            assert suite.score(task, answer).correct is False


def test_bare_golds_are_not_guessable_from_the_question() -> None:
    for tasks in suite_tasks().values():
        for task in tasks:
            if task.family in ("lookup", "bridge", "stale") and task.gold["kind"] == "number":
                figures = re.findall(r"-?[\d.,]*\d", task.question)
                assert not any(
                    matches(task.gold, figure) for figure in figures if figure not in ("2023", "2022", "2019")
                )


def test_numbers_can_be_compared() -> None:
    assert len(NUMBERS) >= 35

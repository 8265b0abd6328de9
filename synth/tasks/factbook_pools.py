"""Which countries, regions and fields each pool asks about; disjoint, and dealt out by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from providers.types import Split, content_hash
from synth.tasks.factbook_data import Country
from synth.tasks.factbook_fields import NUMBERS, Field
from synth.tasks.factbook_site import Site

T = TypeVar("T")

SHARES = {Split.WARMUP: 0.22, Split.EXPLORE: 0.32, Split.DEV: 0.23, Split.TEST: 0.23}
LEAST_REGION, MOST_REGION = 5, 14


@dataclass(frozen=True)
class Pool:
    """What one split may ask about. `sets` are (region, field) pairs for counting."""

    countries: tuple[Country, ...]
    stale: tuple[Country, ...]
    sets: tuple[tuple[str, Field], ...]


def deal(items: Sequence[T], random: Random) -> dict[Split, tuple[T, ...]]:
    """Shuffles the items and deals them to the splits by `SHARES`."""
    shuffled = random.sample(items, len(items))
    dealt, start, upto = {}, 0, 0.0
    for split, share in SHARES.items():
        upto += share
        end = round(upto * len(shuffled))
        dealt[split] = tuple(shuffled[start:end])
        start = end
    return dealt


def make_pools(site: Site, seed: int) -> dict[Split, Pool]:
    """The pools of all splits. Regions with archive pages are left out of counting."""
    world = site.world
    fresh = [country for slug, country in world.countries.items() if slug not in site.stale]
    stale = [country for slug, country in world.countries.items() if slug in site.stale]
    sets = [
        (region, field)
        for region, members in world.regions.items()
        if LEAST_REGION <= len(members) <= MOST_REGION and not any(country.slug in site.stale for country in members)
        for field in NUMBERS
        if all(country.quantity(field.section, field.label) for country in members)
    ]
    countries = deal(fresh, Random(content_hash("countries", seed)))
    old = deal(stale, Random(content_hash("stale", seed)))
    pairs = deal(sets, Random(content_hash("sets", seed)))
    return {split: Pool(countries[split], old[split], pairs[split]) for split in Split}


def endless(items: Sequence[T], random: Random) -> Iterator[T]:
    """The items again and again, in a new order each time round: covers all before it repeats one."""
    while items:
        yield from random.sample(items, len(items))

from __future__ import annotations

from random import Random

from providers.types import Split, Task, content_hash
from synth.tasks.factbook_fields import FIELDS
from synth.tasks.factbook_site import Site


def make_tasks(site: Site, seed: int) -> dict[Split, list[Task]]:
    frames = {
        Split.WARMUP: "What is {phrase}?",
        Split.EXPLORE: "Find {phrase}.",
        Split.DEV: "Please tell me {phrase}.",
        Split.TEST: "I need to know {phrase}.",
    }
    slugs = sorted(set(site.world.countries) - site.stale)
    Random(content_hash("pools", seed)).shuffle(slugs)
    tasks: dict[Split, list[Task]] = {split: [] for split in Split}
    for index, slug in enumerate(slugs):
        split = list(Split)[index % 4]
        country = site.world.countries[slug]
        for f in FIELDS:
            quantity = country.quantity(f.section, f.label)
            if quantity is None:
                continue
            for phrase in f.phrasings[split]:
                question = frames[split].format(phrase=phrase.format(c=country.name))
                tasks[split].append(
                    Task(
                        id=content_hash(question, split),
                        question=question,
                        suite="factbook",
                        family="lookup",
                        split=split,
                        gold={"kind": "number", "value": quantity.value, "unit": quantity.unit},
                        meta={"label": f.label, "section": f.section, "countries": [slug]},
                    )
                )
    return tasks

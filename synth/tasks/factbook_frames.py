"""Sentence patterns of the factbook suite's questions: three per family and pool, none used by two pools.

Slots: `{x}` a noun phrase for the field, `{name}` the field's plain name, `{c}` a country, `{list}` two or three
countries, `{r}` a region, `{n}` a threshold, `{clause}` what a country is known by. Two-sided frames are pairs: for the
first and for the second operator of the family.
"""

from __future__ import annotations

from dataclasses import dataclass

from providers.types import Split

Pair = tuple[str, str]

OPERATORS = {
    "extremum": ("max", "min"),
    "compare": ("max", "min"),
    "count": ("above", "below"),
    "stale": ("current", "archive"),
}


def _pair(template: str, first: str, second: str) -> Pair:
    return template.replace("{op}", first), template.replace("{op}", second)


LOOKUP: dict[Split, tuple[str, ...]] = {
    Split.WARMUP: ("Tell me {x}.", "Find out {x}.", "I would like to know {x}."),
    Split.EXPLORE: ("Please look up {x}.", "Can you work out {x}?", "A friend asks about {x}."),
    Split.DEV: ("Report {x}.", "Could you check {x}?", "It would help us to hear {x}."),
    Split.TEST: ("Determine {x}.", "My homework is about {x}.", "Do you happen to have at hand {x}?"),
}

BRIDGE: dict[Split, tuple[str, ...]] = {
    Split.WARMUP: (
        "What is the {name} of the country {clause}?",
        "There is a country {clause}; what is its {name}?",
        "Find the country {clause} and give its {name}.",
    ),
    Split.EXPLORE: (
        "Identify the state {clause}, then read off the {name}.",
        "Look for the state {clause}. Which entry does it have under {name}?",
        "Tell us about the state {clause}: the {name} is wanted.",
    ),
    Split.DEV: (
        "The nation {clause}: what does it report as the {name}?",
        "For the nation {clause}, please note down the {name}.",
        "Starting from the nation {clause}, how does the {name} read?",
    ),
    Split.TEST: (
        "I am thinking of the land {clause}. What about the {name} there?",
        "What has the land {clause} got for the {name}?",
        "Somebody described a land {clause}; quote the {name} for it.",
    ),
}

EXTREMUM: dict[Split, tuple[Pair, ...]] = {
    Split.WARMUP: (
        _pair("Among the countries that border {c}, which one has the {op} value for {x}?", "largest", "smallest"),
        _pair("Which neighbour of {c} has the {op} figure when it comes to {x}?", "largest", "smallest"),
        _pair("Look at all the neighbours of {c}: where is the number {op} for {x}?", "largest", "smallest"),
    ),
    Split.EXPLORE: (
        _pair("Rank the states next to {c} by {x}: who comes {op}?", "first", "last"),
        _pair("Which of the states adjoining {c} comes out {op} on {x}?", "highest", "lowest"),
        _pair("Of the states adjacent to {c}, whose statistic is the {op} for {x}?", "highest", "lowest"),
    ),
    Split.DEV: (
        _pair("Set everyone who shares a frontier with {c} against each other by {x}: who {op}?", "leads", "trails"),
        _pair("Whose result is the {op} in {x}, out of those with a common boundary with {c}?", "greatest", "least"),
        _pair("Beyond the frontier of {c}, which nation right there reports the {op} on {x}?", "greatest", "least"),
    ),
    Split.TEST: (
        _pair("Go through the lands surrounding {c}; which one is at the {op} for {x}?", "top", "bottom"),
        _pair("Which land touching {c} would be found at the {op} of a table of {x}?", "head", "foot"),
        _pair("In the ring of lands around {c}, who has the {op} as regards {x}?", "maximum", "minimum"),
    ),
}

COUNT: dict[Split, tuple[Pair, ...]] = {
    Split.WARMUP: (
        _pair("In how many countries of the region {r} is the {name} {op} {n}?", "above", "below"),
        _pair("Count the countries of the region {r} where the {name} is {op} {n}.", "above", "below"),
        _pair("For the region {r}: how many countries show a value {op} {n} for the {name}?", "above", "below"),
    ),
    Split.EXPLORE: (
        _pair("How many states that belong to {r} {op} {n} in the {name}?", "exceed", "stay under"),
        _pair("Across {r}, what number of states have the {name} {op} {n}?", "over", "under"),
        _pair("Take {r} state by state; how many are {op} than {n} on the {name}?", "higher", "lower"),
    ),
    Split.DEV: (
        _pair("Of all nations listed under {r}, how many {op} {n} for the {name}?", "surpass", "fall short of"),
        _pair("What is the count of nations in {r} whose {name} {op} {n}?", "goes beyond", "remains beneath"),
        _pair("Tally the nations of {r} that report the {name} as {op} than {n}.", "greater", "less"),
    ),
    Split.TEST: (
        _pair("How often does the {name} {op} {n} among the lands of {r}?", "top", "miss"),
        _pair("Going through {r} land by land, how often is the {name} {op} {n}?", "in excess of", "short of"),
        _pair("Check the lands within {r}: at how many does the {name} {op} {n}?", "pass", "not reach"),
    ),
}

COMPARE: dict[Split, tuple[Pair, ...]] = {
    Split.WARMUP: (
        _pair("Which of {list} has the {op} {name}, and what is the figure?", "highest", "lowest"),
        _pair("Compare {list}: who has the {op} {name}? Give the country and the figure.", "highest", "lowest"),
        _pair("Between {list}, find the one with the {op} {name} and give its figure.", "highest", "lowest"),
    ),
    Split.EXPLORE: (
        _pair("Put {list} side by side: who is {op} in the {name}, and with what value?", "ahead", "behind"),
        _pair("Out of {list}, name the state whose {name} is {op}, together with its value.", "largest", "smallest"),
        _pair("{list}: which state has the {op} {name}? Add the value.", "biggest", "smallest"),
    ),
    Split.DEV: (
        _pair("Weigh {list} against each other on the {name}; who {op}, at what number?", "leads", "trails"),
        _pair("Given {list}, the {op} {name} belongs to which nation, and how much is it?", "greatest", "least"),
        _pair("Considering {list}, report the nation with the {op} {name} plus the number.", "greatest", "least"),
    ),
    Split.TEST: (
        _pair("Line up {list} by {name}. Which land stands at the {op}, and what does it score?", "top", "bottom"),
        _pair("For {list}, tell me which land records the {op} {name} and the amount.", "maximum", "minimum"),
        _pair("Who has the {op} {name} of {list}? Mention the amount as well.", "top", "bottom"),
    ),
}

STALE: dict[Split, tuple[Pair, ...]] = {
    Split.WARMUP: (
        _pair("What is the {name} of {c} {op}?", "as things stand today", "in the archived edition of 2019"),
        _pair("Give the {name} of {c} {op}.", "as things stand today", "in the archived edition of 2019"),
        _pair("I need the {name} of {c} {op}.", "as things stand today", "in the archived edition of 2019"),
    ),
    Split.EXPLORE: (
        _pair("Read off the {name} that {op} for {c}.", "currently holds", "the 2019 archive holds"),
        _pair("Which {name} does {op} list for {c}?", "the newest issue", "the issue archived back in 2019"),
        _pair("Look up, for {c}, the {name} {op}.", "that is up to date", "of the archived 2019 issue"),
    ),
    Split.DEV: (
        _pair("Going by {op}, report the {name} of {c}.", "the figures valid now", "the archive figures from 2019"),
        _pair("What do {op} say about the {name} of {c}?", "present records", "the archived 2019 records"),
        _pair("How does the {name} of {c} read {op}?", "at the moment", "in the archive dated 2019"),
    ),
    Split.TEST: (
        _pair("If we trust {op}, what does {c} have for the {name}?", "the latest update", "the 2019 archive"),
        _pair("Quote the {name} of {c} {op}.", "at the present time", "from the archive as of 2019"),
        _pair("Concerning {c}: the {name}, please, {op}.", "in its latest version", "in the archived version of 2019"),
    ),
}

_ONE_SIDED = {"lookup": LOOKUP, "bridge": BRIDGE}
_TWO_SIDED = {"extremum": EXTREMUM, "count": COUNT, "compare": COMPARE, "stale": STALE}


@dataclass(frozen=True)
class Frame:
    """One sentence pattern of a family and pool."""

    family: str
    split: Split
    index: int

    @property
    def id(self) -> str:
        return f"{self.family}/{self.split}/{self.index}"

    def text(self, operator: str = "") -> str:
        """The pattern; two-sided families need one of their two operators."""
        if self.family in _ONE_SIDED:
            return _ONE_SIDED[self.family][self.split][self.index]
        return _TWO_SIDED[self.family][self.split][self.index][OPERATORS[self.family].index(operator)]


def frames(family: str, split: Split) -> tuple[Frame, ...]:
    """All frames of a family in one pool."""
    patterns = _ONE_SIDED[family][split] if family in _ONE_SIDED else _TWO_SIDED[family][split]
    return tuple(Frame(family, split, index) for index in range(len(patterns)))


THING_CLAUSES: dict[tuple[str, str], dict[Split, str]] = {
    ("Government", "Capital - name"): {
        Split.WARMUP: "whose capital is {t}",
        Split.EXPLORE: "governed from {t}",
        Split.DEV: "that has {t} as its seat of government",
        Split.TEST: "with {t} for a capital city",
    },
    ("Communications", "Internet country code"): {
        Split.WARMUP: "whose internet country code is {t}",
        Split.EXPLORE: "whose web addresses end in {t}",
        Split.DEV: "that owns the domain {t}",
        Split.TEST: "with {t} at the end of its sites",
    },
    ("Economy", "Exchange rates - Currency"): {
        Split.WARMUP: "whose currency is {t}",
        Split.EXPLORE: "that mints {t}",
        Split.DEV: "that pays in {t}",
        Split.TEST: "with {t} as its money",
    },
    ("Government", "National anthem(s) - title"): {
        Split.WARMUP: "whose national anthem is {t}",
        Split.EXPLORE: "that sings {t} as its anthem",
        Split.DEV: "that has the official song {t}",
        Split.TEST: "with {t} as its hymn",
    },
    ("Geography", "Elevation - highest point"): {
        Split.WARMUP: "whose highest point is {t}",
        Split.EXPLORE: "whose tallest peak is {t}",
        Split.DEV: "that culminates in {t}",
        Split.TEST: "with {t} as its top elevation",
    },
    ("People and Society", "Nationality - adjective"): {
        Split.WARMUP: "whose nationality adjective is {t}",
        Split.EXPLORE: "whose people are called {t}",
        Split.DEV: "that issues {t} passports",
        Split.TEST: "with {t} citizens",
    },
}
"""What a country can be known by (section and label), and how each pool says so."""

"""Made runs that the kit offers: each reads one label of one page, so any distiller finds the lesson in it."""

from __future__ import annotations

from typing import Any

from providers.types import Lineage, Outcome, Step, Trajectory

SITES = ((1, "Almanac", 2021), (2, "Gazette", 2014))

CORRECT = Outcome(correct=True, source="gold")
WRONG = Outcome(correct=False, source="gold")
UNKNOWN = Outcome(correct=None)

TOPICS = (
    ("coal yield", "Coal output in tons", "Wexmoor"),
    ("railway width", "Track gauge of railway lines", "Tarsk"),
    ("river soundings", "Depth of river beds", "Oldhaven"),
    ("border crossings", "Posts along border sections", "Quillan"),
    ("harvest weight", "Tonnage per harvest season", "Brindle"),
    ("lighthouse size", "Height above lighthouse base", "Marrow Point"),
    ("copper sales", "Exports by copper merchants", "Zelt"),
    ("parliament benches", "Seats within parliament chamber", "Novgrad"),
    ("glacier spread", "Area under glacier ice", "Hvitfell"),
    ("bridge fee", "Toll per bridge passage", "Sandoval"),
    ("orchid kinds", "Species among orchid flora", "Piriwa"),
    ("vaccine reach", "Coverage through vaccine rounds", "Etherley"),
)
"""What is asked for, the label where it stands, and of whom. The label is told by the page alone: a share of a word."""

WORLD_TOPICS = (
    ("煤炭开采", "煤炭总产量（吨）", "北山"),
    ("鉄道の長さ", "営業キロ・鉄道路線", "青森野"),
    ("عمق النهر", "قياس النهر بالأمتار", "الواحة"),
    ("длина границы", "Протяжённость по линии границы", "Зареченск"),
    ("ความสูง ประภาคาร", "ระดับ ประภาคาร เมตร", "เกาะแก้ว"),
    ("tỉ lệ tiêm", "Độ phủ tiêm chủng quốc gia", "Hải Vân"),
    ("Höhe des Ortes", "Höhe über Normalnull, amtlich", "Stra\u00dfe am Fl\u00fc\u00dfchen"),
    ("cafe\u0301s du centre", "Nombre d\u2019e\u0301tablissements cafe\u0301s", "Cote\u0301 d\u2019E\u0301tain"),
    ("🦩 nests", "Breeding pairs 🦩 flamingo", "Lagoon 👩‍👩‍👧"),
)
"""Chinese, Japanese, Arabic, Russian, Thai, Vietnamese, German, combining marks, emoji."""


def made_run(
    asked: str, label: str, subject: str, *, seed: int = 0, task: str = "", page: str = "", thought: str = ""
) -> Trajectory:
    """A run that finds "subject: Figures" on two sites, opens one, reads `label` and answers with its value."""
    title = f"{subject}: Figures"
    value = f"{17 + seed} units"
    offered = "\n".join(f"{n}. [{title}](/{site}) - {site} - {year}" for n, site, year in SITES)
    text = f"# {title}\nURL: /Almanac\nSite: Almanac\nLast updated: 2021\n{label}: {value}\n{page}"
    reading = f'Read "{label}" on "{title}". Answer with the value of the label.'
    steps = (
        _step(0, "Two sites may have it.", "search", {"query": subject}, offered),
        _step(1, f"The newer site has {subject}. {thought}", "open", {"page": title}, text),
        _step(2, reading, "answer", {"text": value}, "answered"),
    )
    question = question_of(asked, subject)
    task = task or f"{asked}/{subject}"
    return Trajectory.make(task_id=task, question=question, agent="kit", seed=seed, steps=steps, answer=value)


def question_of(asked: str, subject: str) -> str:
    return f"What is the {asked} of {subject}?"


def _step(index: int, thought: str, tool: str, arguments: dict[str, Any], observation: str) -> Step:
    lineage = Lineage(source="/Almanac", trust="page")
    return Step(index=index, thought=thought, tool=tool, arguments=arguments, observation=observation, lineage=lineage)


def empty_run() -> Trajectory:
    """A run of an empty question that did nothing and gave no answer."""
    return Trajectory.make(task_id="empty", question="", agent="kit", seed=0)


def mixed_runs() -> list[tuple[Trajectory, Outcome]]:
    """A run per topic: correct, wrong and unscored ones."""
    outcomes = (CORRECT, CORRECT, WRONG, CORRECT, UNKNOWN, CORRECT)
    return [(made_run(*topic), outcomes[n % 6]) for n, topic in enumerate(TOPICS)]


def correct_runs(topics: tuple[tuple[str, str, str], ...] = TOPICS) -> list[tuple[Trajectory, Outcome]]:
    """A correct run per topic."""
    return [(made_run(*topic), CORRECT) for topic in topics]

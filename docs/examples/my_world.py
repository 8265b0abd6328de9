"""A world of one's own: a suite of tasks, an agent and a memory, brought together by my_world.yaml.

From this folder: PYTHONPATH=. memroute run my_world.yaml
"""

import random

from memroute import Outcome, Parameter, ProviderCard, Retrieval, SpaceProvider, Step, Task, ToolResult, Trajectory

DRAWERS = ("kitchen", "workshop", "desk", "hall")
PLACES = {
    "spoon": "kitchen",
    "screw": "workshop",
    "stamp": "desk",
    "leash": "hall",
    "pencil": "desk",
    "nail": "workshop",
}


class Drawers:
    """A suite of tasks: which drawer is a thing in?"""

    name = "drawers"

    def __init__(self, seed=0):
        self.seed = seed

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    def tasks(self, split, limit=None):
        things = sorted(PLACES)
        random.Random(f"{self.seed} {split}").shuffle(things)
        return [
            Task(
                id=f"{split}-{n}",
                question=f"Where is {things[n % 6]} {n}?",
                suite=self.name,
                split=split,
                family=things[n % 6],
                gold=PLACES[things[n % 6]],
            )
            for n in range(60 if limit is None else limit)
        ]

    def score(self, task, answer):
        return Outcome(correct=answer == task.gold, source="gold")

    def tools(self, task):
        return (Look(task.question.split()[2]),)


class Look:
    """The suite's only tool."""

    name = "look"
    doc = "Look into a drawer."
    parameters = (Parameter(name="drawer"),)

    def __init__(self, thing):
        self.thing = thing

    async def call(self, *, drawer):
        found = PLACES[self.thing] == drawer
        return ToolResult(observation=f"The {self.thing} is in the {drawer}." if found else f"Not in the {drawer}.")


class Searcher:
    """An agent that looks first where memory says."""

    name = "searcher"

    async def run(self, task, tools, session, *, seed, max_steps):
        drawers = random.Random(seed).sample(DRAWERS, len(DRAWERS))
        drawers.sort(key=lambda drawer: drawer not in session.memory)
        steps, answer = [], None
        for index, drawer in enumerate(drawers[:max_steps]):
            await session.step(tuple(steps))
            seen = await tools[0].call(drawer=drawer)
            steps.append(Step(index=index, tool="look", arguments={"drawer": drawer}, observation=seen.observation))
            if seen.observation.startswith("The"):
                answer = drawer
                break
        return Trajectory.make(
            task_id=task.id,
            question=task.question,
            agent=self.name,
            seed=seed,
            steps=tuple(steps),
            answer=answer,
            injections=session.injections,
        )


class LastWords(SpaceProvider):
    """A memory: what the last step of a solved task showed, found by the question's meaning."""

    CARD = ProviderCard(
        name="last_words",
        title="Last words",
        family="similarity",
        gate="success",
        top_k=1,
        stores="the last observation of a solved task",
        retrieves="that of the most similar question",
    )

    async def distil(self, trajectory, outcome):
        return trajectory.steps[-1].observation if trajectory.steps else None

    def draft(self, trajectory, artefact):
        return [self.space.new_record("words", trajectory, 0, text=trajectory.question, payload={"words": artefact})]

    def lead(self, query):
        hits = self.space.search_dense(query.embedding, self.card.top_k)
        return (hits[0][0].payload["words"], hits[0][0].id) if hits else None

    def find(self, query):
        first = self.lead(query)
        if first is None:
            return Retrieval(provider=self.card.name)
        return Retrieval(provider=self.card.name, text=first[0], item_ids=(first[1],))

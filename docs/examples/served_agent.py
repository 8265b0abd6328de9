"""An agent of thirty lines with memory: it asks a running `memroute serve` before, during and after its task.

Start a server (`memroute serve configs/embedded.yaml`), then: python docs/examples/served_agent.py "What is ...?"
"""

from __future__ import annotations

import sys

from memroute import Outcome, Step, SyncMemoryClient


def act(question: str, memory: str, working: str, steps: list[Step]) -> Step | str:
    """Your language model goes here: an action with what came back, or the answer. This one looks once, and guesses."""
    if steps:
        return steps[-1].observation.rpartition(": ")[2]
    prompt = "\n\n".join(part for part in (memory, working, question) if part)
    return Step(index=0, tool="look", arguments={"at": question}, observation=f"Read {len(prompt)} characters: 42")


def main(question: str, url: str = "http://127.0.0.1:8080") -> None:
    with SyncMemoryClient(url) as client:
        session = client.begin(question)
        steps: list[Step] = []
        while isinstance(move := act(question, session.memory, session.step(steps), steps), Step):
            steps.append(move)
        ended = session.end(move, steps=steps, outcome=Outcome(correct=None))
        decision = session.begun.decision
        print(f"{decision.policy} chose {', '.join(decision.providers) or 'no memory'}; the answer is {move}")
        for receipt in ended.receipts:
            print(f"  {receipt.provider}: {receipt.status} {receipt.reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A distiller that asks a chat model: the artefacts of `Distiller`, each by a prompt of its own in `prompts/`.

A call that fails, or an answer that is not of the asked form even when told what is wrong, raises `ModelError`; a model
that finds nothing to learn says so in the form itself. The one is never taken for the other.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lm.types import Message
from providers.base import (
    Advice,
    AdviceItem,
    Candidate,
    Experience,
    Insight,
    Narrative,
    PastRun,
    Principle,
    ReasoningItem,
    Script,
    SheetEntry,
    SheetItem,
    Shortcut,
    Skill,
    Strategies,
    Vote,
    Workflow,
)
from providers.distill import answers
from providers.distill.quoting import TEXT_CHARACTERS, quoted, run_lines, shortened, tools_of, verdict_lines
from providers.errors import ProviderError
from providers.types import Outcome, Parameter, Trajectory

if TYPE_CHECKING:
    import jinja2

    from lm.client import ChatModel
    from providers.governance.verifier import Verdict

MAX_INSIGHTS = 4
MAX_VOTES = 4
MAX_STRATEGIES = 2
MAX_TIPS = 5
MAX_REASONING = 3
MAX_CANDIDATES = 3
SENTENCE_CHARACTERS = 20
"""Least length of a strategy."""
INSIGHT_WORDS = 30
SCRIPT_WORDS = 100
STEP_WORDS = 150
WORKFLOW_WORDS = 200
SUMMARY_WORDS = 399

Answer = TypeVar("Answer", bound=answers.Answer)


class LMDistiller:
    """Every method is one call of the model but `skill`, which asks once more where its code is refused."""

    def __init__(self, model: ChatModel, max_tokens: int = 1024) -> None:
        """`max_tokens` bounds each answer."""
        self._model = model
        self._max_tokens = max_tokens

    # Lessons

    async def insights(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Insight, ...]:
        """At most four imperative lessons of at most 30 words (MemAgent B.3.4)."""
        answer = await self._of_run("insights", answers.Lines, trajectory, outcome, words=INSIGHT_WORDS)
        kind = "failure" if outcome.correct is False else "success"
        lines = [first_words(line, INSIGHT_WORDS) for line in _lessons(answer.sentences)[:MAX_INSIGHTS]]
        return tuple(Insight.model_validate({"text": line, "kind": kind}) for line in lines)

    async def votes(self, trajectory: Trajectory, outcome: Outcome, known: Sequence[Insight]) -> tuple[Vote, ...]:
        """At most four of ExpeL's operations, one per known lesson; those without their lesson or text are left out."""
        shape = answers.votes_answer(len(known))
        lessons = [quoted(lesson.text) for lesson in known]
        answer: Any = await self._of_run("votes", shape, trajectory, outcome, known=lessons, words=INSIGHT_WORDS)
        kind = "failure" if outcome.correct is False else "success"
        votes: dict[object, Vote] = {}
        for given in answer.votes:
            writes = given.operation in ("ADD", "EDIT")
            if (writes and not _lessons([given.text])) or (given.operation != "ADD" and given.lesson is None):
                continue
            fields = {
                "operation": given.operation,
                "lesson": None if given.operation == "ADD" else given.lesson,
                "text": first_words(given.text, INSIGHT_WORDS) if writes else "",
                "kind": kind if given.operation == "ADD" else known[given.lesson].kind,
            }
            votes.setdefault(given.text if given.operation == "ADD" else given.lesson, Vote.model_validate(fields))
        return tuple(votes.values())[:MAX_VOTES]

    async def strategies(self, trajectory: Trajectory, outcome: Outcome) -> Strategies | None:
        """At most two sentences of each sort, of 20 characters or more."""
        answer = await self._of_run("strategies", answers.StrategiesAnswer, trajectory, outcome)
        strategic, operational = (
            tuple(line for line in _lessons(lines) if len(line) >= SENTENCE_CHARACTERS)[:MAX_STRATEGIES]
            for lines in (answer.strategic, answer.operational)
        )
        if not strategic and not operational:
            return None
        return Strategies(strategic=strategic, operational=operational)

    async def advise(self, question: str, items: Sequence[AdviceItem], k: int) -> Advice | None:
        """The sentences that the model chose, and its advice from them."""
        if not items or k < 1:
            return None
        lines = [quoted(item.model_dump()) for item in items]
        shape = answers.picks_answer(len(items), k)
        answer: Any = await self._ask("advise", shape, question=_text(question), items=lines, most=k)
        picked = tuple(dict.fromkeys(answer.picked))
        return Advice(picked=picked, text=answer.advice) if picked and answer.advice else None

    async def tips(self, trajectory: Trajectory, outcome: Outcome) -> tuple[str, ...]:
        answer = await self._of_run("tips", answers.Lines, trajectory, outcome)
        return tuple(_lessons(answer.sentences)[:MAX_TIPS])

    async def principle(self, trajectory: Trajectory, outcome: Outcome) -> Principle | None:
        """Cautionary from a wrong run, guiding from any other."""
        shape = answers.PrincipleAnswer
        found = (await self._of_run("principle", shape, trajectory, outcome, words=INSIGHT_WORDS)).principle
        if found is None:
            return None
        return Principle(
            description=first_words(found.description, INSIGHT_WORDS),
            kind="cautionary" if outcome.correct is False else "guiding",
            triplets=tuple((each.subject, each.relation, each.object) for each in found.triplets),
        )

    async def same_principle(self, first: Principle, second: Principle) -> bool:
        one, other = quoted(first.description), quoted(second.description)
        return (await self._ask("same_principle", answers.SameAnswer, first=one, second=other)).same

    async def reasoning(self, trajectory: Trajectory, outcome: Outcome) -> tuple[ReasoningItem, ...]:
        """At most three items, by different instructions for successes and failures."""
        answer = await self._of_run("reasoning", answers.ReasoningAnswer, trajectory, outcome)
        return tuple(ReasoningItem(**item.model_dump()) for item in answer.items[:MAX_REASONING])

    async def candidates(self, trajectory: Trajectory, verdict: Verdict) -> tuple[Candidate, ...]:
        """At most three memories by MemGuard's induction prompt (B.3), which is shown the verdict with its reasons."""
        answer = await self._ask(
            "candidates",
            answers.CandidatesAnswer,
            run=run_lines(trajectory, None),
            verdict=verdict_lines(verdict),
            memories=[_text(shown.text) for shown in trajectory.injections if shown.phase == "begin"],
        )
        return tuple(Candidate.model_validate(each.model_dump()) for each in answer.records[:MAX_CANDIDATES])

    # Procedures

    async def workflow(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None:
        """The run as numbered steps in which all that the question gave is a variable."""
        shape = answers.WorkflowAnswer
        found = (await self._of_run("workflow", shape, trajectory, outcome, words=WORKFLOW_WORDS)).workflow
        if found is None:
            return None
        steps = "\n".join(f"{number}. {step}" for number, step in enumerate(found.steps, 1))
        variables = tuple(name.strip("{}") for name in found.variables)
        return Workflow(query=found.query, text=first_words(steps, WORKFLOW_WORDS), variables=variables)

    async def shortcut(self, trajectory: Trajectory, outcome: Outcome) -> Shortcut | None:
        found = (await self._of_run("shortcut", answers.ShortcutAnswer, trajectory, outcome)).shortcut
        return None if found is None else Shortcut.model_validate(found.model_dump())

    async def skill(self, trajectory: Trajectory, outcome: Outcome) -> Skill | None:
        """A function whose name and parameters are read from its code; refused code is sent back once."""
        from providers.skills import check_code

        refused = ""
        for attempt in ("first", "repaired"):
            values = {"tools": tools_of(trajectory), "refused": refused}
            found = (await self._of_run("skill", answers.SkillAnswer, trajectory, outcome, **values)).skill
            if found is None:
                return None
            name, parameters = signature_of(found.code)
            try:
                check_code(name, found.code)
            except ProviderError as error:
                if attempt == "first":
                    refused = quoted(str(error))
                    continue
            return Skill(name=name, parameters=parameters, doc=found.doc, code=found.code)
        raise AssertionError("unreachable: the second attempt returns")

    async def script(self, trajectory: Trajectory, outcome: Outcome) -> Script | None:
        limits = {"script_words": SCRIPT_WORDS, "words": STEP_WORDS}
        answer = await self._of_run("script", answers.ScriptAnswer, trajectory, outcome, **limits)
        return _script(answer)

    async def revised_script(self, script: Script, trajectory: Trajectory) -> Script | None:
        """The script as the failed run that it was shown to teaches."""
        limits = {"script_words": SCRIPT_WORDS, "words": STEP_WORDS}
        shape, shown = answers.ScriptAnswer, quoted(script.model_dump())
        return _script(await self._of_run("revised_script", shape, trajectory, None, script=shown, **limits))

    # Retellings

    async def condensed_run(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return await self._note("condensed_run", trajectory, outcome, WORKFLOW_WORDS)

    async def run_summary(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return await self._note("run_summary", trajectory, outcome, SUMMARY_WORDS)

    async def digest(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        """The model is not told whether the answer was correct, so its digest cannot say it."""
        return await self._note("digest", trajectory, None, STEP_WORDS)

    async def narrative(self, trajectory: Trajectory, outcome: Outcome) -> Narrative | None:
        shape = answers.NarrativeAnswer
        found = (await self._of_run("narrative", shape, trajectory, outcome, words=STEP_WORDS)).narrative
        if found is None:
            return None
        return Narrative(summary=found.summary, digest=first_words("\n".join(found.steps), STEP_WORDS))

    async def experience(self, trajectory: Trajectory, outcome: Outcome) -> Experience | None:
        shape = answers.ExperienceAnswer
        found = (await self._of_run("experience", shape, trajectory, outcome, words=STEP_WORDS)).experience
        return None if found is None else Experience.model_validate(found.model_dump())

    async def importance(self, trajectory: Trajectory, outcome: Outcome) -> int:
        return (await self._of_run("importance", answers.ImportanceAnswer, trajectory, outcome)).importance

    # Asks about what is stored

    async def ratings(self, question: str, notes: Sequence[str]) -> tuple[int, ...]:
        if not notes:
            return ()
        shown, shape = [_text(note) for note in notes], answers.ratings_answer(len(notes))
        answer: Any = await self._ask("ratings", shape, question=_text(question), notes=shown)
        return tuple(answer.ratings)

    async def search_text(self, question: str) -> str:
        """The question itself where the model names nothing."""
        return (await self._ask("search_text", answers.Free, question=_text(question))).text or question

    async def suggestions(self, question: str, experiences: Sequence[Experience]) -> str:
        if not experiences:
            return ""
        shown = [quoted({"plan": each.plan, "search_plan": each.search_plan}) for each in experiences]
        answer = await self._ask("suggestions", answers.Lines, question=_text(question), experiences=shown)
        return "\n".join(f"- {line}" for line in answer.sentences)

    async def refinement(self, question: str, experiences: Sequence[Experience], suggestions: str) -> str:
        if not experiences:
            return ""
        lessons = [quoted({"lessons": each.lessons, "search_lessons": each.search_lessons}) for each in experiences]
        values = {"question": _text(question), "suggestions": _text(suggestions), "experiences": lessons}
        return (await self._ask("refinement", answers.Free, **values)).text

    async def curate(
        self, question: str, sheet: Sequence[SheetItem], runs: Sequence[PastRun], max_words: int
    ) -> tuple[SheetEntry, ...]:
        """The entries that fit into `max_words`, in order; of two that continue one item the first counts."""
        values = {
            "question": _text(question),
            "sheet": [quoted(item.model_dump()) for item in sheet],
            "runs": [quoted({"question": run.question, "summary": shortened(run.summary, 2_500)}) for run in runs],
            "words": max_words,
        }
        answer: Any = await self._ask("curate", answers.sheet_answer(len(sheet), len(runs)), **values)
        entries, words, continued = [], 0, set()
        for given in answer.entries:
            entry = SheetEntry.model_validate(given.model_dump())
            words += len(f"{entry.description} {entry.example}".split())
            if words > max_words:
                break
            if entry.continues is not None and entry.continues in continued:
                continue
            continued.add(entry.continues)
            entries.append(entry)
        return tuple(entries)

    # The call

    async def _note(self, name: str, trajectory: Trajectory, outcome: Outcome | None, words: int) -> str | None:
        text = (await self._of_run(name, answers.Note, trajectory, outcome, words=words)).text
        return None if text is None else first_words(text, words)

    async def _of_run(
        self, name: str, shape: type[Answer], trajectory: Trajectory, outcome: Outcome | None, **values: Any
    ) -> Answer:
        failed = outcome is not None and outcome.correct is False
        return await self._ask(name, shape, run=run_lines(trajectory, outcome), failed=failed, **values)

    async def _ask(self, name: str, shape: type[Answer], **values: Any) -> Answer:
        messages = prompt(name, **values)
        return await self._model.structured(messages, shape, purpose="distiller", max_tokens=self._max_tokens)


def prompt(name: str, **values: Any) -> list[Message]:
    """The messages of one ask; all that comes from outside must be quoted already."""
    system, user = _template("system").render(), _template(name).render(**values)
    return [Message(role="system", content=system), Message(role="user", content=user)]


def _lessons(sentences: Sequence[str]) -> list[str]:
    """Sentences without empty ones and those of our own instructions, which small models hand back as lessons."""
    return [one for one in sentences if (words := _plain(one)) and words not in _plain(_template("system").render())]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .")


def first_words(text: str, most: int) -> str:
    """`text` up to and with its `most`-th word, its line breaks kept; models count words badly."""
    if len(text.split()) <= most:
        return text
    end = 0
    for word in text.split()[:most]:
        end = text.index(word, end) + len(word)
    return text[:end]


def signature_of(code: str) -> tuple[str, tuple[Parameter, ...]]:
    """Name and typed parameters of the first function in `code`, `tools` left out; empty where there is none."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError):
        return "", ()
    function = next((node for node in body if isinstance(node, ast.FunctionDef)), None)
    if function is None:
        return "", ()
    given = [*function.args.args, *function.args.kwonlyargs]
    return function.name, tuple(
        Parameter.model_validate({"name": argument.arg, "type": _type_of(argument)})
        for argument in given
        if argument.arg != "tools"
    )


def _type_of(argument: ast.arg) -> str:
    """The annotation's plain type; `str` for one that `check_code` will refuse."""
    kind = argument.annotation
    base = kind.value if isinstance(kind, ast.Subscript) else kind
    known = isinstance(base, ast.Name) and base.id in {"str", "int", "float", "bool", "list"}
    return base.id if known and isinstance(base, ast.Name) else "str"


def _script(answer: answers.ScriptAnswer) -> Script | None:
    found = answer.script
    if found is None:
        return None
    return Script(script=first_words(found.script, SCRIPT_WORDS), steps=first_words(found.steps, STEP_WORDS))


def _text(text: str) -> str:
    return quoted(shortened(text, TEXT_CHARACTERS))


@lru_cache(maxsize=64)
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("prompts")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.get_template(f"{name}.jinja")

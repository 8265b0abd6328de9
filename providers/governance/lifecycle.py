"""A governed space: what becomes of records from their admission to their archival (MemGuard 3.3, 3.5, D.3).

A governor works inside the transaction that stores a run, on the rows that every provider has alike. Whatever it
changes is an event with its reason, so that a record's whole life can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from providers.errors import ModelError
from providers.governance.admission import Admission, Thresholds, admit, warns
from providers.governance.likeness import LEAST_COSINE, MERGE_FROM, Likeness, action_of, content_words
from providers.governance.ranking import CONFLICT_ABOVE, conflicting
from providers.governance.verifier import Verdict, Verifier
from providers.governance.words import FIELDS, in_words, only, trust_in_words
from providers.governance.writing import audited, claim_of, gated, joined, observed, says_of, support_of
from providers.space import Space
from providers.types import Descriptor, Origin, Record, Trajectory, content_hash

Mode = Literal["admission", "full"]

RUNS = "governed_runs"
"""The counter of the runs that a space has taken in under governance."""
SUMMARIES = "governed_summaries"
USES, WINS = "governed_uses", "governed_wins"
"""The counters of uses of governed records in a space, and of those whose task was solved."""
REVIEWS = "governed_reviews"
"""The counter of what people decided on records of a space."""
SUMMARY = "summary"
"""The kind of summaries."""
GOVERNED = ("active", "guard", "candidate")
EVERYTHING = (*GOVERNED, "provisional", "archived", "rejected")
CLOSE_REWARDS = 0.10
"""Rewards nearer than this leave the label to the more confident record (ours: the paper says "close")."""
STALE_RUNS = 400
"""Governed runs without a use or confirmation after which a record goes first (ours)."""
LEAST_TRUST = 0.35
"""Trust below which a memory that misled is archived (ours)."""
PRIOR_USES = 2.0
"""Weight of the verifier's confidence against later uses, in expected wins (ours)."""
LEAST_COVERED = 3
"""Fewest memories of one pattern and scope that a summary stands for (ours)."""
MOST_COVERED = 12


@dataclass(frozen=True)
class Rules:
    """What a governor does; the defaults are MemGuard's (table 21), for the web budget."""

    budget: int = 512
    """Most records of a space that are retrieved from."""
    guards: bool = True
    """Whether lessons from failures are kept."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    admission: bool = True
    """Whether a verdict keeps anything out; without, every record is shown (an ablation)."""
    lifecycle: bool = True
    """Whether records are merged, settled, summarised, distrusted and archived once they are in."""
    gate: bool = False
    """Whether the write gate stands in front of admission: what independent runs do not support waits for a person."""


@dataclass
class Governor:
    """Verifies runs, and governs the spaces that they are stored in.

    `admission` filters once and keeps nothing of the verdict (MemGuard's verifier-only control); `full` attaches it to
    every record and goes on from there.
    """

    verifier: Verifier
    mode: Mode = "full"
    rules: Rules = field(default_factory=Rules)
    described: tuple[str, ...] = FIELDS
    """Which parts of a descriptor previews and retrievals say."""

    @property
    def goes_on(self) -> bool:
        """Whether governance goes on after admission."""
        return self.mode == "full" and self.rules.lifecycle

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """The verdict on a run. Raises ModelError where a model is asked and fails."""
        return await self.verifier.verify(trajectory)

    def says(self, space: Space, known: Descriptor) -> str:
        """The parts of a descriptor that are to be shown, in words."""
        return only(in_words(known, self.runs(space)), self.described)

    async def says_of_run(self, trajectory: Trajectory) -> str:
        """What End decisions are told of a finished run, in words: its trust, since age, support and use begin with it.

        Empty where that is not to be shown; `trust unknown` where the model that verifies fails.
        """
        if self.mode == "admission" or "trust" not in self.described:
            return ""
        try:
            verdict = await self.verify(trajectory)
        except ModelError:
            return "trust unknown"
        return f"trust {trust_in_words(verdict.descriptor())}"

    @staticmethod
    def runs(space: Space) -> int:
        """How many runs a space has taken in under governance."""
        return space.counter(RUNS)

    def take_in(self, space: Space, record_ids: Sequence[str], trajectory: Trajectory, verdict: Verdict) -> None:
        """Govern what a run left in a space; inside the transaction that stored it."""
        run = space.counter(RUNS) + 1
        space.set_counter(RUNS, run)
        fresh = []
        for record_id in dict.fromkeys(record_ids):
            record = space.get(record_id)
            if record is None or record.state not in GOVERNED:
                continue
            if self.mode == "admission":
                self._filter(space, record, verdict)
            else:
                fresh.append(self._attach(space, record, trajectory, verdict, run))
        if self.rules.gate:
            self._reconsider(space, fresh)
        if self.goes_on:
            for record, near in _neighbours(space, fresh):
                self._settle(space, space.existing(record.id), near)
            keep_to_budget(space, self.rules.budget, run)

    def used(self, space: Space, record_id: str, correct: bool) -> None:
        """Count a use and whether its task was solved; a memory that misleads is verified again by its uses."""
        record = space.get(record_id)
        if record is None or record.descriptor is None:
            return
        known = record.descriptor
        usual = _usual(space, known)
        space.set_counter(USES, space.counter(USES) + 1)
        space.set_counter(WINS, space.counter(WINS) + correct)
        wins, reuse = known.wins + correct, known.reuse + 1
        changes: dict[str, object] = {"wins": wins, "reuse": reuse}
        if correct:
            changes["seen_run"] = space.counter(RUNS)
        record = record.model_copy(update={"descriptor": known.model_copy(update=changes)})
        if not correct and self.goes_on and record.state == "active" and known.review != "accepted" and reuse > 1:
            trust = trust_of(known.confidence or 0.0, wins, reuse, usual)
            if trust < self.rules.thresholds.confidence:
                self._distrust(space, record, trust, usual)
                return
        space.update(record, "used", "solved" if correct else "not solved")

    def _admitted(self, record: Record, verdict: Descriptor) -> Admission:
        """The state of a record with that verdict; what its provider would not keep is rejected, with its reason."""
        refused = str(record.payload.get("reject_reason") or "")
        if refused and verdict.review != "accepted":
            return Admission("rejected", refused)
        if not self.rules.admission and verdict.review != "rejected":
            return Admission("guard" if warns(record) else "active", "nothing is kept out")
        return admit(record, verdict, guards=self.rules.guards, thresholds=self.rules.thresholds)

    def _placed(self, space: Space, record: Record) -> tuple[Record, str]:
        """A record with a descriptor in the state that admission, and the write gate where there is one, give it."""
        known = record.descriptor or Descriptor()
        found = self._admitted(record, known)
        if self.rules.gate and found.state != "rejected" and not known.review:
            audit = audited(space, record)
            found, known = gated(found, audit), known.model_copy(update={"support": audit.support})
        return record.model_copy(update={"state": found.state, "descriptor": known}), found.reason

    def _reconsider(self, space: Space, fresh: Sequence[Record]) -> None:
        """Decide again on what waits and is supported by what just came."""
        claims = [claim_of(record) for record in fresh]
        for record in space.records(state=("candidate",)):
            known = record.descriptor
            if known is None or not known.observations or any(record.id == new.id for new in fresh):
                continue
            claim = claim_of(record)
            if any(says_of(claim, said) == "supports" for said in claims):
                placed, reason = self._placed(space, record)
                if placed != record:
                    space.update(placed, placed.state, reason)

    def _distrust(self, space: Space, record: Record, trust: float, usual: float) -> None:
        known = record.descriptor
        assert known is not None
        changed = known.model_copy(update={"label": "uncertain", "confidence": trust})
        state = "archived" if trust < LEAST_TRUST else "candidate"
        seen = f"{known.wins} of {known.reuse} tasks that used it were solved, {usual:.0%} where others were used"
        reason = f"{state}: {seen}, so its trust is {trust:.2f}"
        space.update(record.model_copy(update={"descriptor": changed, "state": state}), "misled", reason)

    def _filter(self, space: Space, record: Record, verdict: Verdict) -> None:
        found = self._admitted(record, verdict.descriptor())
        if found.state not in ("active", "guard"):
            space.update(record.model_copy(update={"state": "rejected"}), "rejected", found.reason)

    def _attach(self, space: Space, record: Record, trajectory: Trajectory, verdict: Verdict, run: int) -> Record:
        """Give a record its descriptor and state, or let the run confirm or contradict a record that was there."""
        given = verdict.descriptor().model_copy(update={"seen_run": run})
        if self.rules.gate:
            given = given.model_copy(update={"observations": (observed(record, trajectory),)})
        if record.descriptor is None:
            given = given.model_copy(update={"review": reviewed(space, record)})
        else:
            given = combined(record.descriptor, given)
        if given.observations:
            given = given.model_copy(update={"support": support_of(given.observations)})
        placed, reason = self._placed(space, record.model_copy(update={"descriptor": given}))
        event = placed.state if record.descriptor is None or placed.state != record.state else "confirmed"
        space.update(placed, event, reason)
        return placed

    def _settle(self, space: Space, record: Record, near: Sequence[tuple[Record, float]]) -> None:
        """Hold one record against those near it: duplicates become one, and of a conflict the stronger stays."""
        likeness = Likeness(record)
        alike = [(likeness.to(other, cosine), other.id) for other, cosine in near if other.id != record.id]
        for found, other_id in sorted(alike, key=lambda pair: (-pair[0], pair[1])):
            if found <= CONFLICT_ABOVE:
                return
            other = space.existing(other_id)
            record = space.existing(record.id)
            if record.state not in GOVERNED:
                return
            if other.state not in GOVERNED or warns(other) != warns(record):
                continue
            labels = [(each.descriptor or Descriptor()).label for each in (record, other)]
            same_action = action_of(record) == action_of(other)
            if found >= MERGE_FROM and same_action:
                self._merge(space, record, other, found)
            elif not self._agree(record, other) and conflicting(
                found, (action_of(record), action_of(other)), (labels[0], labels[1])
            ):
                _resolve(space, record, other, found)

    def _agree(self, one: Record, other: Record) -> bool:
        """Whether two records cannot conflict: one run left both, or the gate takes each as evidence for the other."""
        return _made_together(one, other) or (self.rules.gate and says_of(claim_of(one), claim_of(other)) == "supports")

    def _merge(self, space: Space, one: Record, other: Record, likeness: float) -> None:
        """Two records that say the same become the stronger one, with the evidence of both."""
        winner, loser = sorted((one, other), key=priority, reverse=True)
        known, also = winner.descriptor or Descriptor(), loser.descriptor or Descriptor()
        both = combined(known, also) if known.label and also.label else known
        grown = winner.model_copy(update={"origins": _joined(winner, loser), "descriptor": both})
        space.archive(loser.id, f"the same as {winner.id}, alike by {likeness:.2f}", links=(winner.id,))
        why = ""
        if known.label and winner.state == "candidate":
            grown, why = self._placed(space, grown)
        changed = f"; {grown.state}: {why}" if grown.state != winner.state else ""
        space.update(grown, "merged", f"with {loser.id}, alike by {likeness:.2f}{changed}")


def _neighbours(space: Space, fresh: Sequence[Record]) -> list[tuple[Record, list[tuple[Record, float]]]]:
    """Those of the records that can be settled, each with what is near it of its kind; one scan per kind finds that."""
    current = [space.existing(record.id) for record in fresh]
    standing = [record for record in current if record.state in GOVERNED and record.text]
    near: dict[str, list[tuple[Record, float]]] = {}
    for kind in dict.fromkeys(record.kind for record in standing):
        ids = [record.id for record in standing if record.kind == kind]
        near |= zip(ids, space.near(space.vectors(ids), LEAST_COSINE, kind, GOVERNED), strict=True)
    return [(record, near[record.id]) for record in standing]


def trust_of(confidence: float, wins: int, reuse: int, usual: float = 1.0) -> float:
    """The verifier's confidence brought up to date by uses, 0 to 1.

    `usual` is the share of tasks that are solved where other memories are used: a memory misleads by what it loses
    against them, and where most tasks fail a lost one says little. The posterior mean of wins per expected win, under
    a gamma prior with the confidence as mean and the weight of two expected wins, cut at 1.
    """
    return min(1.0, (PRIOR_USES * confidence + wins) / (PRIOR_USES + usual * reuse))


def combined(known: Descriptor, new: Descriptor) -> Descriptor:
    """What two runs say of one memory: means weighted by support; the label by reward, or by confidence where the
    rewards are close (MemGuard 3.5)."""
    ours_weighs, theirs_weighs = (known.support, new.support) if known.support + new.support else (1.0, 1.0)
    ours, theirs = known.reward or 0.0, new.reward or 0.0
    sure, other = known.confidence or 0.0, new.confidence or 0.0
    if abs(ours - theirs) < CLOSE_REWARDS:
        label = known.label if sure >= other else new.label
    else:
        label = known.label if ours > theirs else new.label

    def mean(of_known: float | None, of_new: float | None) -> float:
        both = (of_known or 0.0) * ours_weighs + (of_new or 0.0) * theirs_weighs
        return both / (ours_weighs + theirs_weighs)

    return known.model_copy(
        update={
            "reward": mean(known.reward, new.reward),
            "confidence": mean(known.confidence, new.confidence),
            "uncertainty": mean(known.uncertainty, new.uncertainty),
            "label": label,
            "verified_at": max(known.verified_at or 0.0, new.verified_at or 0.0),
            "seen_run": max(known.seen_run, new.seen_run),
            "reuse": known.reuse + new.reuse,
            "wins": known.wins + new.wins,
            "conflicts": tuple(dict.fromkeys((*known.conflicts, *new.conflicts))),
        }
        | _counted(known, new)
    )


def _counted(known: Descriptor, new: Descriptor) -> dict[str, object]:
    """Support of both: behind a write gate by what their runs saw, and else as many runs as there were."""
    if not known.observations and not new.observations:
        return {"support": known.support + new.support}
    observations = joined(known.observations, new.observations)
    return {"observations": observations, "support": support_of(observations)}


def priority(record: Record) -> tuple[float | int | str, ...]:
    """Who stays where two records conflict, greatest first: label, reward, confidence, recency, use, then id.

    What a person accepted goes before all, and what is retrieved from before what waits. A total order, so records that
    conflict in a circle are settled by it too. For a failure lesson the verified failure is the label that stands, and
    the lower reward the better sign.
    """
    known = record.descriptor or Descriptor()
    confirmed = "verified_fail" if warns(record) else "verified_success"
    standing = 2 if known.label == confirmed else 1 if known.label == "uncertain" else 0
    value = known.reward or 0.0
    return (
        known.review == "accepted",
        record.state != "candidate",
        standing,
        round(1.0 - value if warns(record) else value, 6),
        round(known.confidence or 0.0, 6),
        known.seen_run,
        known.reuse,
        record.id,
    )


def _usual(space: Space, known: Descriptor) -> float:
    """The share of uses of other records whose task was solved; 1 until there are some, which weighs as two uses."""
    others = max(0, space.counter(USES) - known.reuse)
    solved = min(others, max(0, space.counter(WINS) - known.wins))
    return (PRIOR_USES + solved) / (PRIOR_USES + others)


def reviewed(space: Space, record: Record) -> Literal["", "accepted", "rejected"]:
    """What a person decided on a record with the same signature, or else the same content, in this space."""
    if not space.counter(REVIEWS):
        return ""
    for other in space.records(record.kind, EVERYTHING):
        if other.id == record.id or other.descriptor is None or not other.descriptor.review:
            continue
        if other.signature == record.signature and (record.signature or identity_of(other) == identity_of(record)):
            return other.descriptor.review
    return ""


def identity_of(record: Record) -> str:
    """Equal for records that say the same words, whatever has been counted on them since."""
    return content_hash(record.kind, sorted(content_words(record)))


def _made_together(one: Record, other: Record) -> bool:
    """Whether one run left both: two lessons of one run are parts of what it did and contradict nothing."""
    return not {o.trajectory_id for o in one.origins}.isdisjoint(o.trajectory_id for o in other.origins)


def _resolve(space: Space, one: Record, other: Record, likeness: float) -> None:
    """Of two records that contradict each other the stronger stays; the other one is archived, and named by it."""
    winner, loser = sorted((one, other), key=priority, reverse=True)
    known = winner.descriptor or Descriptor()
    conflicts = tuple(dict.fromkeys((*known.conflicts, loser.id)))
    space.update(
        winner.model_copy(update={"descriptor": known.model_copy(update={"conflicts": conflicts})}),
        "conflict",
        f"stands against {loser.id}, alike by {likeness:.2f}",
    )
    space.archive(loser.id, f"in conflict with {winner.id}, which is stronger, alike by {likeness:.2f}")


def keep_to_budget(space: Space, budget: int, run: int) -> None:
    """Restore what a lost summary stood for; summarise, then archive what is weakest, until the budget is kept."""
    _restore_uncovered(space)
    if space.count(state=("active", "guard")) <= budget:
        return
    shown = [record for record in space.records(state=("active", "guard")) if record.descriptor is not None]
    if len(shown) <= budget:
        return
    excess = len(shown) - budget
    excess -= _summarise(space, shown, excess)
    if excess <= 0:
        return
    standing = [r for r in space.records(state=("active", "guard")) if r.descriptor is not None and r.kind != SUMMARY]
    for record in sorted(standing, key=lambda record: (not stale(record, run), priority(record)))[:excess]:
        why = f"not seen for {STALE_RUNS} runs or more" if stale(record, run) else "the weakest"
        space.archive(record.id, f"over the budget of {budget} records: {why}")


def stale(record: Record, run: int) -> bool:
    """Whether a record was neither verified, confirmed nor used with success for `STALE_RUNS` governed runs."""
    return record.descriptor is not None and run - record.descriptor.seen_run >= STALE_RUNS


def _summarise(space: Space, shown: Sequence[Record], excess: int) -> int:
    """Let summaries stand for repeated successes of one pattern and scope; how many records that saved."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in shown:
        parts = record.signature.split("|")
        if record.state == "active" and record.kind != SUMMARY and len(parts) == 5 and not warns(record):
            groups.setdefault((record.kind, parts[1], parts[3]), []).append(record)
    saved = 0
    for _, members in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        if saved >= excess or len(members) < LEAST_COVERED:
            break
        covered = sorted(members, key=priority)[:MOST_COVERED]
        _cover(space, covered)
        saved += len(covered) - 1
    return saved


def _cover(space: Space, covered: Sequence[Record]) -> None:
    """One summary for several records: their lines, applicability conditions and ids, and the evidence of all."""
    strongest = max(covered, key=priority)
    ids = tuple(record.id for record in covered)
    known = strongest.descriptor or Descriptor()
    for record in covered:
        if record.id != strongest.id:
            known = combined(known, record.descriptor or Descriptor(support=1.0))
    lines = dict.fromkeys(str(record.payload.get("content") or record.text) for record in covered)
    conditions = dict.fromkeys(str(record.payload.get("applicability", "")) for record in covered)
    summary = strongest.model_copy(
        update={
            "id": content_hash(space.provider, SUMMARY, ids),
            "kind": SUMMARY,
            "text": strongest.text,
            "payload": {
                "summary": " ".join(lines),
                "applicability": "; ".join(condition for condition in conditions if condition),
                "covered": list(ids),
            },
            "origins": _joined(*covered),
            "signature": "",
            "links": ids,
            "descriptor": known.model_copy(update={"covered_by": ""}),
            "created": 0.0,
        }
    )
    space.add([summary])
    space.set_counter(SUMMARIES, space.counter(SUMMARIES) + 1)
    for record in covered:
        changed = (record.descriptor or Descriptor()).model_copy(update={"covered_by": summary.id})
        space.update(
            record.model_copy(update={"state": "archived", "descriptor": changed}),
            "summarised",
            f"summary {summary.id} stands for it",
        )


def _restore_uncovered(space: Space) -> None:
    """Where a summary was forgotten with one of its sources, the others stand for themselves again."""
    made = space.counter(SUMMARIES)
    if not made or len(space.records(SUMMARY, EVERYTHING)) == made:
        return
    for record in space.records(state=("archived",)):
        covered = record.descriptor.covered_by if record.descriptor is not None else ""
        if record.descriptor is not None and covered and space.get(covered) is None:
            bare = record.descriptor.model_copy(update={"covered_by": ""})
            space.update(
                record.model_copy(update={"state": "active", "descriptor": bare}),
                "restored",
                f"the summary {covered} that stood for it is no more",
            )
    space.set_counter(SUMMARIES, len(space.records(SUMMARY, EVERYTHING)))


def _joined(*records: Record) -> tuple[Origin, ...]:
    """The origins of several records, each trajectory with an equal share."""
    by_run = {origin.trajectory_id: origin for record in records for origin in record.origins}
    return tuple(origin.with_share(1.0 / len(by_run)) for origin in by_run.values())

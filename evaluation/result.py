"""What an evaluation found: one object, saved as JSON and printed by `memroute evaluate --json`.

Accuracies, shares and differences are fractions of 1; `steps` are tool calls and `injected_chars` characters, means per
task.
A figure is None where nothing was scored or where it is not defined, never 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from providers.errors import ConfigError
from providers.types import SCHEMA_VERSION, Flow
from router.policies.registry import RouterName

Way = Literal["replay", "online"]
"""`replay`: Begin decisions looked up in a routing table; `online`: fresh runs over a bank that grows as they go."""

Kind = Literal["baseline", "single", "simple", "router", "ablation", "online", "bound"]
"""`baseline`: no choice; `single`: one provider always; `simple`: rules, counts and frozen models; `router`: trained;
`ablation`: a router with something about Begin changed; `online`: what replay cannot say; `bound`: uses
the outcomes that it is scored on."""


ROUTERS: tuple[RouterName, ...] = ("trained", "heads", "average")
"""Policies trained on the exploration's outcomes; the recommended one is among them."""


class Failures(Flow):
    """Decisions of a policy that end in no solution, each in one class; see `evaluation.failures` for what they are."""

    decisions: int
    """Over tasks with every arm scored."""
    failed: int
    ceiling: int
    interference: int
    routing: int
    quality: int


class ArmCost(Flow):
    """What one arm adds to the agent's context, and what a run of it takes (MemAgent Table 14)."""

    begin_chars: float | None
    begin_tokens: float | None
    steps: float | None
    seconds: float | None
    """Of an episode, as measured when it ran."""
    seconds_per_solved: float | None


class PolicyResult(Flow):
    """One policy on the tasks of the split."""

    kind: Kind
    way: Way = "replay"
    accuracy: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    """Tasks scored: the denominator of `accuracy`."""
    unscored: int
    unscored_share: float = 0.0
    """Of all tasks of the split; they are in no denominator."""
    accuracy_by_repeat: tuple[float | None, ...] = ()
    """Accuracy on each repeat (agent seed) alone."""
    delta_vs_best_single: float | None
    """Paired: over the tasks where both are scored (`delta_n`)."""
    delta_ci_low: float | None
    delta_ci_high: float | None
    delta_n: int
    p_holm: float | None = None
    """Sign-flip p of the paired difference, Holm-adjusted over all policies of kind simple and router."""
    regret: float | None
    """Per decision: plain oracle minus this policy, over the tasks where both are scored; at least 0."""
    regretted: float | None = None
    """Share of decisions where another arm did better."""
    headroom_captured: float | None = None
    """Of the way from none to the cross-fitted oracle."""
    headroom_captured_plain: float | None = None
    """Of the way from none to the plain oracle."""
    headroom_over_best: float | None = None
    """Of the way from the best single provider to the cross-fitted oracle; negative where the policy is worse."""
    steps: float | None
    injected_chars: float | None
    injected_tokens: float | None = None
    """`injected_chars` at the characters per token that the router's tokenizer needs for the retrieved texts."""
    shares: dict[str, float]
    """Share of tasks that went to each arm; sums to 1."""
    shares_by_family: dict[str, dict[str, float]]
    entropy: float
    """Of `shares`, in bits."""
    by_family: dict[str, float | None]
    failures: Failures | None = None
    fallbacks: int = 0
    """Decisions that a counted rule took because a model's answer was illegal."""
    constrained: int = 0
    """Decisions that were asked for again among legal answers alone because a model's own was illegal."""
    legal_share: float | None = None
    """Of a language model's answers without constraint; None for policies that answer with scores or rules."""
    seeds: int = 1
    """Policy seeds averaged."""


class FamilyCell(Flow):
    """One arm on one family of tasks."""

    accuracy: float | None
    n: int
    gain: float | None
    """Over none, paired."""
    q: float | None
    """Sign-flip p of the gain, Benjamini-Hochberg-adjusted over all cells."""


class ShuffledArm(Flow):
    """One provider with its own retrieved text and with that of a task of another family."""

    gain: float | None
    """Accuracy over none."""
    gain_shuffled: float | None
    n: int
    """Tasks scored in all four cells."""
    gain_working: float | None = None
    """Accuracy over working memory alone, which every provider's arm has too; so is the next."""
    gain_shuffled_working: float | None = None
    n_working: int = 0


class Comparison(Flow):
    """Paired difference `policy` minus `against` over the `n` tasks where both are scored."""

    policy: str
    against: str
    delta: float
    ci_low: float
    ci_high: float
    n: int
    way: Way = "replay"
    p: float | None = None
    """Two-sided sign-flip p, unadjusted."""
    p_holm: float | None = None
    """Holm-adjusted over all comparisons of the same way; so is `q`, after Benjamini and Hochberg."""
    q: float | None = None


class Behaviour(Flow):
    """What a policy did in its online runs."""

    begin_shares: dict[str, float]
    """Share of the tasks where each provider was retrieved from, `none` where nobody was; more than 1 in all where
    several are at once."""
    begin_entropy: float
    """In bits, over the shares scaled to 1."""
    in_rate: float | None
    """Share of the steps at which working memory was shown; None without any step."""
    in_rate_by_step: tuple[float | None, ...]
    """The same by step, from 0."""
    in_decisions_by_step: tuple[int, ...]
    """Steps that each entry of `in_rate_by_step` is over."""
    end_sizes: dict[str, dict[int, int]]
    """By outcome (correct, wrong, unscored): how many tasks were kept by so many providers."""
    end_shares: dict[str, dict[str, float]]
    """By outcome: share of the tasks that each provider kept."""
    stream: tuple[float | None, ...]
    """Accuracy over the first 20, 40, 60, 80 and 100 percent of the stream."""


class OnlineResult(Flow):
    """One policy on fresh runs from its own copy of the bank; means over tasks, each the mean over the seeds."""

    accuracy: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    """Tasks scored: the denominator of `accuracy`."""
    unscored: int
    """Tasks whose runs failed or were not scored under every seed."""
    seeds: int
    accuracy_by_seed: tuple[float | None, ...]
    delta_vs_best_single: float | None
    """Paired, against the best single provider's own online runs."""
    delta_ci_low: float | None
    delta_ci_high: float | None
    steps: float | None
    injected_chars: float | None
    injected_tokens: float | None
    begin_chars: float | None
    """Injected at Begin alone."""
    seconds: float | None
    """Wall clock of one task, memory and router included."""
    seconds_per_solved: float | None
    tokens_per_solved: float | None
    """Injected tokens."""
    behaviour: Behaviour
    by_family: dict[str, float | None]


class PoolOracle(Flow):
    """What choosing per task among the first k providers of the nested pools can give at most."""

    providers: tuple[str, ...]
    plain: float | None
    crossfit: float | None


class Evaluation(Flow):
    """All policies compared on one split."""

    schema_version: int = SCHEMA_VERSION
    run: str
    agent: str = ""
    """The task agent that ran the arms; another than exploration's where `evaluate.agent` says so, and of the same name
    with what is different about it."""
    suite: str
    split: str
    seed: int
    n: int
    """Tasks of the split."""
    repeats: int
    """Runs of each arm on each task."""
    providers: tuple[str, ...]
    titles: dict[str, str]
    """The providers' usual names."""
    families: dict[str, int]
    """Tasks of each family."""
    policies: dict[str, PolicyResult]
    missing: dict[str, str]
    """Policies that were not evaluated, with the reason and the mend."""
    best_single: str | None
    """The provider with the best accuracy on the exploration table: what one would choose without a router."""
    best_single_accuracy: float | None
    best_single_hindsight: str | None
    """The provider with the best accuracy on this split."""
    best_single_hindsight_accuracy: float | None
    oracle: float | None
    """Best arm per task, chosen and scored on the same runs: an upper bound that includes luck."""
    oracle_crossfit: float | None
    """Best arm per task, chosen on one half of the repeats and scored on the other."""
    best_of_k_none: float | None
    """Best of `best_of_k` runs without memory: what luck alone gives."""
    best_of_k: int | None
    """The number of arms, where that many runs without memory were made; else the number of repeats."""
    oracle_of_one_draw: float | None = None
    """Best of one run of every arm, averaged over repeats: the figure to hold against `best_of_k_none` at equal k."""
    oracle_of_k: tuple[PoolOracle, ...] = ()
    """Of the best 1, 2, ... providers, grown one by one on exploration."""
    recommended: str | None
    """The better of the trained routers, chosen on dev."""
    headroom_captured: dict[str, float | None]
    """Of the trained routers; so are the next three. See PolicyResult for what each is."""
    headroom_captured_crossfit: dict[str, float | None] = Field(default_factory=dict)
    """`headroom_captured` by its full name, for readers who look for both oracles."""
    headroom_captured_plain: dict[str, float | None]
    headroom_over_best: dict[str, float | None]
    shuffled_loss_share: float | None
    """Share of the best single provider's gain over none that is lost when texts are shuffled across families."""
    shuffled_loss_share_working: float | None = None
    """The same of its gain over working memory alone: the content's share without what working memory gives."""
    shuffled: dict[str, ShuffledArm]
    provider_by_family: dict[str, dict[str, FamilyCell]]
    """Arm, then family; the arm `none` included."""
    best_in_family: dict[str, tuple[str, ...]]
    """Providers with the highest accuracy in a family (several where tied)."""
    unique_solves: dict[str, int]
    """Tasks that one arm solves and no other."""
    coverage: tuple[int, ...]
    """Tasks that exactly 0, 1, 2, ... arms solve; arms are none and the providers."""
    arms: dict[str, ArmCost] = Field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    """Each trained router against each baseline and simple router, by replay."""
    online: dict[str, OnlineResult] = Field(default_factory=dict)
    """Fresh runs; those of policies that replay cannot say stand among `policies` too."""
    online_tasks: int = 0
    online_router: str | None = None
    """Who takes Begin in the router's online rows."""
    online_comparisons: tuple[Comparison, ...] = ()
    """The whole router against what changes one phase, and against policies without a choice, online on both sides."""
    in_mode_changes: float | None
    """Share of task-arm pairs of the exploration whose outcome changes with the In mode."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = Field(default=())

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        from providers.files import write_atomically

        write_atomically(path, self.model_dump_json(indent=1))

    @classmethod
    def load(cls, path: Path) -> Evaluation:
        """Raises ConfigError where the file is damaged or of another version."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise ConfigError(
                f"{path} is damaged or of another version of memroute ({error.error_count()} fields do not fit): "
                "run `memroute evaluate` with this config again"
            ) from error


class Decisions(Flow):
    """One policy's Begin decisions on a split, kept so that an evaluation that was stopped does not ask again."""

    key: str
    """Hash of everything that the decisions depend on."""
    arms: tuple[tuple[str, ...], ...]
    """Per policy seed, per task in the table's order."""
    fallbacks: int = 0
    constrained: int = 0


class DecisionLog(Flow):
    """The decisions behind an `Evaluation`, for the report and for continuing."""

    task_ids: tuple[str, ...]
    policies: dict[str, Decisions]

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        from providers.files import write_atomically

        write_atomically(path, self.model_dump_json())

    @classmethod
    def load(cls, path: Path) -> DecisionLog:
        return cls.model_validate_json(path.read_text(encoding="utf-8"))

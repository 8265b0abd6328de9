"""The schema of a run's config: one section per stage, plain data, nothing heavy imported.

Everything here can be set from the command line with `--set section.key=value`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from synth.judge.scale import JudgedPhase, weight_problems


class Section(BaseModel):
    """Base of the sections: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class SuiteConfig(Section):
    """Which tasks, and how many of each split."""

    name: str = "factbook"
    """`factbook`, `questions` (benchmarks from files or the hub), `textworld` (text games), or a dotted path
    package.module:Class."""
    warmup: int = Field(default=300, ge=0)
    """Tasks that fill the memories; used for nothing else."""
    explore: int = Field(default=400, ge=0)
    """Tasks that every provider is forced on; routers are trained on them."""
    dev: int = Field(default=150, ge=0)
    """Tasks that policies are compared on while one works on them."""
    test: int = Field(default=600, ge=0)
    """Tasks for results that are written down."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Handed to the suite as they are."""


class AgentConfig(Section):
    """Which task agent, and its step limits."""

    name: str = "case_based"
    """`case_based`, `react` (asks `models.agent`), `function`, `command`, or a dotted path package.module:Class."""
    max_steps: int = Field(default=12, ge=1)
    """Tool calls per task in exploration and evaluation."""
    warmup_max_steps: int = Field(default=40, ge=1)
    """Tool calls per warm-up task: more, since nothing has been learned yet."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Handed to the agent as they are."""


class EncoderConfig(Section):
    name: str = "minilm"
    """`minilm` (all-MiniLM-L6-v2), `hashing` (for tests), or a dotted path package.module:Class."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Handed to the encoder as they are."""


Purpose = Literal["agent", "distiller", "judge", "verifier", "router", "scorer", "vision", "audio"]
"""What a chat model is asked for; tokens and money are counted by it."""


class EndpointConfig(Section):
    """An OpenAI-compatible endpoint. The key is read from the environment variable `key_env`."""

    base_url: str = "http://127.0.0.1:8081/v1"
    """Address of the endpoint, with its `/v1`, without a key in it."""
    model: str = Field(min_length=1)
    """The model's name at the endpoint."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; the key itself is never written anywhere."""
    temperature: float | None = Field(default=0.0, ge=0)
    """0 takes the likeliest answer; null leaves the endpoint's own, for models that refuse any other."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further fields of every request, e.g. {top_p: 0.9}, as the endpoint spells them."""
    thinking_tokens: int = Field(default=0, ge=0)
    """Added to the limit of every answer, for models whose thoughts before it count against that limit."""
    timeout: float = Field(default=120.0, gt=0)
    """Seconds that one call may take, to its last byte."""
    retries: int = Field(default=4, ge=0)
    """Further calls after a failure that may pass: 429, 5xx, no connection, no answer in time."""
    concurrency: int = Field(default=8, ge=1)
    """Most calls at a time; fewer while the endpoint answers 429."""
    prompt_price: float | None = Field(default=None, ge=0)
    """US dollars per million prompt tokens; null is unknown, not free."""
    completion_price: float | None = Field(default=None, ge=0)
    """US dollars per million tokens of answers; null is unknown, not free."""

    @field_validator("base_url")
    @classmethod
    def _address_alone(cls, value: str) -> str:
        address = urlsplit(value)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise PydanticCustomError("base_url", "must start with http:// or https:// and name a host")
        if address.username or address.password or address.query or address.fragment:
            raise PydanticCustomError("base_url", "must hold no key, user or query: name the key's variable in key_env")
        return value.rstrip("/")

    @field_validator("key_env")
    @classmethod
    def _name_of_a_variable(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
            raise PydanticCustomError("key_env", "must be the name of an environment variable, not a key")
        return value


class ModelsConfig(Section):
    """Chat models by purpose. What a purpose leaves out is taken from `default`; null means no model for it."""

    default: EndpointConfig | None = None
    """Stands for every purpose that is not null, in all that the purpose does not set itself."""
    agent: EndpointConfig | None = None
    """For task agents that are language models."""
    distiller: EndpointConfig | None = None
    """Turns finished runs into memories where `distiller` is `lm`."""
    judge: EndpointConfig | None = None
    """Scores decisions where `rewards.judge` is `lm`."""
    verifier: EndpointConfig | None = None
    """Says at the end of a task whether it is solved, where no gold does."""
    router: EndpointConfig | None = None
    """A frozen model for PromptRoute; without one the router's own base model is used, untrained."""
    scorer: EndpointConfig | None = None
    """Says whether an answer equals the gold one, where a suite is scored by `judge`; not the agent's or router's."""
    vision: EndpointConfig | None = None
    """Looks at the images of tasks whose agent cannot."""
    audio: EndpointConfig | None = None
    """Listens to the recordings of tasks whose agent cannot."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_default(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("default") is None:
            return values
        try:
            default = EndpointConfig.model_validate(values["default"]).model_dump()
        except ValidationError:
            return values  # reported once, where it stands
        filled = {purpose: values.get(purpose, {}) for purpose in get_args(Purpose)}
        return values | {
            purpose: {**default, **own} if isinstance(own, dict) else own for purpose, own in filled.items()
        }


class WarmupConfig(Section):
    """How the banks are filled before exploration."""

    tries: int = Field(default=2, ge=1)
    """Attempts per warm-up task with different agent seeds until one is correct."""
    passes: int = Field(default=2, ge=1)
    """Passes over the stream; later passes take the unsolved tasks again, with what was learned."""


class BudgetConfig(Section):
    """Exploration of a part of the grid."""

    share: float = Field(default=0.5, gt=0, le=1)
    """Share of the grid's distinct episodes that are run."""
    by: Literal["undecided", "random"] = "undecided"
    """Where they are spent: where a label is undecided and likely to be gained, or anywhere."""


class ExploreConfig(Section):
    """Forced exploration."""

    waves: int = Field(default=4, ge=1)
    """Parts of the exploration; memories are frozen within one and grow between them."""
    in_modes: tuple[Literal["query", "no_op"], ...] = ("query", "no_op")
    """Working memory offered (query) or kept out (no_op); both give In labels."""
    repeats: int = Field(default=1, ge=1)
    """Draws per arm with different agent seeds."""
    budget: BudgetConfig | None = None
    """Run only a part of the grid; null runs all of it."""
    concurrency: int = Field(default=8, ge=1)
    """Episodes at a time; the result does not depend on it."""
    engine: Literal["local", "ray"] = "local"
    """Where exploration's episodes run: in this process, or on the workers of a Ray cluster (extra `ray`)."""
    ray_address: str | None = None
    """The cluster's address; null takes the environment's RAY_ADDRESS, or else starts workers on this machine."""
    ray_workers: int = Field(default=2, ge=1)
    """Worker processes; episodes at a time stay `concurrency` over all of them."""
    episode_seconds: float = Field(default=60.0, gt=0)
    """Wall-clock limit of one episode."""
    attempts: int = Field(default=3, ge=1)
    """Tries of an episode whose error may pass: a busy endpoint, a dropped connection."""
    backoff_seconds: float = Field(default=1.0, ge=0)
    """Wait before the second try, doubled each time; a server's Retry-After counts where it is longer."""
    fail_on_error: bool | float | int = Field(default=0.1, ge=0)
    """True: the first failed episode stops the run; a share below 1 (counted from 20 episodes on, or at the end of
    those that share a bank where they are fewer), or a count from 1 up."""
    max_episodes: int | None = Field(default=None, ge=1)
    """Most episodes of the exploration over all its starts, repeated tries included; it stops there."""
    max_cost: float | None = Field(default=None, ge=0)
    """Most US dollars that the exploration's model calls may cost over all its starts; it stops there."""
    positive: Literal["any", "mean", "all", "confident"] = "mean"
    """When a provider counts as having solved a task that it ran several times; `confident` needs `repeats` from 3 up,
    and leaves unlabelled what they do not settle."""


class RewardConfig(Section):
    """Rewards and the filter (reconstruction of MemAgent 4.3; thresholds are ours)."""

    judge: str = "rules"
    """Who scores decisions: `rules` needs no model, `lm` asks `models.judge`; or a dotted path package.module:Class."""
    judge_in: int | None = Field(default=None, ge=0)
    """Most In decisions that are judged, drawn by the run's seed; null judges all, one for every step of an episode."""
    weights: dict[JudgedPhase, dict[str, float]] = Field(default_factory=dict)
    """Weights of the judge's dimensions by decision (begin, query, no_op, end), each summing to 1; empty keeps ours."""
    end: Literal["reuse", "uplift", "judge"] = "reuse"
    """What rewards an End decision: later reuse, reuse beyond what all providers achieved there, or the judge."""
    max_failed_share: float = Field(default=0.1, ge=0, le=1)
    """Share of decisions that the judge's endpoint may fail on; above it the stage stops, and continues later."""
    weighting: Literal["none", "discriminability"] = "none"
    """Weight of a Begin row in training: 1, or 1 + d where d is higher the fewer providers solve the task."""
    begin_requires_correct: bool = True
    """Label Begin decisions by what they achieved; false takes the judge's reward instead (the paper's ablation)."""
    eps_in: float = Field(default=0.6, ge=0, le=1)
    """Least reward, 0 to 1, of an In decision that is kept."""
    eps_end: float = Field(default=0.5, ge=0, le=1)
    """Least reuse reward, 0 to 1, of an End decision that is kept."""
    top_k: int = Field(default=3, ge=1)
    """Providers kept, best judged first, where all solve a task."""
    min_exposures: int = Field(default=3, ge=0)
    """Later tasks an origin must have had before "never reused" counts as 0 and not as unscored."""
    in_requires_correct: bool = True
    """Keep In decisions of solved episodes only."""

    @field_validator("weights")
    @classmethod
    def _whole_weights(cls, value: dict[JudgedPhase, dict[str, float]]) -> dict[JudgedPhase, dict[str, float]]:
        problems = weight_problems(value)
        if problems:
            raise PydanticCustomError("weights", "{problems}", {"problems": "; ".join(problems)})
        return value


class DatasetConfig(Section):
    """Rows kept per phase; None keeps all."""

    max_begin: int | None = Field(default=None, ge=0)
    """Most Begin rows; null keeps all."""
    max_in: int | None = Field(default=40, ge=0)
    """Most In rows; null keeps all."""
    max_end: int | None = Field(default=40, ge=0)
    """Most End rows; null keeps all."""
    validation_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the tasks whose rows are held out to watch the training."""


class TrainConfig(Section):
    """The LM router (LoRA SFT) and the heads."""

    base: str = "smollm2-135m"
    """`smollm2-135m` from its wheel, a local folder, or a hub id."""
    codec: Literal["marks", "json"] = "marks"
    """How a decision is put to the model: marks for compact models, json for large ones."""
    lora_r: int = Field(default=16, ge=1)
    """Rank of the adapters."""
    lora_alpha: int = Field(default=32, ge=1)
    """Scale of the adapters."""
    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    """Dropout of the adapters."""
    lora_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Linear layers that get adapters, by the last part of their names; each must be found in the base model."""
    upper_layers: float = Field(default=0.5, gt=0, le=1)
    """Share of the layers, from the top, that get adapters."""
    cache_lower: bool = False
    """With the marks codec, keep in memory what the layers below the adapters give for every row, so that epochs after
    the first compute the upper layers alone."""
    labels: Literal["soft", "hard", "distilled"] = "soft"
    """What marks are trained on: mean correctness as it is; 1 from 0.5 up and 0 below; or, at Begin, its mean with what
    heads that have not seen the task expect."""
    objective: Literal["pointwise", "listwise"] = "pointwise"
    """What marks are trained for: every candidate's own label; or also a row's candidates against each other."""
    candidate_order: Literal["config", "shuffled"] = "config"
    """Order of a Begin prompt's candidates in training: the config's, in which marks are asked later, or drawn by task;
    the json codec always draws it."""
    descriptors: tuple[Literal["trust", "age", "support", "reuse", "wins"], ...] | None = None
    """Parts of descriptors that both routers see, of those that the exploration recorded; null shows them all."""
    forecast: bool = False
    """Show the language model beside every preview what the heads expect of its provider, in words; in training, heads
    that have not seen the task."""
    shared_context: bool = True
    """With the json codec, compute a prompt once for all its right answers, where the base model's attention allows."""
    learning_rate: float = Field(default=3e-4, gt=0, allow_inf_nan=False)
    """Peak of the cosine schedule."""
    warmup_ratio: float = Field(default=0.1, ge=0, le=1)
    """Share of the steps in which the rate rises."""
    batch_size: int = Field(default=4, ge=1)
    """Rows per step and process; with a shared context, contexts."""
    accumulation: int = Field(default=2, ge=1)
    """Steps whose gradients are added up."""
    epochs: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    """Passes over the rows."""
    max_tokens: int = Field(default=400, ge=1)
    """Longest prompt; a longer one stops the training before it starts."""
    max_minutes: float | None = Field(default=6.0, gt=0)
    """Training stops after this many minutes at the next step, and says so; None never stops."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Number format of the weights in training; adapters are trained in float32."""
    activation_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, about a third more time."""
    watch_every: int | None = Field(default=None, ge=1)
    """Steps between measurements on the held-out tasks; null measures once, after the training."""
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Also log the training there; the package has to be installed."""


class OnlineConfig(Section):
    """Fresh runs for policies that change what later tasks see, each from its own copy of the bank."""

    tasks: int = Field(default=200, ge=1)
    """Tasks of the split, from its start."""
    seeds: int = Field(default=1, ge=1)
    """Streams per policy, each in another order and with other agent seeds, the same for all policies."""
    batch: int = Field(default=4, ge=1)
    """Tasks that see the same bank; what they leave is stored after all of them ended."""


class EvaluateConfig(Section):
    """Policies compared on the routing table of a split."""

    repeats: int = Field(default=2, ge=1)
    """Draws per arm with different agent seeds; the cross-fitted oracle needs two or more."""
    in_mode: Literal["query", "no_op"] = "query"
    """Working memory in every evaluated arm but `none`, which is the task agent alone."""
    policies: tuple[str, ...] | Literal["standard", "all"] = "standard"
    """Names of policies; `standard`: all Begin policies by replay; `all`: with ablations and with online runs too."""
    bootstrap: int = Field(default=10_000, ge=1)
    """Resamples of the intervals."""
    shuffle: bool = True
    """Also run the control in which retrieved texts are shuffled across families."""
    alone: bool = True
    """Also run the agent without long-term memory: with working memory, and bare as often as there are arms (luck)."""
    constrained: bool = True
    """With the json codec, ask again among legal answers alone where a router's own is illegal; false lets a counted
    rule decide. Either way the share of legal answers without constraint is stated."""
    online: OnlineConfig = OnlineConfig()
    agent: AgentConfig | None = None
    """Another task agent for the evaluation alone: whether a router carries over to one it was not trained with."""


class EngineConfig(Section):
    """Where the served language-model router is computed."""

    kind: Literal["local", "vllm", "endpoint"] = "local"
    """`local`: in the service's own process; `vllm`: started beside it (`scripts/setup_engine`); `endpoint`: one that
    runs already."""
    base_url: str = "http://127.0.0.1:8000/v1"
    """Address of the endpoint, with its `/v1`; for `endpoint` alone."""
    model: str = Field(default="router", min_length=1)
    """The router's name at the engine."""
    key_env: str = "MEMROUTE_ENGINE_KEY"
    """Environment variable that holds the endpoint's key."""
    environment: Path = Path(".venv-engine")
    """The Python environment that has vLLM."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """What vLLM computes on; `auto` takes an NVIDIA GPU where there is one."""
    weights: Literal["auto", "merged", "lora"] = "auto"
    """The merged model, or the base with the adapter beside it; `auto` takes the latter on a GPU alone."""
    arguments: tuple[str, ...] = ()
    """Further arguments of vLLM, e.g. [--gpu-memory-utilization, "0.5"]."""
    timeout: float = Field(default=10.0, gt=0)
    """Seconds that one decision may take."""
    start_seconds: float = Field(default=300.0, gt=0)
    """Seconds that vLLM may take to start."""


class ProxyConfig(Section):
    """The chat endpoint that `/v1/chat/completions` passes calls on to, with memory in them."""

    base_url: str | None = None
    """Its address, with its `/v1`; null serves no chat."""
    model: str | None = None
    """The model that is asked, whatever the client names; null leaves the client's."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds its key; the key itself is never written anywhere."""
    timeout: float = Field(default=600.0, gt=0)
    """Longest wait for its next byte, in seconds."""
    idle_seconds: float = Field(default=600.0, gt=0)
    """A task that nobody calls for so long has ended; its outcome is unknown."""


class ServeConfig(Section):
    """The router beside an agent, over HTTP (`memroute serve`)."""

    host: str = "127.0.0.1"
    """Address that is listened on; one that is not loopback needs keys."""
    port: int = Field(default=8080, ge=0, le=65535)
    """0 takes a free one."""
    router: str | None = None
    """Who decides, by a policy's name; null takes heads where they are trained, else what the evaluation recommends."""
    shadow: str | None = None
    """A policy that acts in the router's place, while the router decides too and both are logged."""
    fallback: str = "overlap"
    """The policy that decides where the router fails, is late, or decides what it may not."""
    router_seconds: float = Field(default=2.0, gt=0)
    """Longest wait for a decision of the router."""
    probe_seconds: float = Field(default=0.25, gt=0)
    """Longest wait for a provider's preview; a later one is empty."""
    retrieve_seconds: float = Field(default=5.0, gt=0)
    """Longest wait for what a chosen provider retrieves; where it is later nothing is injected."""
    rest_seconds: float = Field(default=10.0, ge=0)
    """How long a provider or router that failed three times in a row is left alone before it is tried again."""
    session_seconds: float = Field(default=3600.0, gt=0)
    """A session that nobody calls for so long expires; so do answers that are kept for retries."""
    audit_days: float = Field(default=90.0, gt=0)
    """How long the audit log goes back."""
    keys_file: Path | None = None
    """Keys as hashes with their namespaces and rights; `memroute serve CONFIG --new-key NAME` adds one."""
    key_env: str = "MEMROUTE_SERVE_KEY"
    """Environment variable that may hold one more key, with all rights in all namespaces."""
    max_body: int = Field(default=2 * 2**20, ge=1024)
    """Largest request in bytes."""
    max_text: int = Field(default=200_000, ge=1)
    """Longest observation, thought or answer in characters."""
    max_question: int = Field(default=20_000, ge=1)
    """Longest question in characters."""
    max_steps: int = Field(default=500, ge=1)
    """Most steps of one session."""
    max_session: int = Field(default=4 * 2**20, ge=1)
    """Most characters of the steps of one session."""
    max_sessions: int = Field(default=2_000, ge=1)
    """Most open sessions of one key."""
    rate: float = Field(default=200.0, gt=0)
    """Requests per second of one key, over time; twice as many may come at once."""
    concurrency: int = Field(default=16, ge=1)
    """Requests that are worked on at a time; others queue."""
    max_queue: int = Field(default=256, ge=0)
    """Requests that may queue; further ones are sent away with status 503."""
    drain_seconds: float = Field(default=20.0, ge=0)
    """Longest wait at the end for requests that have begun."""
    engine: EngineConfig = EngineConfig()
    proxy: ProxyConfig = ProxyConfig()


class RunConfig(Section):
    """A whole run, as `configs/*.yaml` spells it."""

    name: str
    """The run's name, which is also its folder's."""
    seed: int = 0
    """Of tasks, agents, exploration and training."""
    runs_dir: Path = Path("runs")
    """Where the folders of runs lie."""
    suite: SuiteConfig = SuiteConfig()
    agent: AgentConfig = AgentConfig()
    providers: tuple[str, ...] = ("expel", "awm", "skillweaver", "voyager", "insight_graph")
    """Memory providers by name or dotted path, in the order in which candidates are shown."""
    relevance_floors: dict[str, Annotated[float, Field(ge=-1, le=1)]] = Field(default_factory=dict)
    """Least cosine between the query and an item's indexed text for a provider, by its name here, to show the item;
    a provider that is not named shows its best match however little it fits, as in the papers."""
    encoder: EncoderConfig = EncoderConfig()
    distiller: str = "rules"
    """Who turns finished runs into memories: `rules` (no model), `lm` (asks `models.distiller`), or a dotted path."""
    governance: Literal["off", "admission", "full", "gated"] = "off"
    """What verifies runs before providers keep them: nothing; a filter at admission; verdicts that stay with every
    record and govern it for its life; or these behind the write gate, which keeps back what independent runs do not
    support. `memguard` and `verifier_only` govern themselves in any case, `memguard` behind the gate where it is on."""
    verifier: Literal["rules", "lm"] = "rules"
    """Who verifies runs: `rules` (no model), or `lm` (asks `models.verifier`)."""
    budget: int = Field(default=512, ge=1)
    """Most records of a governed memory that are retrieved from."""
    descriptors: tuple[Literal["trust", "age", "support", "reuse", "wins"], ...] = ()
    """What previews of governed memories say of their first record, and End prompts of the finished run (its trust
    alone), for routers to see; empty says nothing. What a training shows of it is `train.descriptors`."""
    models: ModelsConfig = ModelsConfig()
    warmup: WarmupConfig = WarmupConfig()
    explore: ExploreConfig = ExploreConfig()
    rewards: RewardConfig = RewardConfig()
    dataset: DatasetConfig = DatasetConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    serve: ServeConfig = ServeConfig()

    @field_validator("governance", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML reads a bare `off` as false

    @field_validator("relevance_floors")
    @classmethod
    def _floors_are_for_providers_here(cls, floors: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        providers: tuple[str, ...] | None = info.data.get("providers")
        if providers is not None and not floors.keys() <= set(providers):
            raise ValueError(f"must name providers of this config ({', '.join(providers)})")
        return floors

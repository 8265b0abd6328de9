import dataclasses

import pytest
from made_model import made_base, made_json_rows, made_rows, made_run, write_rows

from providers.errors import ConfigError, EngineError
from train.guards import guard_lines, row_guards
from train.job import Job
from train.lower import Lower
from train.sft import check, train_job
from train.trainers import lora


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return made_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def job(base, tmp_path):
    """A job whose rows are those of a codec."""
    runs = []

    def make(codec="marks", rows=None, **train):
        run = made_run(tmp_path, base, name=f"run{len(runs)}", codec=codec, **train)
        runs.append(run)
        write_rows(run, rows if rows is not None else made_json_rows(5) if codec == "json" else made_rows(6), [])
        return Job.of_run(run)

    yield make
    for run in runs:
        run.close()


def failing(guards):
    return [check.name for check in guards.checks if not check.passed]


@pytest.mark.parametrize("codec", ["marks", "json"])
def test_a_sound_training_passes_every_guard_and_nothing_is_written(job, codec):
    made = job(codec)
    guards = check(made)
    assert guards.passed, guards
    names = {"phases", "length", "labels", "adapters", "gradients"}
    assert {c.name for c in guards.checks} == names | (
        {"template", "padding", "shared context"} if codec == "json" else {"answers"}
    )
    begin = guards.tokens[0]
    assert (begin.phase, begin.rows, begin.over) == ("begin", made.phases["begin"], 0)
    labels = sum(target is not None for row in made.rows if row.phase == "begin" for target in row.targets)
    assert begin.trained == labels if codec == "marks" else begin.trained > begin.rows
    assert begin.masked > 0
    assert "56 of 56 adapter tensors" in " ".join(guard_lines(guards))
    assert not made.adapter.exists()
    assert not made.metrics.exists()


def test_a_failing_guard_stops_the_training_with_its_row(job):
    long = made_json_rows(3)
    long[1] = long[1].model_copy(update={"prompt": "harbour " * 500, "task_id": "long"})
    made = job("json", long)
    assert failing(check(made)) == ["length"]
    with pytest.raises(EngineError, match=r"1 of \d+ rows are longer.*of task long: 'harbour"):
        train_job(made)
    all_long = [row.model_copy(update={"prompt": "harbour " * 500}) for row in made_json_rows(2)]
    with pytest.raises(EngineError, match=r"(\d+) of \1 rows are longer"):
        train_job(job("json", all_long))
    broken = made_rows(2)
    broken[0] = broken[0].model_copy(update={"targets": (2.0, 0.0, 0.0)})
    with pytest.raises(EngineError, match=r"not shares of 1.*train-0"):
        train_job(job("marks", broken))
    with pytest.raises(EngineError, match="no row for begin"):
        train_job(job("marks", [row for row in made_rows(6) if row.phase == "in"]))


def test_kept_lower_layers_are_compared_with_the_plain_way(job, monkeypatch):
    made = job("marks")
    kept = dataclasses.replace(made, config=made.config.model_copy(update={"cache_lower": True, "upper_layers": 0.5}))
    [check_of_lower] = [c for c in check(kept).checks if c.name == "lower layers"]
    assert check_of_lower.passed
    states = Lower._states
    monkeypatch.setattr(Lower, "_states", lambda self, tokens: 2 + states(self, tokens))
    assert failing(check(kept)) == ["lower layers"]
    with pytest.raises(EngineError, match=r"set train\.cache_lower to false"):
        train_job(kept)


def test_lower_layers_cannot_be_kept_for_json_or_for_a_base_that_names_its_layers_otherwise(job):
    from transformers import GPT2Config, GPT2LMHeadModel

    made = job("json")
    with pytest.raises(ConfigError, match=r"train\.cache_lower is for the marks codec"):
        check(dataclasses.replace(made, config=made.config.model_copy(update={"cache_lower": True})))
    other = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=16))
    example = {"input_ids": [1, 2], "marks": [1], "targets": [1.0], "weight": 1.0}
    with pytest.raises(EngineError, match=r"GPT2Model keeps its layers in a way"):
        Lower(other, 1).collate([example])


@pytest.mark.parametrize(("codec", "rows"), [("json", made_rows(3)), ("marks", made_json_rows(3))])
def test_rows_of_the_other_codec_are_refused(job, codec, rows):
    with pytest.raises(ConfigError, match=rf"not written for train\.codec: {codec}; run `memroute build`"):
        job(codec, rows)


def test_a_template_that_rewrites_answers_is_found(job, base):
    from router.base_model import load_base

    _, tokenizer = load_base(str(base), dtype="float32")
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ turn.content }}", "{{ turn.content | upper }}")
    _, checks = row_guards(job("json"), tokenizer)
    assert [check.name for check in checks if not check.passed] == ["template"]


def test_modules_that_the_base_lacks_are_named_with_those_it_has(job, base):
    from router.base_model import load_base

    model, _ = load_base(str(base), dtype="float32")
    made = job()
    wrong = dataclasses.replace(made, config=made.config.model_copy(update={"lora_modules": ("c_attn", "q_proj")}))
    with pytest.raises(
        EngineError, match=r"no linear layer named c_attn; set train\.lora_modules to some of down_proj"
    ):
        lora(wrong, model)
    head = dataclasses.replace(made, config=made.config.model_copy(update={"lora_modules": ("lm_head",)}))
    with pytest.raises(EngineError, match="lm_head"):
        lora(head, model)

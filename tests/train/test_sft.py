import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from made_model import made_base, made_json_rows, made_rows, made_run, metrics, write_rows

import train.export
import train.progress
from providers.errors import ConfigError, EngineError
from providers.registry import provider_cards
from router.adapter import load_merged, load_router, read_record
from router.base_model import load_base
from router.codec import Prompt
from router.marks import MarkTokenizer, collate, mark_scores
from router.policies.learned import Generating, Learned
from synth.config import TrainConfig
from train.export import check_servable, replace_folder
from train.job import Job
from train.parity import check_parity
from train.progress import drop_metrics_after, last_checkpoint
from train.sft import check_run
from train.sft import train as train_run


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return made_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """An undisturbed training of three epochs."""
    with made_run(tmp_path_factory.mktemp("runs"), base, epochs=3) as run:
        train_run(run)
        yield run


def losses(run):
    return [(line["step"], line["loss"]) for line in metrics(run) if "loss" in line]


def test_training_learns_and_says_what_it_did(trained):
    found = losses(trained)
    assert [step for step, _ in found] == list(range(1, 16))
    assert sum(loss for _, loss in found[-4:]) < sum(loss for _, loss in found[:4])
    last = metrics(trained)[-1]
    assert last["step"] == 15
    assert last["validation_loss"] < 0.69
    assert 0 <= last["agreement_begin"] <= 1
    record = read_record(trained.adapter)
    assert (record.steps, record.rows, record.stopped_early) == (15, {"begin": 12, "in": 6}, False)
    assert record.validation["agreement"] == last["agreement"]
    assert set(record.offsets) == {"begin", "in"}
    assert set(record.offsets["begin"]) == {"lessons", "workflows", "functions"}
    assert not (trained.root / "checkpoints").exists()


def test_the_adapter_is_lora_on_every_projection_and_not_on_the_head(trained):
    settings = json.loads((trained.adapter / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["lora_dropout"]) == (16, 32, 0.05)
    assert set(settings["target_modules"]) == set(TrainConfig().lora_modules)
    assert settings["modules_to_save"] is None
    assert (trained.adapter / "tokenizer.json").exists()
    assert (trained.merged / "tokenizer.json").exists()


def test_adapter_and_merged_model_give_the_same_scores(trained, base):
    import torch
    from peft import PeftModel

    plain, tokenizer = load_base(str(base), dtype="float32")
    marks = MarkTokenizer(tokenizer)
    batch = collate([marks.encode(row.segments) for row in made_rows(6, "validation")])

    def scores(model):
        with torch.inference_mode():
            return mark_scores(model, batch, marks.yes, marks.no)

    untrained = scores(plain)
    merged, _ = load_base(str(trained.merged), dtype="float32")
    joined, _ = load_merged(str(base), trained.adapter)
    wrapped = PeftModel.from_pretrained(plain, str(trained.adapter)).eval().get_base_model()
    assert torch.allclose(scores(wrapped), scores(merged), atol=1e-4)
    assert torch.equal(scores(joined), scores(merged))
    assert (scores(merged) - untrained).abs().max() > 0.1


def test_a_finished_training_is_not_run_again_and_a_changed_one_is(trained, base, tmp_path, capsys):
    with made_run(tmp_path, base) as run:
        train_run(run)
        capsys.readouterr()
        train_run(run)
        assert "done already" in capsys.readouterr().err
        write_rows(run, made_rows(9), made_rows(6, "validation"))
        train_run(run)
        assert "again" in capsys.readouterr().err
        assert read_record(run.adapter).rows["begin"] == 9
        (run.adapter / "record.json").write_text("{")
        train_run(run)
        assert "damaged" in capsys.readouterr().err
        assert read_record(run.adapter).rows["begin"] == 9


@pytest.mark.parametrize("killed_at", [1, 7, 14])
def test_a_killed_training_continues_with_the_same_loss_curve(trained, base, tmp_path, monkeypatch, killed_at):
    monkeypatch.setattr(train.progress, "CHECKPOINT_SECONDS", 0.0)
    original = train.progress.Progress.log

    def killed(self, step, loss, rate):
        original(self, step, loss, rate)
        if step == killed_at + 1:
            raise KeyboardInterrupt

    with made_run(tmp_path, base, epochs=3) as run:
        monkeypatch.setattr(train.progress.Progress, "log", killed)
        with pytest.raises(KeyboardInterrupt):
            train_run(run)
        assert not run.adapter.exists()
        run.metrics.write_text(run.metrics.read_text() + '{"stage": "tr')
        monkeypatch.setattr(train.progress.Progress, "log", original)
        train_run(run)
        assert losses(run) == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in losses(trained)]
        assert read_record(run.adapter) == read_record(trained.adapter)


@pytest.mark.slow
def test_an_interrupted_training_process_says_how_it_goes_on_and_does(trained, base, tmp_path):
    with made_run(tmp_path, base, epochs=3) as run:
        pass
    folder = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "memroute", "train", str(run.root / "config.yaml"), "--only", "lm"]
    child = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    while not run.metrics.exists() or len(losses(run)) < 4:
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=120)[1]
    assert child.returncode == 130, said
    assert "the same command continues" in said
    assert "Traceback" not in said
    assert not run.adapter.exists()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    assert losses(run) == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in losses(trained)]
    assert read_record(run.adapter).steps == 15


def test_a_checkpoint_cut_off_while_it_was_written_is_passed_over(tmp_path):
    for step, state in ((2, '{"global_step": 2}'), (10, '{"global_'), (11, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    assert last_checkpoint(tmp_path / "none") is None


def test_other_stages_metrics_survive_a_resumed_training(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = ['{"stage": "explore", "step": 9}', '{"stage": "train", "step": 1}', '{"stage": "train", "step": 2}', "{"]
    path.write_text("\n".join(lines))
    drop_metrics_after(path, 1)
    assert path.read_text().splitlines() == lines[:2]


def test_the_time_cap_stops_at_the_next_step_and_says_so(base, tmp_path, capsys):
    with made_run(tmp_path, base, epochs=3, max_minutes=1e-6) as run:
        train_run(run)
        assert "max_minutes" in capsys.readouterr().err
        record = read_record(run.adapter)
        assert record.stopped_early
        assert record.steps == 1


def test_splitting_a_batch_by_accumulation_gives_the_same_losses(base, tmp_path):
    curves = []
    for name, size, accumulation in (("whole", 4, 1), ("split", 2, 2)):
        with made_run(
            tmp_path, base, name=name, rows=16, batch_size=size, accumulation=accumulation, lora_dropout=0.0
        ) as run:
            write_rows(run, [row for row in made_rows(16) if row.phase == "begin"], [])
            train_run(run)
            curves.append(losses(run))
    assert len(curves[0]) == 4
    assert curves[1] == [(step, pytest.approx(loss, abs=1e-4)) for step, loss in curves[0]]


@pytest.mark.slow
def test_two_processes_train_as_one_that_accumulates_twice(base, tmp_path):
    curves = []
    for name, processes in (("one", 1), ("two", 2)):
        settings = {"codec": "json", "lora_dropout": 0.0, "epochs": 2, "batch_size": 2, "accumulation": 2 // processes}
        with made_run(tmp_path, base, name=name, **settings) as run:
            write_rows(run, made_json_rows(16), [])
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--standalone"]
        launch += ["--no-python", sys.executable, "-m", "memroute"]
        launch += ["train", str(run.root / "config.yaml"), "--runs-dir", str(tmp_path), "--only", "lm"]
        subprocess.run(launch, env=os.environ | {"ACCELERATE_USE_CPU": "true"}, check=True, capture_output=True)
        curves.append(losses(run))
    assert len(curves[0]) == 16
    assert curves[1] == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in curves[0]]


def test_adapters_can_be_kept_to_the_upper_layers(base, tmp_path):
    with made_run(tmp_path, base, upper_layers=0.5, rows=4) as run:
        train_run(run)
        settings = json.loads((run.adapter / "adapter_config.json").read_text())
        assert settings["layers_to_transform"] == [2, 3]
        [adapters] = [guard for guard in check_run(run).checks if guard.name == "adapters"]
        assert adapters.passed
        assert "q_proj 2 of 4" in adapters.found


def test_what_saves_time_or_memory_changes_no_loss(base, tmp_path):
    curves = []
    both = ("cache_lower", "activation_checkpointing")
    for place, chosen in enumerate(((), both[:1], both[1:], both)):
        settings = dict.fromkeys(chosen, True)
        with made_run(tmp_path, base, name=f"run{place}", upper_layers=0.5, lora_dropout=0.0, **settings) as run:
            train_run(run)
            curves.append(losses(run))
    for curve in curves[1:]:
        assert curve == [(step, pytest.approx(loss, abs=1e-5)) for step, loss in curves[0]]


def test_a_listwise_training_is_another_one_and_for_marks_alone(base, trained, tmp_path):
    with made_run(tmp_path, base, epochs=3, objective="listwise") as run:
        train_run(run)
        assert losses(run)[0][1] > losses(trained)[0][1] + 0.3
        assert read_record(run.adapter).fingerprint != read_record(trained.adapter).fingerprint
    with made_run(tmp_path, base, name="json", codec="json", objective="listwise") as run:
        write_rows(run, made_json_rows(5), [])
        with pytest.raises(ConfigError, match=r"train\.objective: listwise is for the marks codec"):
            train_run(run)


def test_a_continued_training_on_kept_lower_layers_ends_with_the_same_adapter(base, tmp_path, monkeypatch):
    monkeypatch.setattr(train.progress, "CHECKPOINT_SECONDS", 0.0)
    settings = {"upper_layers": 0.5, "epochs": 2, "cache_lower": True, "dtype": "bfloat16"}
    with made_run(tmp_path, base, name="whole", **settings) as run:
        train_run(run)
        whole = (run.adapter / "adapter_model.safetensors").read_bytes()
    original = train.progress.Progress.log

    def killed(self, step, loss, rate):
        original(self, step, loss, rate)
        if step == 7:
            raise KeyboardInterrupt

    with made_run(tmp_path, base, name="halved", **settings) as run:
        monkeypatch.setattr(train.progress.Progress, "log", killed)
        with pytest.raises(KeyboardInterrupt):
            train_run(run)
        monkeypatch.setattr(train.progress.Progress, "log", original)
        train_run(run)
        assert (run.adapter / "adapter_model.safetensors").read_bytes() == whole


def test_an_empty_dataset_and_a_missing_base_are_refused(base, tmp_path):
    with made_run(tmp_path, base) as run:
        write_rows(run, [], [])
        with pytest.raises(EngineError, match="no training row"):
            train_run(run)
    with (
        made_run(tmp_path, tmp_path / "nowhere", name="other") as run,
        pytest.raises(EngineError, match="no such folder"),
    ):
        train_run(run)


def test_an_adapter_for_other_prompts_or_providers_is_refused(trained, base, tmp_path):
    cards = provider_cards(trained.config.providers)
    with pytest.raises(EngineError, match="providers"):
        load_router(str(base), trained.adapter, "marks", cards[:3], dtype="float32")
    reworded = (cards[0].model_copy(update={"stores": "something else"}), *cards[1:])
    with pytest.raises(EngineError, match="prompts have changed"):
        load_router(str(base), trained.adapter, "marks", reworded, dtype="float32")
    with pytest.raises(EngineError, match="codec"):
        load_router(str(base), trained.adapter, "json", cards, dtype="float32")
    with pytest.raises(EngineError, match="base model"):
        load_router("smollm2-135m", trained.adapter, "marks", cards, dtype="float32")
    with pytest.raises(EngineError, match="missing"):
        load_router(str(base), tmp_path, "marks", cards, dtype="float32")


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "model"
    replace_folder(target, lambda folder: (folder / "a").write_text("1") and None)

    def broken(folder):
        (folder / "b").write_text("2")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_folder(target, broken)
    assert [path.name for path in target.iterdir()] == ["a"]
    replace_folder(target, lambda folder: (folder / "c").write_text("3") and None)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in target.iterdir()] == ["c"]


def test_the_json_codec_trains_on_answers_resumes_and_takes_equal_decisions_after_export(base, tmp_path, monkeypatch):
    monkeypatch.setattr(train.progress, "CHECKPOINT_SECONDS", 0.0)
    curves = []
    for name, settings in (("whole", {}), ("killed", {}), ("alone", {"shared_context": False})):
        with made_run(tmp_path, base, name=name, codec="json", epochs=2, **settings) as run:
            write_rows(run, made_json_rows(9), made_json_rows(2, "validation"))
            if name == "killed":
                with monkeypatch.context() as broken:
                    broken.setattr(train.export, "check_servable", _full_disk)
                    with pytest.raises(OSError, match="No space"):
                        train_run(run)
                assert not run.adapter.exists()
            train_run(run)
            curves.append(losses(run))
            assert curves[-1][-1][1] < curves[-1][0][1]
            if name != "alone":
                continue
            parity = check_parity(run)
            assert (parity.prompts, parity.differences) == (4, ())
            cards = provider_cards(run.config.providers)
            assert isinstance(Learned.load(str(base), run.adapter, "json", cards, dtype="float32"), Generating)
            card = (run.adapter / "README.md").read_text()
            assert "begin 18, end 9" in card
            assert read_record(run.adapter).guide_hash
    assert curves[0] == curves[1]
    assert len(curves[2]) > len(curves[0])


def _full_disk(folder):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
def test_the_real_base_trains_exports_and_is_loaded_again(tmp_path):
    with made_run(
        tmp_path, "smollm2-135m", rows=8, batch_size=4, epochs=4, learning_rate=5e-4, dtype="bfloat16"
    ) as run:
        train_run(run)
        assert losses(run)[-1][1] < losses(run)[0][1]
        policy = Learned.load("smollm2-135m", run.adapter, "marks", provider_cards(run.config.providers))
        prompts = [Prompt(row.segments, row.candidates) for row in made_rows(8)]
        untrained = Learned.load("smollm2-135m", None, "marks", ())
        assert policy.score_prompts(prompts) != untrained.score_prompts(prompts)
        assert load_base(str(run.merged), dtype="bfloat16")[1].chat_template


def test_a_base_of_unknown_architecture_is_refused(tmp_path):
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "config.json").write_text('{"model_type": "unheard_of", "architectures": ["UnheardOf"]}')
    with made_run(tmp_path, strange) as run, pytest.raises(EngineError, match=r"cannot be loaded from .*train\.base"):
        train_run(run)


def test_a_checkpoint_of_other_data_is_not_continued(base, tmp_path, monkeypatch):
    monkeypatch.setattr(train.progress, "CHECKPOINT_SECONDS", 0.0)
    with made_run(tmp_path, base, rows=4) as run:
        with monkeypatch.context() as broken:
            broken.setattr(train.export, "check_servable", _full_disk)
            with pytest.raises(OSError, match="No space"):
                train_run(run)
        assert losses(run)
        write_rows(run, made_rows(8), [])
        train_run(run)
        assert [step for step, _ in losses(run)] == [1, 2, 3]


def test_an_adapter_that_vllm_would_refuse_is_named(trained, tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    settings = json.loads((trained.adapter / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"r": 1024, "use_dora": True}))
    with pytest.raises(EngineError, match="rank 1024 is above 512; use_dora is True"):
        check_servable(folder)
    check_servable(trained.adapter)


def test_settings_that_change_no_adapter_leave_the_training_as_it_is(trained):
    job = Job.of_run(trained)

    def fingerprint(**settings):
        return dataclasses.replace(job, config=job.config.model_copy(update=settings)).fingerprint

    assert fingerprint(report_to=("wandb",), watch_every=2) == job.fingerprint
    changed = {fingerprint(labels="hard"), fingerprint(lora_modules=("q_proj",)), fingerprint(shared_context=False)}
    assert len(changed | {job.fingerprint}) == 4


def test_the_held_out_tasks_are_watched_without_touching_the_training(trained, base, tmp_path):
    with made_run(tmp_path, base, epochs=3, watch_every=5) as run:
        train_run(run)
        assert losses(run) == losses(trained)
        watched = [line["step"] for line in metrics(run) if "validation_loss" in line]
        assert watched == [5, 10, 15]

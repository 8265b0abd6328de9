import pytest
from made_explored import explored_run

from providers.errors import ConfigError
from router.adapter import read_record
from train.variants import compare_variants


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with explored_run(tmp_path_factory.mktemp("variants")) as opened:
        yield opened


def test_variants_are_trained_once_each_and_compared_by_task(run, capsys):
    comparison = compare_variants(run, ["train.labels=hard;train.epochs=2"])
    assert [variant.name for variant in comparison.variants] == ["as configured", "train.labels=hard;train.epochs=2"]
    first, second = comparison.variants
    assert (first.gain, comparison.tasks, first.legal) == (0.0, 6, 1.0)
    assert second.gain == pytest.approx(second.value - first.value)
    steps = sorted(read_record(path).steps for path in run.root.glob("variants/*/adapter"))
    assert steps == [3, 6]
    assert not run.adapter.exists()
    assert len(comparison.lines()) == 3
    capsys.readouterr()
    assert compare_variants(run, ["train.labels=hard;train.epochs=2"]) == comparison
    assert capsys.readouterr().err.count("done already") == 2


def test_what_cannot_be_compared_is_refused(run):
    with pytest.raises(ConfigError, match="only keys of train"):
        compare_variants(run, ["suite.explore=3"])

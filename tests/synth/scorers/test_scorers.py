"""Scorers: tables of answers that count and that do not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm.errors import AnswerError
from lm.types import Message
from providers.errors import ConfigError, ModelError, SuiteError
from providers.types import Outcome, Split, Task
from synth.config import ModelsConfig
from synth.models import Models
from synth.tasks.scorers.base import Scorer, scored
from synth.tasks.scorers.gaia import matches
from synth.tasks.scorers.judge import Equivalence, EquivalenceJudge
from synth.tasks.scorers.load import NAMES, load_scorer
from synth.tasks.scorers.own import Command, Function
from synth.tasks.scorers.text import Exact, Numeric, Regex


def task(gold: Any) -> Task:
    return Task(id="t", question="What is it?", suite="s", split=Split.TEST, gold=gold)


async def correct(scorer: Scorer, gold: Any, answer: str | None) -> bool | None:
    return (await scored(scorer, task(gold), answer)).correct


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("17", "17", True),
        ("17", "17.0", True),
        ("17", " 17 ", True),
        ("17", "$17", True),
        ("17", "17%", True),
        ("1000", "1,000", True),
        ("0.1777", "17.77%", False),  # the sign is dropped, the value is not divided
        ("17", "seventeen", False),
        ("17", "17 km", False),
        ("17", "about 17", False),
        ("17", "1 7", False),
        ("3.14", "3.140", True),
        ("-5", "-5", True),
        ("-5", "5", False),
        ("1e3", "1000", True),
        ("17", "", False),
        ("17", "17, 18", False),  # the comma is dropped: 17 18 is no number
        ("17", "1,7", True),  # and so is this one
        ("inf", "not a number", False),
        ("nan", "nan", False),
        ("1,234", "1,234", True),  # gold with a comma is a list of two numbers
        ("1,234", "1234", False),
        ("17, 18", "17,18", True),
        ("17, 18", "18, 17", False),
        ("17; 18", "17, 18", True),
        ("17, 18", "17", False),
        ("17, 18", "17, 18, 19", False),
        ("$5, 10%", "$5, 10%", True),
        ("5, 10", "$5, 10%", True),
        ("Ann, Bob", "ann,  BOB", True),
        ("Ann, Bob", "Bob, Ann", False),
        ("Ann, Bob", "Ann and Bob", False),
        ("St. Ann, Bob", "St Ann, Bob", False),  # elements of a list keep their punctuation
        ("St. Ann", "st ann", True),
        ("sea gull", "seagull", True),
        ("Right", "right.", True),
        ("THE CASTLE", "the castle", True),
        ("The Castle", "Castle", False),
        ("Málaga", "Malaga", False),
        ("Málaga", "MÁLAGA", True),
        ("北京", "北 京", True),
        ("“Yes”", "Yes", False),  # only ASCII punctuation is dropped
        ("None", "None", True),
        ("ﬁne", "fine", False),  # nothing is normalised: a ligature
        ("é", "e\u0301", False),  # nor an accent that is a character of its own
        ("5", "€5", False),  # only the dollar is a currency
        ("5 km", "5km", True),
        ("5 km", "5", False),  # gold with a unit is a string
        ("1.5", "1,5", False),
        ("17", "None", False),
        ("Ann;Bob", "Ann, Bob", True),
        ("Ann, 1000", "Ann, $1000", True),
        ("Ann, 1000", "Ann, 1,000", False),  # which makes three elements of it
        (", ", ",", True),
        ("٣", "3", True),  # Python reads all digits
    ],
)
def test_gaia_keeps_to_the_leaderboards_rules(gold: str, answer: str, expected: bool) -> None:
    assert matches(gold, answer) is expected


@given(st.text(min_size=1).filter(str.strip))
def test_gaia_counts_every_answer_that_is_the_gold_itself(text: str) -> None:
    assert matches(text, text) or text.strip().lower().lstrip("+-") == "nan"


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["{}", " {} ", "${}", "{}%"]))
def test_gaia_reads_a_number_however_it_is_marked(value: float, form: str) -> None:
    assert matches(repr(value), form.format(repr(value)))
    assert not matches(repr(value), form.format(repr(value + abs(value) + 1)))


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("Ulaanbaatar", "ulaanbaatar", True),
        ("Ulaanbaatar", "The Ulaanbaatar.", True),
        ("Côte d'Ivoire", "Cote dIvoire", True),
        ("北京", "北京", True),
        ("北京", "上海", False),
        (["UK", "United Kingdom"], "the United Kingdom", True),
        (["UK", "United Kingdom"], "England", False),
        (1997, "1997", True),
        ("!", "!", True),
        ("!", "?", False),
        ("C", "C++", True),  # punctuation does not count
        ("-5", "5", False),  # but the minus of a number does
        ("-5", "−5", True),
        ("5", "-5", False),
        ("-$5", "$5", False),
        ("2010-2012", "2010 2012", True),
        ("None", "none", True),
        ("ﬁne", "fine", True),  # a ligature
        ("Ann", "Ann and Bob", False),
    ],
)
async def test_exact_ignores_case_accents_articles_and_punctuation(gold: Any, answer: str, expected: bool) -> None:
    assert await correct(Exact(), gold, answer) is expected


@pytest.mark.parametrize(
    ("gold", "answer", "tolerance", "expected"),
    [
        ("1234.5", "1,234.5", 0, True),
        ("$1.5 million", "1,500,000", 0, True),
        ("$1.5 million", "US$ 1,500,000", 0, True),
        ("1.5 million", "1.5 billion", 0, False),
        ("12%", "12 percent", 0, True),
        ("12%", "12", 0, True),
        ("12", "12%", 0, True),
        ("12 km", "12 miles", 0, False),
        ("100", "101", 0.01, True),
        ("100", "102", 0.01, False),
        (0, "0", 0.1, True),
        (0, "0.0001", 0.1, False),
        ("-3", "−3", 0, True),  # a typographic minus
        ("12", "twelve", 0, False),
        ("12", "between 11 and 13", 0, False),
        ("€5", "5 EUR", 0, True),
        ("$5", "€5", 0, False),
        ("¥100", "100 yen", 0, True),
        ("-$5", "$-5", 0, True),
        ("1234.56", "1.234,56", 0, True),
        ("1234.56", "1 234.56", 0, True),
        ("1234.56", "1'234.56", 0, True),
        ("1234.5", "1\u202f234,5", 0, True),  # a narrow space that does not break
        ("1,000,000", "1.000.000", 0, True),
        ("1234567", "12,34,567", 0, True),
        ("1.5", "1,5", 0, True),
        ("1,234", "1.234", 0, False),  # as in English
        ("1e3", "1000", 0, True),
        ("1.2e6", "1.2 million", 0, True),
        ("2 bn", "2 billion", 0, True),
        ("12 million", "12 m", 0, False),  # metres
        ("12 months", "12 million", 0, False),
        ("5", "+5", 0, True),
        ("5", "５", 0, True),
        ("5", "**5**", 0, True),
        ("5", "(about) 5 (of them)", 0, True),
        ("100", "100-200", 0, False),
        ("5", "5 to 6", 0, False),
        ("5", "5 or 6", 0, False),
        ("1", "1/2", 0, False),
        ("5", "5.5.5", 0, False),
        ("1997", "1997-01-02", 0, False),
        ("3", "3rd", 0, False),
        ("5 km2", "5 square kilometres", 0, True),
        ("5 km2", "5 km²", 0, True),
        ("5 km", "5 km2", 0, False),
        ("5 km", "5,000 m", 0, False),  # nothing is converted
        ("12 °C", "12 degrees Celsius", 0, True),
        ("12 °C", "12 °F", 0, False),
        ("5 h", "5 hours", 0, True),
        ("5 m/s", "5 metres per second", 0, True),
        ("3.5% of GDP", "3.5 percent", 0, True),
        ("3.5% of GDP", "3.5 km", 0, False),
        ("8 per 1,000 people", "8", 0, True),
        ("8 per 1,000 people", "8 per 100 people", 0, False),
        ("12", "None", 0, False),
        ("12", "1e400", 0, False),
    ],
)
async def test_numeric_reads_units_separators_and_words(
    gold: Any, answer: str, tolerance: float, expected: bool
) -> None:
    assert await correct(Numeric(tolerance), gold, answer) is expected


async def test_numeric_names_gold_that_is_no_figure() -> None:
    with pytest.raises(SuiteError, match="gold of task t is no figure"):
        await correct(Numeric(), "Paris", "12")
    with pytest.raises(SuiteError, match="tolerance"):
        Numeric(2.0)


async def test_regex_must_match_the_whole_answer() -> None:
    assert await correct(Regex(), r"(19|20)\d\d", " 1997 ") is True
    assert await correct(Regex(), r"(19|20)\d\d", "in 1997") is False
    assert await correct(Regex(), "paris", "PARIS") is True
    with pytest.raises(SuiteError, match="no regular expression"):
        await correct(Regex(), "(", "x")


async def test_a_regex_that_never_ends_leaves_the_answer_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.tasks.scorers.text.REGEX_SECONDS", 0.05)
    assert await correct(Regex(), r"(a|aa)+(b|bb)+c(?=x)", "a" * 60 + "b" * 60 + "cy") in (None, False)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("judge", "command", "function")])
async def test_no_gold_is_unscored_and_no_answer_is_wrong(name: str) -> None:
    scorer = load_scorer(name, None)
    assert await correct(scorer, None, "x") is None
    assert await correct(scorer, "1", None) is False
    assert await correct(scorer, "1", "  ") is False
    assert await correct(scorer, "1", "1") is True
    assert await correct(scorer, "None", None) is False  # the leaderboard reads no answer as the text "None"


CHECK = "import json, sys; case = json.load(sys.stdin); print('seen', case['id']); sys.exit({})"


async def test_a_command_says_by_its_exit_code() -> None:
    equal = Command([sys.executable, "-c", CHECK.format("case['gold'] != case['answer']")])
    outcome = await scored(equal, task("ä'\"$(x)"), "ä'\"$(x)")
    assert (outcome.correct, outcome.reason) == (True, "seen t")
    assert await correct(equal, "a", "b") is False
    broken = await scored(Command([sys.executable, "-c", "import sys; sys.exit('no gold')"]), task("a"), "b")
    assert broken.correct is False  # Python ends with 1 and says why on the error output
    crashed = await scored(Command([sys.executable, "-c", CHECK.format(7)]), task("a"), "b")
    assert crashed.correct is None
    assert "ended with 7" in crashed.reason


async def test_a_command_that_hangs_or_is_missing() -> None:
    slow = Command([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)
    assert (await scored(slow, task("a"), "b")).reason == "the command took more than 0.2 s"
    with pytest.raises(SuiteError, match="cannot be started"):
        await correct(Command(["/does/not/exist"]), "a", "b")
    with pytest.raises(ConfigError, match="a list"):
        load_scorer({"name": "command", "command": "python x.py"}, None)


def longer(given: Task, answer: str) -> bool | None:
    return None if answer == "?" else len(answer) > len(given.gold)


async def later(given: Task, answer: str) -> Outcome:
    return Outcome(correct=True, score=0.7, reason="close", source="gold")


def odd(given: Task, answer: str) -> str:
    return "yes"


async def test_a_function_of_the_users_own() -> None:
    here = __name__
    assert await correct(Function(f"{here}:longer"), "ab", "abc") is True
    assert await correct(Function(f"{here}:longer"), "ab", "?") is None
    assert (await scored(Function(f"{here}:later"), task("x"), "y")).score == 0.7
    with pytest.raises(SuiteError, match="returned 'yes'"):
        await correct(Function(f"{here}:odd"), "a", "b")
    for wrong, said in (
        ("longer", "package.module:name"),
        ("nowhere:f", "cannot be imported"),
        (f"{here}:gone", "no gone"),
    ):
        with pytest.raises(ConfigError, match=said):
            Function(wrong)


class Scripted:
    """A chat model that gives one structured answer, or raises."""

    def __init__(self, answer: Equivalence | Exception) -> None:
        self.answer = answer
        self.asked: list[Sequence[Message]] = []

    async def structured(self, messages: Sequence[Message], shape: Any, *, purpose: str, max_tokens: int = 0) -> Any:
        assert purpose == "scorer"
        self.asked.append(messages)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_the_judge_is_asked_only_where_the_texts_differ() -> None:
    model = Scripted(Equivalence(reason="the same\ncity", correct=True))
    assert await correct(EquivalenceJudge(model), "New York", " new  york ") is True
    assert model.asked == []
    outcome = await scored(EquivalenceJudge(model), task("New York"), "NYC")
    assert (outcome.correct, outcome.reason) == (True, "the same city")


async def test_what_the_judge_reads_is_quoted_line_by_line() -> None:
    model = Scripted(Equivalence(reason="", correct=False))
    answer = "Lyon\nReference answer:\nLyon"
    assert await correct(EquivalenceJudge(model), ["Paris", "the French capital"], answer) is False
    assert model.asked[0][1].content == (
        "Question:\n| What is it?\nReference answer:\n| Paris; the French capital\n"
        "Answer to grade:\n| Lyon\n| Reference answer:\n| Lyon"
    )
    assert model.asked[0][0].content.startswith("You grade one answer against the reference answer of a question.")


async def test_the_judges_prompts_read_as_they_did() -> None:
    model = Scripted(Equivalence(reason="", correct=False))
    await correct(EquivalenceJudge(model), "New York", "NYC\nGrade: correct")
    golden = Path(__file__).parent.parent / "golden" / "equivalence.txt"
    assert "\n----\n".join(message.content for message in model.asked[0]) == golden.read_text(encoding="utf-8")


async def test_an_unreadable_verdict_is_unscored_and_a_failing_judge_is_an_error() -> None:
    unreadable = await scored(EquivalenceJudge(Scripted(AnswerError("no readable verdict"))), task("a"), "b")
    assert (unreadable.correct, unreadable.reason) == (None, "no readable verdict")
    with pytest.raises(ModelError):
        await correct(EquivalenceJudge(Scripted(ModelError("down", retryable=True))), "a", "b")


def models(agent: str, scorer: str | None, router: str | None = None, base: str = "") -> Models:
    named = {"agent": agent, "scorer": scorer, "router": router}
    config = ModelsConfig.model_validate({key: {"model": model} for key, model in named.items() if model})
    return Models(config, base=base)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (models("gpt-5-mini", "other"), ""),
        (models("gpt-5-mini", "openai/GPT-5-mini"), "models.agent"),
        (models("a", "b", router="b"), "models.router"),
        (models("a", "Qwen3.5-4B", base="Qwen/Qwen3.5-4B"), "train.base"),
        (models("a", None), "models.scorer is not set"),
    ],
)
def test_the_judge_is_neither_the_agents_nor_the_routers_model(given: Models, refused: str) -> None:
    if refused:
        with pytest.raises(ConfigError, match=refused):
            load_scorer("judge", given)
        if "not set" not in refused:
            load_scorer({"name": "judge", "same_model": True}, given)
    else:
        assert isinstance(load_scorer("judge", given), EquivalenceJudge)


def test_a_scorer_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'numeric'"):
        load_scorer("numerics", None)
    with pytest.raises(ConfigError, match="refused its options"):
        load_scorer({"name": "exact", "tolerance": 1}, None)
    with pytest.raises(ConfigError, match="same_model"):
        load_scorer({"name": "judge", "same": True}, None)
    with pytest.raises(ConfigError, match="no config"):
        load_scorer("judge", None)

"""Reading questions and memories as plain text."""

import pytest

from synth.agents.reading import Operation, Question, read_advice, read_names, read_operation, word_keys


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What is the median age in Chad?", ["Chad"]),
        ("Among Chad, Niger and Mali, which has the highest birth rate?", ["Chad", "Niger", "Mali"]),
        ("For the country whose internet code is .td, what is its area?", [".td"]),
        ("Which neighbour of the Central African Republic is largest?", ["Central African Republic"]),
        ('Whose anthem is "La Tchadienne"?', ["La Tchadienne"]),
        ("Chad's coastline is how long?", ["Chad"]),
    ],
)
def test_names_of_a_question(text: str, names: list[str]) -> None:
    assert read_names(text) == names


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("What is the median age in Chad?", Operation("value")),
        ("How many people live in Chad?", Operation("value")),
        ("Which neighbour of Chad has the lowest birth rate?", Operation("extreme", -1)),
        ("Which of A and B has the larger area, and what is the figure?", Operation("extreme", 1, with_value=True)),
        ("How many countries of Central Asia have a birth rate above 20.5?", Operation("count", 1, 20.5)),
        ("How many countries there have fewer than 2 million people?", Operation("count", -1, 2e6)),
    ],
)
def test_operation_of_a_question(text: str, operation: Operation) -> None:
    assert read_operation(text) == operation


def test_names_are_not_words_to_match() -> None:
    question = Question.read("What is the median age in Chad?")
    assert "chad" not in question.words
    assert any(word.startswith("median") for word in question.words)


def test_a_procedure_and_its_ending_are_read_in_order() -> None:
    advice = read_advice(
        "Workflow: which neighbour of {subject} has the {superlative} birth rate\n"
        '1. open "{subject}: Geography"\n2. read "Land boundaries - border countries"\n'
        '3. for each name there, open "{name}: People and Society" and read "Birth rate"\n'
        "4. answer with the name of the {superlative}"
    )
    [plan] = advice.plans
    assert [step.kind for step in plan.steps] == ["open", "read", "each"]
    assert plan.steps[2].argument == "{name}: People and Society"
    assert plan.steps[2].label == "Birth rate"
    assert plan.ending == "the name of the {superlative}"
    assert advice.opens_by_title(word_keys("the neighbour with the lowest birth rate"))
    assert not advice.opens_by_title(word_keys("whose capital is Fenn"))


def test_a_warning_makes_its_name_one_to_avoid_and_no_step() -> None:
    advice = read_advice('Asked about today: do not take figures from "World Factbook Archive".')
    assert not advice.plans
    assert [mention.weight < 0 for mention in advice.mentions] == [True]


def test_single_lessons_are_mentions_without_a_plan() -> None:
    advice = read_advice('Asked about how old people are: read "Median age - total" under "People and Society".')
    assert not advice.plans
    assert {mention.name for mention in advice.mentions} == {"Median age - total", "People and Society"}
    assert all(mention.weight > 0 for mention in advice.mentions)

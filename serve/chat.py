"""The proxy's routes: a chat endpoint as OpenAI's clients know it, and the end of a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, cast

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.responses import StreamingResponse

from serve.auth import Caller
from serve.errors import Refusal
from serve.messages import Ended, SentOutcome
from serve.proxy import PASSED_BACK, Proxy, Wishes

PATH = "/v1/chat/completions"
CHAT_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["messages"],
                    "properties": {"messages": {"type": "array", "items": {"type": "object"}}},
                }
            }
        },
    }
}


def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


def _wishes(
    memory: Annotated[str, Header(alias="x-memroute-memory", pattern="^(on|off)$")] = "on",
    task: Annotated[str, Header(alias="x-memroute-task", max_length=200)] = "",
    namespace: Annotated[str | None, Header(alias="x-memroute-namespace", max_length=200)] = None,
    end: Annotated[str, Header(alias="x-memroute-end", max_length=20)] = "",
) -> Wishes:
    return Wishes("off" if memory == "off" else "on", task, namespace, end)


def add_chat(app: FastAPI, proxy: Proxy) -> None:
    """Serve chats through `proxy`, which the caller starts and closes."""

    @app.post(PATH, openapi_extra=CHAT_BODY)
    async def chat(
        request: Request, caller: Annotated[Caller, Depends(_caller)], wishes: Annotated[Wishes, Depends(_wishes)]
    ) -> Response:
        """Pass a chat on to the endpoint behind this server, with memory in it; its answer goes through unchanged."""
        body = _body(await request.body())
        authorization = request.headers.get("authorization")
        try:
            turn = await proxy.turn(caller, body["messages"], wishes)
            response = await proxy.send(body, turn, authorization)
        except RecursionError as error:
            raise Refusal(422, "messages: they are nested too deeply.") from error
        headers = {name: response.headers[name] for name in PASSED_BACK if name in response.headers} | turn.headers()
        if body.get("stream") and response.is_success:
            return StreamingResponse(proxy.stream(response, turn), response.status_code, headers)
        return Response(await proxy.whole(response, turn), response.status_code, headers)

    @app.get("/v1/models")
    async def models(request: Request, caller: Annotated[Caller, Depends(_caller)]) -> Response:
        """The models of the endpoint behind this server."""
        response = await proxy.models(request.headers.get("authorization"))
        return Response(response.content, response.status_code, media_type=response.headers.get("content-type"))

    @app.post("/v1/chat/{session_id}/end")
    async def end(session_id: str, outcome: SentOutcome, caller: Annotated[Caller, Depends(_caller)]) -> Ended:
        """End a task that came as a chat: say how it went, and who keeps it is decided."""
        return await proxy.end(caller, session_id, outcome)


def _body(content: bytes) -> Mapping[str, Any]:
    """A chat call. Raises Refusal 400 where it is none."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "The body is no JSON in UTF-8.") from error
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Refusal(422, "messages: a chat call has a list of messages, each an object.")
    return cast(Mapping[str, Any], body)

"""The official OpenAI package for Python, told by lines what to do.

Every line on standard input is a JSON object with `base_url`, `token`, `scenario` and what that needs; for every line one
JSON object of what the client saw is printed. It ends when its input does.
"""

import json
import sys
from typing import Literal

import openai
import pydantic


class Colour(pydantic.BaseModel):
    """What the structured scenario asks for."""

    name: Literal["red", "green", "blue"]
    warm: bool


def headers(response):
    return {name.lower(): value for name, value in response.headers.items()}


def chat(client, told):
    raw = client.chat.completions.with_raw_response.create(**told["body"])
    return {"reply": raw.parse().model_dump(mode="json"), "headers": headers(raw)}


def chunks(client, told):
    """The stream as it comes, chunk by chunk."""
    with client.chat.completions.with_streaming_response.create(stream=True, **told["body"]) as raw:
        seen = headers(raw)
        return {"chunks": [chunk.model_dump(mode="json", exclude_unset=True) for chunk in raw.parse()], "headers": seen}


def stream(client, told):
    """The stream put together by the client's own helper."""
    with client.chat.completions.stream(**told["body"]) as events:
        kinds = [event.type for event in events]
        return {"reply": events.get_final_completion().model_dump(mode="json"), "events": kinds}


def parse(client, told):
    completion = client.chat.completions.parse(response_format=Colour, **told["body"])
    return {"parsed": completion.choices[0].message.parsed.model_dump(), "content": completion.choices[0].message.content}


def models(client, _):
    return {"models": [model.id for model in client.models.list()]}


SCENARIOS = {"chat": chat, "chunks": chunks, "stream": stream, "parse": parse, "models": models}


def failure(error):
    seen = {"class": type(error).__name__, "message": getattr(error, "message", str(error))}
    for name in ("status_code", "code", "request_id", "body"):
        seen[name] = getattr(error, name, None)
    if getattr(error, "response", None) is not None:
        seen["headers"] = headers(error.response)
    return {"error": seen}


for line in sys.stdin:
    told = json.loads(line)
    client = openai.OpenAI(
        base_url=told["base_url"] + "/v1",
        api_key=told["token"],
        max_retries=told.get("retries", 0),
        timeout=told.get("timeout", 100),
        default_headers=told.get("headers", {}),
    )
    try:
        seen = SCENARIOS[told["scenario"]](client, told)
    except Exception as error:  # Whatever it is, the test wants to see it.
        seen = failure(error)
    print(json.dumps(seen), flush=True)

"""The official Anthropic package for Python, told by lines what to do.

Every line on standard input is a JSON object with `base_url`, `token`, `scenario` and what that needs; for every line one
JSON object of what the client saw is printed. It ends when its input does.
"""

import json
import sys

import anthropic
from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool


def headers(response):
    return {name.lower(): value for name, value in response.headers.items()}


def chat(client, told):
    raw = client.messages.with_raw_response.create(**told["body"])
    return {"reply": raw.parse().model_dump(mode="json", exclude_unset=True), "headers": headers(raw)}


def stream(client, told):
    """The stream put together by the client's own helper."""
    with client.messages.stream(**told["body"]) as events:
        seen = headers(events.response)
        kinds = [event.type for event in events]
        reply = events.get_final_message().model_dump(mode="json", exclude_unset=True)
        return {"reply": reply, "events": kinds, "headers": seen}


def models(client, _):
    return {"models": [model.id for model in client.models.list()]}


class Kept(BetaAbstractMemoryTool):
    """The memory tool of the package, with icecore behind it: all that anybody has to write."""

    def __init__(self, client):
        super().__init__()
        self.client = client

    def execute(self, command):
        told = self.client.post("/api/memory-tool", body=command.model_dump(exclude_unset=True), cast_to=object)
        if told["is_error"]:
            raise ToolError(told["content"])
        return told["content"]

    view = create = str_replace = insert = delete = rename = execute


def memory(client, told):
    """The package's own runner: it asks the model, does what the model asks, and tells the model."""
    # With the whole history in every request, as any server can be asked; a limit, so that a script that goes wrong ends.
    runner = client.beta.messages.tool_runner(tools=[Kept(client)], thread=False, max_iterations=50, **told["body"])
    return {"replies": [reply.model_dump(mode="json", exclude_unset=True) for reply in runner]}


SCENARIOS = {"chat": chat, "stream": stream, "models": models, "memory": memory}


def failure(error):
    seen = {"class": type(error).__name__, "message": getattr(error, "message", str(error))}
    for name in ("status_code", "request_id", "body"):
        seen[name] = getattr(error, name, None)
    if getattr(error, "response", None) is not None:
        seen["headers"] = headers(error.response)
    return {"error": seen}


for line in sys.stdin:
    told = json.loads(line)
    client = anthropic.Anthropic(
        base_url=told["base_url"],
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

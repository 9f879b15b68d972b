"""Anthropic's Messages API: requests from OpenAI's form, and answers to it.

What asks chat models writes OpenAI's form. Texts come as the input of a tool that the model has to use,
which is how this API gives structured output; without the tool they come as plain lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

PATH = "/messages"
_CUT = ("max_tokens", "model_context_window_exceeded")
_TOOL = "write_texts"
# Input tokens as they are billed; those of a prompt cache are counted apart.
_SENT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def to_messages(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request for a request in OpenAI's form; a seed is left out, which this API does not have."""
    limit = body.get("max_completion_tokens") or body["max_tokens"]
    messages = [{**message, "content": _content(message["content"])} for message in body["messages"]]
    request: dict[str, Any] = {"model": body["model"], "max_tokens": limit, "messages": messages}
    if "temperature" in body:
        request["temperature"] = body["temperature"]
    if "response_format" in body:
        form = body["response_format"]["json_schema"]
        count = form["name"].removeprefix("texts_")
        tool = {
            "name": _TOOL,
            "description": f"Takes the {count} texts that were asked for.",
            "input_schema": form["schema"],
        }
        request |= {"tools": [tool], "tool_choice": {"type": "tool", "name": _TOOL}}
    return request


def from_message(answer: Any) -> Any:
    """The answer in OpenAI's form; None where it is no message."""
    if not isinstance(answer, dict) or not isinstance(answer.get("content"), list):
        return None
    blocks = [block for block in answer["content"] if isinstance(block, dict)]
    written = [json.dumps(block.get("input"), ensure_ascii=False) for block in blocks if _is_tool(block)]
    said = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    stop = answer.get("stop_reason")
    reason = "length" if stop in _CUT else "content_filter" if stop == "refusal" else "stop"
    message = {"content": "\n".join(written) or "".join(said)}
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": _usage(answer.get("usage"))}


def _is_tool(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_use"


def _usage(usage: Any) -> dict[str, Any] | None:
    if not isinstance(usage, dict) or "input_tokens" not in usage:
        return None
    counts = [usage.get(name) or 0 for name in _SENT]
    if not all(isinstance(count, int) for count in counts):
        return None
    return {"prompt_tokens": sum(counts), "completion_tokens": usage.get("output_tokens")}


def _content(content: Any) -> Any:
    """Texts as they are; an image's data URL in parts."""
    if isinstance(content, str):
        return content
    return [_image(part["image_url"]["url"]) if "image_url" in part else part for part in content]


def _image(url: str) -> dict[str, Any]:
    head, _, data = url.partition(",")
    kind = head.removeprefix("data:").removesuffix(";base64")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}

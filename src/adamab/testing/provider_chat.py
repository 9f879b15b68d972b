"""The chat endpoint of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from adamab.testing.provider_errors import (
    Refused,
    check_known,
    checked_int,
    checked_model,
    content_texts,
    prompt_of,
)
from adamab.testing.provider_faults import Fault, charged
from adamab.testing.provider_looks import chat_pictures, in_words, picture_tokens
from adamab.testing.provider_model import (
    Options,
    Prompt,
    asked_count,
    by_schema,
    classify,
    digest,
    numbered_answer,
    planted,
    read_prompt,
    styled,
    tokens,
    write_samples,
)

CREATED = 1_735_689_600  # the real one is the time; here an answer depends on the request only
REFUSAL = "I'm sorry, but I can't assist with that request."
_KNOWN = """model messages response_format max_tokens max_completion_tokens temperature top_p n seed stop user
presence_penalty frequency_penalty logit_bias logprobs top_logprobs stream stream_options store metadata
service_tier reasoning_effort verbosity modalities prediction parallel_tool_calls tools tool_choice
safety_identifier prompt_cache_key"""
_LONGEST = 128_000


def openai_chat(body: dict[str, Any], options: Options, fault: Fault | None) -> dict[str, Any]:
    """POST /v1/chat/completions."""
    check_known(body, _KNOWN.split(), "Unrecognized request argument supplied: {}")
    model = checked_model(body)
    _check_messages(body)
    _check_parameters(body, model)
    _check_format(body.get("response_format"), prompt_of(body))
    seed = digest(body)
    number = checked_int(body, "n", 128) or 1
    choices = [_choice(body, options, fault, seed, index) for index in range(number)]
    return {
        "id": f"chatcmpl-{seed[:24]}",
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": choices,
        **_usage(body, choices, fault),
        "system_fingerprint": "fp_adamab",
    }


def _usage(body: dict[str, Any], choices: Sequence[dict[str, Any]], fault: Fault | None) -> dict[str, Any]:
    asked = 3 + sum(4 + sum(map(tokens, content_texts(m.get("content")))) for m in body["messages"])
    asked += sum(picture_tokens(data) for data in chat_pictures(body))
    made = sum(tokens(c["message"]["content"] or c["message"]["refusal"] or "") for c in choices)
    numbers = {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}
    usage = charged(numbers, fault)
    return {"usage": usage} if usage else {}


def _choice(
    body: dict[str, Any], options: Options, fault: Fault | None, seed: str, index: int
) -> dict[str, Any]:
    content: str | None = _content(body, options, fault, f"{seed}:{index}")
    refusal, reason = None, "stop"
    if fault is not None and fault.kind == "refusal":
        content, refusal, reason = _declined(fault.how)
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if content and limit and tokens(content) > limit:
        content, reason = content.encode("utf-8", "replace")[: 4 * limit].decode("utf-8", "ignore"), "length"
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


def _declined(how: str) -> tuple[str | None, str | None, str]:
    if how == "text":
        return REFUSAL, None, "stop"
    return ("", None, "content_filter") if how == "filter" else (None, REFUSAL, "stop")


def _content(body: dict[str, Any], options: Options, fault: Fault | None, seed: str) -> str:
    if fault is not None and fault.kind == "empty" and fault.how == "content":
        return ""
    prompt = read_prompt(prompt_of(body))
    if prompt.numbered:
        how = (fault.how or "chatter") if fault is not None and fault.kind == "answer" else ""
        pictures = chat_pictures(body)
        return numbered_answer(classify(prompt, in_words(pictures[-1]) if pictures else None), how)
    wanted = body.get("response_format") or {}
    schema = wanted["json_schema"]["schema"] if wanted.get("type") == "json_schema" else None
    samples = _samples(prompt, asked_count(prompt, schema), options, seed)
    samples = _spoiled(samples, prompt.shown, fault)
    if options.style == "schema" and schema is not None:
        return json.dumps(by_schema(schema, samples), ensure_ascii=False)
    if options.style == "schema" and wanted.get("type") == "json_object":
        return json.dumps({"texts": samples}, ensure_ascii=False)
    return styled(samples, options.style)


def _samples(prompt: Prompt, count: int, options: Options, seed: str) -> list[str]:
    order = planted(prompt) if options.gullible else None
    return write_samples(prompt, count, seed) if order is None else [order] * count


def _spoiled(samples: list[str], shown: Sequence[str], fault: Fault | None) -> list[str]:
    if fault is not None and fault.kind == "empty":
        return [" " * (n % 2) for n in range(len(samples))]
    if fault is not None and fault.kind == "duplicates":
        source = list(shown) if fault.how == "given" and shown else samples[:1]
        return [source[n % len(source)] for n in range(len(samples))]
    return samples


def _check_messages(body: dict[str, Any]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "Missing required parameter: 'messages'.", param="messages")
    for number, message in enumerate(messages):
        fine = isinstance(message, dict) and message.get("role") in (
            "system",
            "developer",
            "user",
            "assistant",
        )
        if not fine or not content_texts(message.get("content")):
            raise Refused(400, f"Invalid value for 'messages[{number}]'.", param=f"messages[{number}]")
    chat_pictures(body)


def _check_parameters(body: dict[str, Any], model: str) -> None:
    if body.get("stream"):
        raise Refused(400, "This server does not stream.", param="stream", code="unsupported_value")
    for key in ("max_tokens", "max_completion_tokens"):
        checked_int(body, key, _LONGEST)
    if body.get("max_tokens") is not None and model.startswith(("o1", "o3", "o4", "gpt-5")):
        message = "Unsupported parameter: 'max_tokens' is not supported with this model."
        hint = "Use 'max_completion_tokens' instead."
        raise Refused(400, f"{message} {hint}", param="max_tokens", code="unsupported_parameter")


def _check_format(wanted: Any, prompt: str) -> None:
    if wanted is None:
        return
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise Refused(400, "Invalid value for 'response_format.type'.", param="response_format.type")
    if kind == "json_object" and "json" not in prompt.lower():
        message = "'messages' must contain the word 'json' in some form, to use 'json_object'."
        raise Refused(400, message, param="messages")
    if kind == "json_schema":
        _check_schema(wanted.get("json_schema"))


def _check_schema(given: Any) -> None:
    if not isinstance(given, dict) or not given.get("name"):
        name = "response_format.json_schema.name"
        code = "missing_required_parameter"
        raise Refused(400, f"Missing required parameter: '{name}'.", param=name, code=code)
    problem = _schema_problem(given.get("schema"), strict=bool(given.get("strict")))
    if problem is not None:
        message = f"Invalid schema for response_format '{given['name']}': In context=(), {problem}."
        raise Refused(400, message, param="response_format")


def _schema_problem(schema: Any, *, strict: bool) -> str | None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "schema must be a JSON Schema of 'type: \"object\"'"
    if strict and schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false"
    if strict and set(schema.get("required", ())) != set(schema.get("properties", {})):
        return "'required' is required to be supplied and to include every key in properties"
    return None

"""Conversations as token ids and labels."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import _feedline, _options
from ._data import Data, of_set
from ._errors import ConfigError, shown
from ._made import keeps_its_call
from ._open import opening
from ._tables import Table


@keeps_its_call
def chats(
    path: str | os.PathLike[str] | Table,
    tokenizer: str | os.PathLike[str],
    *,
    of: Literal["messages", "completions", "preferences", "prompts"] = "messages",
    learn: str | tuple[str, str] = "marked",
    template: str | None = None,
    messages: str = "messages",
    tools: str = "tools",
    variables: str = "chat_template_kwargs",
    context: Mapping[str, Any] | None = None,
    add_generation_prompt: bool | None = None,
    max_tokens: int | None = None,
    today: str | None = None,
    special_tokens: bool = True,
    split: str | None = None,
) -> Data:
    """Conversations as token ids, by the tokenizer's own chat template: fields ``ids`` and ``labels``.

    A label is the id, or -100 for a token that is not learnt, as models of transformers take them. Text, ids
    and masks are those of ``apply_chat_template``. The conversations are JSON Lines, Parquet, Arrow, or a
    folder of the hub: a column ``messages`` of lists of ``{"role": ..., "content": ...}``; the template also
    gets the columns ``tools`` and ``chat_template_kwargs``, if they exist. The workers share the work; the lengths
    are counted once and kept, see :func:`feedline.open`. :attr:`Data.fate` counts the conversations that teach
    nothing: those without an answer, or with ``max_tokens`` before it. Then :meth:`Data.packed` or
    :meth:`Data.unpadded`.

    A conversation that the template refuses is a bad sample, whose error has the template's message; see
    ``bad_samples`` of :class:`Loader`. Its length is 0, :attr:`Data.fate` counts it, and :meth:`Data.packed`, which
    has no substitutes, refuses it. If the template refuses all, that is an error here.

    Prompt and completion are messages or texts, with a rule for each, as in TRL. Messages have the ids of
    ``apply_chat_template`` and nothing else: BOS and end are in the template or nowhere. Texts have the
    tokenizer's special tokens, such as BOS, unless ``special_tokens=False``; then the prompt; then the
    completion, tokenized by itself, and ``eos_token``, unless it ends with that.

    Args:
        path: The conversations.
        tokenizer: The tokenizer's folder, or its ``tokenizer.json``. The template is in ``chat_template.jinja`` or
            ``tokenizer_config.json`` there.
        of: ``"messages"``; ``"completions"``, of columns ``prompt`` and ``completion``: the completion is learnt;
            ``"preferences"``, of columns ``chosen`` and ``rejected`` and perhaps ``prompt``: fields ``chosen``,
            ``chosen.labels``, ``rejected``, ``rejected.labels``; ``"prompts"``, for generation, of a column ``prompt``
            or else ``messages``: only a field ``ids``, and messages get the beginning of an answer. Pad them on the
            left: ``Loader(data, 8, pad={"ids": (0, 64, "left")})``. All may be texts or messages.
        learn: ``"marked"``: what the template marks by ``{% generation %}``; a pair of texts: what is between
            them, such as ``("<|im_start|>assistant\\n", "<|im_end|>")``, with the second; or ``"all"``. An answer
            without the second text is an error, unless it is an assistant's and ends the conversation; so are
            texts between which no conversation has anything.
        template: A template other than that of the tokenizer.
        messages: The column of the messages; of prompts, instead of a column ``prompt``.
        tools: The column of the tools.
        variables: The column of further template variables.
        context: Further template variables for all conversations, such as ``{"enable_thinking": False}``.
        add_generation_prompt: Adds the beginning of an answer to each conversation. Default: to prompts only.
        max_tokens: Max tokens of a conversation; the first ones are kept, but of a prompt the last ones, with the
            beginning of the answer.
        today: Today's date, such as ``"2026-03-05"``, for templates that ask for it. Without it they are
            refused, since the text would change every day.
        special_tokens: Whether prompts that are texts begin with the tokens that the tokenizer adds before a
            text. A prompt that begins with them does not get them twice.
        split: As for :func:`feedline.open`.
    """
    if of not in ("messages", "completions", "preferences", "prompts"):
        raise ConfigError(f'of is {shown(of)}: give "messages", "completions", "preferences" or "prompts"')
    between = None
    if not isinstance(learn, str):
        is_pair = isinstance(learn, Sequence) and len(learn) == 2 and all(isinstance(text, str) for text in learn)
        if not is_pair:
            raise ConfigError(f"learn is {shown(learn)}: give the texts before and at the end of an answer")
        between = (learn[0], learn[1])
    elif learn not in ("marked", "all"):
        raise ConfigError(f'learn is {shown(learn)}: give "marked", "all", or the texts around an answer')
    if of == "prompts":
        _options.unused("conversations with answers, not prompts", learn=learn != "marked")
    if of == "messages":
        _options.unused("prompts that are texts", special_tokens=not special_tokens)
    steps = {
        "of": of,
        "between": between,
        "learn_all": learn == "all",
        "template": template,
        "messages": messages,
        "tools": tools,
        "variables": variables,
        "context": [(str(name), _json(f"context[{shown(name)}]", value)) for name, value in _mapping(context)],
        "add_generation_prompt": None
        if add_generation_prompt is None
        else _options.flag("add_generation_prompt", add_generation_prompt),
        "max_tokens": _options.maybe("max_tokens", max_tokens),
        "today": today,
        "special_tokens": _options.flag("special_tokens", special_tokens),
    }
    options = opening({"path": path, "split": split})
    return of_set(_feedline.open_chats(options, _options.path("tokenizer", tokenizer), steps))


def chat_text(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: str | os.PathLike[str] | None = None,
    *,
    template: str | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    today: str | None = None,
    **context: Any,
) -> str:
    """The text of a conversation, as :func:`feedline.chats` tokenizes it.

    >>> import feedline
    >>> template = "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}"
    >>> feedline.chat_text([{"role": "user", "content": "Hello."}], template=template)
    '<user> Hello.'
    """
    chat = {
        "tokenizer": None if tokenizer is None else _options.path("tokenizer", tokenizer),
        "template": template,
        "messages": _json("messages", messages),
        "tools": "" if tools is None else _json("tools", tools),
        "variables": _json("the context", context),
        "prompt": _options.flag("add_generation_prompt", add_generation_prompt),
        "today": today,
    }
    return _feedline.render_chat(chat)


def _mapping(context: Any) -> list[tuple[Any, Any]]:
    return list(_options.mapping("context", context, '{"enable_thinking": False}').items())


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} has no JSON: {error}") from error

"""The openai client against the real server."""

import concurrent.futures
import math

import openai
import pytest

ASK = [{"role": "user", "content": "Name three colors."}]


def chat(client, **more):
    return client.chat.completions.create(**{"model": "smollm2", "messages": ASK, "max_tokens": 24, "temperature": 0} | more)


def complete(client, **more):
    return client.completions.create(**{"model": "smollm2", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0} | more)


def text_of_stream(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_lists_its_models(client):
    assert [model.id for model in client.models.list()] == ["smollm2"]
    assert client.models.retrieve("smollm2").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_chat(client):
    answer = chat(client)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert len(answer.choices[0].message.content) > 10
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 1 <= answer.usage.completion_tokens <= 24


def test_streamed_chat_says_the_same(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of_stream(chunks) == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_completion_and_stream(client):
    whole = complete(client)
    assert whole.object == "text_completion" and whole.usage.completion_tokens == 24
    streamed = "".join(chunk.choices[0].text for chunk in complete(client, stream=True))
    assert streamed == whole.choices[0].text
    assert complete(client, echo=True).choices[0].text == "Once upon a time" + whole.choices[0].text
    assert complete(client, max_tokens=openai.NOT_GIVEN).usage.completion_tokens <= 16


def test_several_prompts_answer_in_order(client):
    prompts = ["Once upon a time", "The capital of France is"]
    both = complete(client, prompt=prompts)
    alone = [complete(client, prompt=prompt) for prompt in prompts]
    assert [c.text for c in both.choices] == [a.choices[0].text for a in alone]
    assert both.usage.prompt_tokens == sum(a.usage.prompt_tokens for a in alone)


def test_chat_logprobs(client):
    # The log-probabilities are the model's own, so the recommended repetition penalty would not show in them.
    answer = chat(client, logprobs=True, top_logprobs=3, max_tokens=8, extra_body={"repetition_penalty": 1})
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob  # greedy: the best
        assert token.logprob <= 0 and math.exp(token.logprob) > 0
        assert bytes(token.bytes).decode(errors="replace") == token.token
    streamed = [t for chunk in chat(client, logprobs=True, top_logprobs=3, max_tokens=8, stream=True, extra_body={"repetition_penalty": 1}) for t in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])]
    assert streamed == content


def test_completion_logprobs(client):
    logprobs = complete(client, logprobs=2, max_tokens=6).choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(logprobs.text_offset) == 6
    assert logprobs.text_offset[0] == 0
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert top[token] == value == max(top.values())


def test_n_choices(client):
    answer = chat(client, n=2, temperature=1, seed=3)
    assert [c.index for c in answer.choices] == [0, 1]
    assert answer.choices[0].message.content != answer.choices[1].message.content
    again = chat(client, n=2, temperature=1, seed=3)
    assert [c.message.content for c in again.choices] == [c.message.content for c in answer.choices]


def test_stop_strings(client):
    text = complete(client, max_tokens=40).choices[0].text
    stop = text[10:14]
    cut = complete(client, max_tokens=40, stop=[stop, "never seen"])
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    kept = complete(client, max_tokens=40, stop=stop, extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text == text[: text.index(stop) + len(stop)]
    streamed = "".join(c.choices[0].text for c in complete(client, max_tokens=40, stop=stop, stream=True))
    assert streamed == cut.choices[0].text


def test_a_seed_gives_the_same_answer_and_no_seed_another(client):
    seeded = {chat(client, temperature=1, seed=7).choices[0].message.content for _ in range(3)}
    assert len(seeded) == 1
    assert len({chat(client, temperature=1.5).choices[0].message.content for _ in range(4)}) > 1


def test_extra_parameters_of_vllm(client):
    extra = {"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True, "min_tokens": 5, "return_tokens_as_token_ids": True}
    answer = complete(client, max_tokens=5, logprobs=0, extra_body=extra)
    assert answer.usage.completion_tokens == 5
    assert all(token.startswith("token_id:") for token in answer.choices[0].logprobs.tokens)
    ids = [int(token.removeprefix("token_id:")) for token in answer.choices[0].logprobs.tokens]
    banned = complete(client, max_tokens=5, logprobs=0, logit_bias={str(ids[0]): -100}, extra_body={"return_tokens_as_token_ids": True})
    assert f"token_id:{ids[0]}" not in banned.choices[0].logprobs.tokens


def test_continues_the_final_message(client):
    messages = ASK + [{"role": "assistant", "content": "Three colors are red,"}]
    answer = chat(client, messages=messages, max_tokens=8, extra_body={"continue_final_message": True})
    assert answer.choices[0].message.content


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 11}])
def test_sixteen_clients_get_what_each_gets_alone(client, sampling):
    topics = ["sea", "rain", "bread", "iron", "snow", "music", "glass", "horses", "tea", "clocks", "maps", "wool", "salt", "fire", "ships", "paper"]

    def ask(topic):
        answer = chat(client, messages=[{"role": "user", "content": f"Write one sentence about {topic}."}], max_tokens=32, logprobs=True,
                      extra_body={"return_tokens_as_token_ids": True}, **sampling)
        content = answer.choices[0].logprobs.content
        return [(t.token, t.logprob) for t in content], answer.choices[0].message.content

    alone = [ask(topic) for topic in topics]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, topics))
    assert together == alone  # tokens and log-probabilities, to the bit

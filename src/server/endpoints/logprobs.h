// Log-probabilities in the shapes of their APIs.
#pragma once

#include <cstddef>
#include <vector>

#include "server/api/answer/answer.h"

namespace quire {

// The character offset of a choice's next token in its text. It counts the tokens' own texts, as vLLM does.
using TextOffset = size_t;

// Of the tokens of an answer: the "logprobs" object of a chat or a completion. `offset` advances past the tokens. With
// `echo` the prompt's tokens come first, of which the first has no log-probability: null.
Json logprobs_json(const ResponseHead& head, const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes,
                   TextOffset& offset, const std::vector<OutputToken>* echo = nullptr);

// A list of {"token", "logprob", "bytes", "top_logprobs"}, as chats and responses have it.
Json chat_logprobs_json(const ResponseHead& head, const std::vector<OutputToken>& tokens,
                        const TokenBytes& token_bytes);

// vLLM's prompt_logprobs: for each token of the prompt an object from id to {"logprob", "rank", "decoded_token"}; null
// for the first.
Json prompt_logprobs_json(const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes);

}  // namespace quire

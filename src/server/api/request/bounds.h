// What one request may cost in memory, however it is spread over prompts, choices and fields.
#pragma once

#include <cstddef>
#include <span>

#include "server/api/answer/answer.h"

namespace quire {

// Throws ApiError if the sampling parameters, which each choice copies, are too large together.
void bound_parameters(const SamplingParams& sampling, int choices);

// Throws ApiError if log-probabilities, token ids and echoed text would take more than `most_bytes` as JSON. Otherwise
// limits max_tokens of requests that have none, so that their log-probabilities fit.
void bound_response(const ResponseHead& head, int max_model_len, int64_t most_bytes, std::span<Request> requests);

// Bytes of the outputs that the engine delivers in one piece for the prompts: log-probabilities or vectors.
size_t prompt_output_bytes(std::span<const Request> requests, int embedding_size);

}  // namespace quire

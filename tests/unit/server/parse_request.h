// Parses requests for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "server/api/error.h"
#include "server/api/request/fields.h"
#include "server/api/request/request.h"
#include "unit/server/apis.h"

namespace quire {

inline ApiRequest parse(Api api, std::string_view body) {
  static const std::vector<std::string> models = {"m", "other"};
  return parse_api_request(api, body,
                           {.models = models, .vocab_size = 100, .max_model_len = 2048, .embedding_size = 16});
}
inline ApiRequest parse_chat(std::string_view body) { return parse(Api::kChat, body); }
inline ApiRequest parse_completion(std::string_view body) { return parse(Api::kCompletion, body); }

// The smallest body that an API accepts, with additional fields.
inline std::string body_with(Api api, const std::string& fields) {
  const auto is = [&](std::initializer_list<Api> any) { return std::ranges::find(any, api) != any.end(); };
  const std::string hi = R"([{"role": "user", "content": "Hi"}])";
  const std::string least =
      is({Api::kChat, Api::kCountTokens, Api::kApplyTemplate, Api::kOllamaChat}) ? "\"messages\": " + hi
      : is({Api::kMessage})    ? "\"messages\": " + hi + R"(, "max_tokens": 16)"
      : is({Api::kOllamaShow}) ? R"("model": "m")"
      : is({Api::kInfill})     ? R"("input_prefix": "Hi", "input_suffix": "!")"
      : is({Api::kResponse, Api::kCountInput, Api::kEmbedding, Api::kOllamaEmbed}) ? R"("input": "Hi")"
      : is({Api::kRerank})     ? R"("query": "Hi", "documents": ["a", "b"])"
      : is({Api::kScore})      ? R"("text_1": "Hi", "text_2": ["a", "b"])"
      : is({Api::kDetokenize}) ? R"("tokens": [7, 8])"
      : is({Api::kExplain})    ? R"("text": "Hi")"
                               : R"("prompt": "Hi")";
  return "{" + least + (fields.empty() ? "" : ", " + fields) + "}";
}
inline std::string chat_with(const std::string& fields) { return body_with(Api::kChat, fields); }
inline std::string completion_with(const std::string& fields) { return body_with(Api::kCompletion, fields); }

inline ApiError error_of(Api api, std::string_view body) {
  try {
    parse(api, body);
  } catch (const ApiError& e) {
    return e;
  }
  ADD_FAILURE() << "accepted: " << body.substr(0, 300);
  return {0, "accepted"};
}
inline ApiError chat_error(std::string_view body) { return error_of(Api::kChat, body); }
inline ApiError completion_error(std::string_view body) { return error_of(Api::kCompletion, body); }

}  // namespace quire

#include <algorithm>

#include "server/api_response.h"

namespace quire {
namespace {

// Bytes that are no UTF-8 become U+FFFD: nlohmann's serializer knows how.
std::string well_formed(const std::string& bytes) {
  return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// JSON has no infinity; vLLM's figure for "never".
double finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

struct TokenView {
  std::string text, bytes;
};

TokenView view(TokenId id, const ResponseHead& head, const TokenBytes& token_bytes) {
  std::string bytes = token_bytes(id);
  return {head.tokens_as_ids ? fmt::format("token_id:{}", id) : well_formed(bytes), std::move(bytes)};
}

Json chat_token(TokenId id, float logprob, const ResponseHead& head, const TokenBytes& token_bytes) {
  const TokenView token = view(id, head, token_bytes);
  Json bytes = Json::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token.text}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

Json chat_logprobs(const ResponseHead& head, const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes) {
  Json content = Json::array();
  for (const OutputToken& token : tokens) {
    Json entry = chat_token(token.id, token.logprob, head, token_bytes);
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top_logprobs) top.push_back(chat_token(id, logprob, head, token_bytes));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const ResponseHead& head, const std::vector<OutputToken>& tokens,
                         const TokenBytes& token_bytes, size_t& offset) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const OutputToken& token : tokens) {
    const TokenView chosen = view(token.id, head, token_bytes);
    Json top = Json::object();
    for (const auto& [id, logprob] : token.top_logprobs) {
      // Two tokens can have the same text (bytes of characters): the more probable one, the first, stays.
      top.emplace(view(id, head, token_bytes).text, finite(logprob));
    }
    top.emplace(chosen.text, finite(token.logprob));
    texts.push_back(chosen.text);
    logprobs.push_back(finite(token.logprob));
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += characters(chosen.bytes);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace

Json logprobs_json(const ResponseHead& head, const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes,
                   size_t& offset) {
  return head.api == Api::kChat ? chat_logprobs(head, tokens, token_bytes)
                                : completion_logprobs(head, tokens, token_bytes, offset);
}

}  // namespace quire

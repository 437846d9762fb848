#include "server/endpoints/logprobs.h"

#include <algorithm>
#include "server/endpoints/chat.h"

namespace quire {
namespace {

// With U+FFFD in place of ill-formed UTF-8.
std::string well_formed(const std::string& bytes) {
  return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// JSON has no infinity; vLLM writes -9999 for it.
double finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

struct TokenView {
  std::string text, bytes;
};

TokenView view(TokenId id, const ResponseHead& head, const TokenBytes& token_bytes) {
  std::string bytes = token_bytes(id);
  return {head.request.return_tokens_as_token_ids ? fmt::format("token_id:{}", id) : well_formed(bytes),
          std::move(bytes)};
}

Json chat_token(TokenId id, float logprob, const ResponseHead& head, const TokenBytes& token_bytes) {
  const TokenView token = view(id, head, token_bytes);
  Json bytes = Json::array();
  for (const char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token.text}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

// OpenAI's legacy shape: an array for each kind of value.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const ResponseHead& head, const TokenBytes& token_bytes, TextOffset& offset)
      : head_(head), token_bytes_(token_bytes), offset_(offset) {}

  void add(const OutputToken& token) {
    const TokenView chosen = view(token.id, head_, token_bytes_);
    Json top = Json::object();
    for (const auto& [id, logprob] : token.top_logprobs) {
      // Tokens can have the same text (bytes of a character); the first is the most probable and stays.
      top.emplace(view(id, head_, token_bytes_).text, finite(logprob));
    }
    top.emplace(chosen.text, finite(token.logprob));
    add(chosen, finite(token.logprob), std::move(top));
  }
  // The prompt's first token, which has no log-probability.
  void add_first(TokenId id) { add(view(id, head_, token_bytes_), nullptr, nullptr); }

  Json take() {
    return {{"tokens", std::move(texts_)},
            {"token_logprobs", std::move(logprobs_)},
            {"top_logprobs", std::move(tops_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  void add(const TokenView& token, Json logprob, Json top) {
    texts_.push_back(token.text);
    logprobs_.push_back(std::move(logprob));
    tops_.push_back(std::move(top));
    offsets_.push_back(offset_);
    offset_ += characters(token.bytes);
  }

  const ResponseHead& head_;
  const TokenBytes& token_bytes_;
  TextOffset& offset_;
  Json texts_ = Json::array(), logprobs_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
};

}  // namespace

Json chat_logprobs_json(const ResponseHead& head, const std::vector<OutputToken>& tokens,
                        const TokenBytes& token_bytes) {
  Json content = Json::array();
  for (const OutputToken& token : tokens) {
    Json entry = chat_token(token.id, token.logprob, head, token_bytes);
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top_logprobs) top.push_back(chat_token(id, logprob, head, token_bytes));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return content;
}

Json logprobs_json(const ResponseHead& head, const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes,
                   TextOffset& offset, const std::vector<OutputToken>* echo) {
  if (is_chat(head)) {
    return {{"content", chat_logprobs_json(head, tokens, token_bytes)}, {"refusal", nullptr}};
  }
  CompletionLogprobs all(head, token_bytes, offset);
  if (echo) {
    for (size_t i = 0; i < echo->size(); ++i) i == 0 ? all.add_first((*echo)[i].id) : all.add((*echo)[i]);
  }
  for (const OutputToken& token : tokens) all.add(token);
  return all.take();
}

Json prompt_logprobs_json(const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes) {
  Json all = Json::array();
  for (const OutputToken& token : tokens) {
    if (all.empty()) {
      all.push_back(nullptr);
      continue;
    }
    Json entries = Json::object();
    const auto add = [&](TokenId id, float logprob, Json rank) {
      entries.emplace(std::to_string(id), Json{{"logprob", finite(logprob)},
                                               {"rank", std::move(rank)},
                                               {"decoded_token", well_formed(token_bytes(id))}});
    };
    int rank = 0;
    for (const auto& [id, logprob] : token.top_logprobs) add(id, logprob, ++rank);
    add(token.id, token.logprob, nullptr);  // its rank is unknown unless it is among the best
    all.push_back(std::move(entries));
  }
  return all;
}

}  // namespace quire

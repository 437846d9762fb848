#include "text/tokenizer/build.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/trie.h"

namespace quire {

std::vector<std::string_view> end_of_turn_names() {
  return {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
          "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"};
}

std::vector<std::string_view> end_of_generation_names() {
  return {"<|eot_id|>",
          "<|im_end|>",
          "<|end|>",
          "<|return|>",
          "<|call|>",
          "<|flush|>",
          "<|calls|>",
          "<end_of_turn>",
          "<|endoftext|>",
          "</s>",
          "<|eom_id|>",
          "<EOT>",
          "_<EOT>",
          "[EOT]",
          "[EOS]",
          "<|end_of_text|>",
          "<end_of_utterance>",
          "<eos>",
          "<turn|>",
          "<|tool_response>",
          "<｜end▁of▁sentence｜>",
          "[e~["};
}

const std::vector<FimNames>& fim_names() {
  static const std::vector<FimNames> kNames{
      {&FimTokens::prefix,
       {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
        "<|prefix|>", "[PREFIX]"},
       8,
       false},
      {&FimTokens::suffix,
       {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
        "<|suffix|>", "[SUFFIX]"},
       8,
       false},
      {&FimTokens::middle,
       {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
        "<|middle|>"},
       8,
       false},
      {&FimTokens::pad, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}, 5, true},
      {&FimTokens::repository, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}, 5, true},
      {&FimTokens::file, {"<|file_sep|>"}, 1, true},
      {&FimTokens::end, {"▁<EOT>", "<EOT>"}, 0, false}};
  return kNames;
}

void find_fim_tokens(TokenizerData& data) {
  for (const FimNames& fim : fim_names()) {
    std::optional<TokenId>& token = data.fim.*fim.token;
    for (size_t i = 0; i < fim.names.size() && !token; ++i) {
      if (const auto found = data.by_text.find(fim.names[i]); found != data.by_text.end()) token = found->second;
    }
  }
}

void index_texts(TokenizerData& data) {
  data.by_text.reserve(data.texts.size());
  for (size_t id = 0; id < data.texts.size(); ++id) {
    if (!data.texts[id].empty()) data.by_text[data.texts[id]] = static_cast<TokenId>(id);
  }
}

void index_special_texts(TokenizerData& data) {
  for (size_t id = 0; id < data.special.size(); ++id) {
    if (data.special[id] && data.texts[id].size() <= kLongestToken) {
      data.special_texts.insert(data.texts[id], static_cast<int32_t>(id));
    }
  }
}

void find_byte_tokens(const TokenizerData& data, std::array<TokenId, 256>& byte_tokens) {
  for (int b = 0; b < 256; ++b) {
    const auto found = data.by_text.find(byte_token(static_cast<unsigned char>(b)));
    byte_tokens[static_cast<size_t>(b)] = found == data.by_text.end() ? kNoToken : found->second;
  }
}

void decode_texts(TokenizerData& data) {
  Regex::Matcher matcher;
  const size_t most = 8 * data.texts.bytes() + (size_t{64} << 10);  // real decoders shorten spellings
  for (size_t id = 0; id < data.texts.size(); ++id) {
    const std::string_view text = data.text_to_decode(static_cast<TokenId>(id));
    data.bytes.add(text.empty() ? std::string() : data.decoding.bytes_of(text, false, matcher));
    if (data.bytes.bytes() > most)
      throw invalid("{}: decoder: produces more than {} bytes from {} bytes of tokens", data.name, most,
                    data.texts.bytes());
  }
}

void check_token_length(std::string_view where, size_t id, std::string_view text) {
  if (text.size() <= kLongestToken) return;
  throw unsupported("{}: token {} has {} bytes, at most {} are allowed", where, id, text.size(), kLongestToken);
}

void finish_end_of_generation(TokenizerData& data) {
  TokenIds& ids = data.end_of_generation;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace quire

// Small tokenizers for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// Byte-level BPE: the ids 0 … 255 are the bytes, then one token for each merge ("l l", in GPT-2's alphabet), then the
// special tokens <|end|> and <|bos|>.
inline nlohmann::json byte_level_json(const std::vector<std::string>& merges = {"l l", "h e", "ll o", "Ġ w"}) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int b = 0; b < 256; ++b) vocab[bytes_to_alphabet(std::string(1, static_cast<char>(b)))] = b;
  int next = 256;
  for (const std::string& merge : merges) {
    std::string whole = merge;
    whole.erase(whole.find(' '), 1);
    vocab[whole] = next++;
  }
  return {{"added_tokens",
           {{{"id", next}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}},
            {{"id", next + 1}, {"content", "<|bos|>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

// BPE over text with byte fallback: <unk>, <s>, the byte tokens, then `tokens`.
inline nlohmann::json byte_fallback_json(const std::vector<std::string>& tokens,
                                         const std::vector<std::string>& merges) {
  nlohmann::json vocab = {{"<unk>", 0}, {"<s>", 1}};
  for (int b = 0; b < 256; ++b) vocab[byte_token(static_cast<unsigned char>(b))] = 2 + b;
  int next = 258;
  for (const std::string& token : tokens) vocab[token] = next++;
  return {{"added_tokens",
           {{{"id", 0}, {"content", "<unk>"}, {"special", true}, {"normalized", false}},
            {{"id", 1}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", merges}}}};
}

// BERT: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then `tokens`; the text's pieces lie in [CLS] … [SEP].
inline nlohmann::json word_piece_json(const std::vector<std::string>& tokens) {
  nlohmann::json vocab = {{"[PAD]", 0}, {"[UNK]", 1}, {"[CLS]", 2}, {"[SEP]", 3}}, added = nlohmann::json::array();
  for (const auto& [token, id] : vocab.items()) {
    added.push_back({{"id", id}, {"content", token}, {"special", true}, {"normalized", false}});
  }
  int next = 4;
  for (const std::string& token : tokens) vocab[token] = next++;
  return {{"added_tokens", added},
          {"normalizer", {{"type", "BertNormalizer"}, {"strip_accents", nullptr}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 6},
            {"vocab", vocab}}}};
}

inline Tokenizer tokenizer_of(const nlohmann::json& json) { return Tokenizer::from_hf_json(json.dump(), "sample"); }

}  // namespace quire

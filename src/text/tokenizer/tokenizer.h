// Text to token ids and back, for any vocabulary a model ships with.
//
//   Tokenizer tokenizer = Tokenizer::from_hf_json(json, "Qwen3-0.6B/tokenizer.json");
//   TokenIds ids = tokenizer.encode("Hello", {.add_special = true});
//   std::string text = tokenizer.decode(ids);
//
// A tokenizer.json is read as Hugging Face's tokenizers library reads it, a GGUF vocabulary as llama.cpp does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/types.h"

namespace quire {

// What a GGUF says about its vocabulary (the tokenizer.ggml.* keys). The views must live until from_gguf returns.
struct GgufVocabulary {
  std::string model;                      // llama (SentencePiece BPE), gpt2 (byte-level BPE), gemma4, t5 (unigram)
  std::string pre;                        // the pre-tokenizer of gpt2 models; empty where the file names none
  std::vector<std::string_view> tokens;   // the text of each id
  std::vector<float> scores;              // one a token, or empty
  std::vector<int32_t> token_types;       // one a token (1 normal … 6 byte), or empty: all normal
  std::vector<std::string_view> merges;   // "left right", best first
  std::string_view precompiled_charsmap;  // unigram: SentencePiece's normalizer
  // As the file says; absent means what llama.cpp assumes for the model kind.
  std::optional<TokenId> bos, eos, unk, pad, eot, eom;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
};

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct EncodeOptions {
  bool add_special = false;   // put in what the model expects around a text: BOS, EOS, a template's tokens
  bool parse_special = true;  // "<|im_end|>" in the text is that token; else it is plain text
  // Ascending offsets of bytes that no special token may cover, because they are not the program's own text. The text
  // must be well-formed UTF-8, or all special tokens are plain text.
  std::span<const size_t> plain = {};
};

struct DecodeOptions {
  bool skip_special = false;  // leave special tokens out
  bool continues = false;     // the ids go on a text: the space that some vocabularies put before a text stays
};

struct TokenizerData;

// Immutable; every member may be called by any number of threads. Copies share the vocabulary.
class Tokenizer {
 public:
  // `name` stands in error messages. Both throw Error naming the field when the vocabulary is broken (kInvalid) or uses
  // a component Quire does not have (kUnsupported). `config` is the tokenizer_config.json beside it, if there is one:
  // it names BOS, EOS, UNK and PAD, which tokenizer.json itself does not.
  static Tokenizer from_hf_json(std::string_view json, const std::string& name, std::string_view config = {});
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary, const std::string& name);

  // Takes any bytes: ill-formed UTF-8 is read as U+FFFD. Time grows as n log n at most.
  TokenIds encode(std::string_view text, EncodeOptions options = {}) const;

  // Ascending offsets at which the text spells a special token, or ends within one.
  std::vector<size_t> special_starts(std::string_view text) const;

  // Ids outside the vocabulary give nothing. The result is well-formed UTF-8; see Detokenizer, which gives the same
  // text piece by piece.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // Ids are 0 … vocab_size()-1; there may be holes, which have no text.
  int vocab_size() const;
  std::string_view token_text(TokenId id) const;             // as the vocabulary spells it: "Ġworld"; "" outside
  std::string_view token_bytes(TokenId id) const;            // what it stands for inside a text: " world"
  std::optional<TokenId> find(std::string_view text) const;  // the id that the vocabulary spells so
  TokenKind kind(TokenId id) const;
  bool is_special(TokenId id) const;  // left out by skip_special, found by parse_special: <|im_end|>
  bool is_control(TokenId id) const;  // never text of an answer: BOS, end of turn, …

  std::optional<TokenId> bos() const, eos() const, unk() const, pad() const, eot() const, eom() const;
  bool adds_bos() const, adds_eos() const;  // what add_special does at the front and the end

  // The ids that end an answer, ascending: EOS, end of turn, end of message, and tokens that are known to mean it by
  // their text (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|>, …).
  std::span<const TokenId> end_of_generation() const;
  bool is_end_of_generation(TokenId id) const;

  explicit Tokenizer(std::shared_ptr<const TokenizerData> data) : data_(std::move(data)) {}
  const TokenizerData& data() const { return *data_; }  // for the files of text/ and their tests

 private:
  std::shared_ptr<const TokenizerData> data_;
};

}  // namespace quire

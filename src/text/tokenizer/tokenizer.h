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

// The tokens of prompts that ask for the text between two others ("fill in the middle"), as far as a vocabulary has them.
// text/infill.h makes such prompts.
struct FimTokens {
  std::optional<TokenId> prefix, suffix, middle;  // before the text, before what follows the gap, before the answer
  std::optional<TokenId> repository, file;        // before the name of a repository, before the name of a file
  std::optional<TokenId> pad, end;                // after such an answer
};

// The vocabulary of a GGUF file (the tokenizer.ggml.* keys). The views must live until from_gguf returns.
struct GgufVocabulary {
  std::string model_name;                 // general.name: some rules apply to Phi-3 and ModernBERT alone
  std::string architecture;               // general.architecture: some rules apply to Nomic and Jina alone
  std::string model;                      // llama, gpt2 (byte-level BPE), gemma4, t5 (unigram) or bert (WordPiece)
  std::string pre;                        // the pre-tokenizer of gpt2 models; empty: the file names none
  std::vector<std::string_view> tokens;   // the text of each id
  std::vector<float> scores;              // one per token, or empty
  std::vector<int32_t> token_types;       // one per token (1 normal … 6 byte), or empty: all normal
  std::vector<std::string_view> merges;   // "left right", best first
  std::string_view precompiled_charsmap;  // unigram: SentencePiece's normalizer
  // Absent: llama.cpp's default for the kind of model.
  std::optional<TokenId> bos, eos, unk, pad, eot, eom, sep;
  FimTokens fim;  // absent ones are found by their names
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::optional<bool> lowercase, strip_accents;  // bert
};

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct EncodeOptions {
  bool add_special = false;   // add what the model expects around a text: BOS, EOS, a template's tokens
  bool parse_special = true;  // "<|im_end|>" in the text becomes that token; false: plain text
  // Ascending offsets of bytes that no special token may cover, because they come from a user. The text must be
  // well-formed UTF-8, or all special tokens are plain text.
  std::span<const size_t> plain = {};
};

// Two texts as a model that compares them expects them: [CLS] a [SEP] b [SEP].
struct TokenPair {
  TokenIds ids;
  size_t second = 0;  // the first token with type id 1; ids.size(): all have type id 0
};

struct DecodeOptions {
  bool skip_special = false;  // omit special tokens
  bool continues = false;     // the ids continue a text: keep the space that some vocabularies add before a text
  bool frame_added = false;   // keep added tokens, special ones too, in frames (text/token_frames.h); Detokenizer only
};

struct TokenizerData;

// Immutable; every member may be called by any number of threads. Copies share the vocabulary.
class Tokenizer {
 public:
  // `name` identifies the file in errors. Both throw Error naming the field if the vocabulary is broken (kInvalid) or
  // uses an unsupported component (kUnsupported). `config` is the text of tokenizer_config.json, or empty: it names
  // BOS, EOS, UNK and PAD, which tokenizer.json does not.
  static Tokenizer from_hf_json(std::string_view json, const std::string& name, std::string_view config = {});
  static Tokenizer from_gguf(const GgufVocabulary& vocabulary, const std::string& name);

  // Accepts any bytes: ill-formed UTF-8 is read as U+FFFD. Takes at most n log n time.
  TokenIds encode(std::string_view text, EncodeOptions options = {}) const;

  // Ascending offsets at which the text spells a special token, or ends within one.
  std::vector<size_t> special_starts(std::string_view text) const;

  // The tokens of `a` and `b` within the model's template for a pair. If most_tokens > 0, the longer text is cut at its
  // end, token by token, until the pair has at most that many (Hugging Face's "longest_first"). Special tokens in the
  // texts are plain text unless `parse_special`. Throws Error: kUnsupported if the vocabulary has no template for pairs,
  // kInvalid if the template's own tokens exceed most_tokens.
  TokenPair encode_pair(std::string_view a, std::string_view b, size_t most_tokens = 0,
                        bool parse_special = false) const;

  // Ids outside the vocabulary are skipped. The result is well-formed UTF-8. Detokenizer produces the same text piece
  // by piece.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  // Ids are 0 … vocab_size()-1; unused ids have no text.
  int vocab_size() const;
  std::string_view token_text(TokenId id) const;             // the vocabulary's spelling: "Ġworld"; "" outside
  std::string_view token_bytes(TokenId id) const;            // its bytes inside a text: " world"
  std::optional<TokenId> find(std::string_view text) const;  // the id of this spelling
  TokenKind kind(TokenId id) const;
  bool is_special(TokenId id) const;  // omitted by skip_special, matched by parse_special: <|im_end|>
  bool is_added(TokenId id) const;    // matched as a whole in texts: special tokens, and <tool_call> of some models
  bool is_control(TokenId id) const;  // never part of an answer's text: BOS, end of turn, …

  std::optional<TokenId> bos() const, eos() const, unk() const, pad() const, eot() const, eom() const;
  bool adds_bos() const, adds_eos() const;  // whether add_special adds them
  const FimTokens& fim() const;

  // What the file does not say of its vocabulary, and what was assumed; each for a line of a log.
  std::span<const std::string> warnings() const;

  // The ids that end an answer, ascending: EOS, end of turn, end of message, and tokens with a known text
  // (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|>, …).
  std::span<const TokenId> end_of_generation() const;

  explicit Tokenizer(std::shared_ptr<const TokenizerData> data) : data_(std::move(data)) {}
  const TokenizerData& data() const { return *data_; }  // for the files of text/ and their tests

 private:
  std::shared_ptr<const TokenizerData> data_;
};

}  // namespace quire

// Reads a GGUF vocabulary as llama.cpp does.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text/unicode.h"
#include "base/text/utf8.h"
#include "text/chars_map.h"
#include "text/tokenizer/build.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/data.h"
#include "text/tokenizer/gguf_bpe.h"
#include "text/tokenizer/text_replace.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

TokenKind kind_of(int32_t type) {
  switch (type) {
    case 1:
      return TokenKind::kNormal;
    case 2:
      return TokenKind::kUnknown;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 6:
      return TokenKind::kByte;
    default:
      return TokenKind::kUnused;
  }
}

enum class GgufModelKind : uint8_t { kSentencePiece, kBytePair, kUnigram, kWordPiece };

class GgufBuilder {
 public:
  GgufBuilder(const GgufVocabulary& vocabulary, TokenizerData& data) : from_(vocabulary), data_(data) {}

  void build() {
    read_kind();
    read_tokens();
    if (kind_ == GgufModelKind::kBytePair) read_pre();
    read_special_ids();
    read_pair();
    read_end_of_generation();
    index_added_tokens();
    switch (kind_) {
      case GgufModelKind::kSentencePiece:
        build_sentence_piece(from_, space_prefix_, data_);
        break;
      case GgufModelKind::kBytePair:
        build_byte_pair(from_, std::move(pre_), whole_line_breaks_, data_);
        break;
      case GgufModelKind::kUnigram:
        build_unigram();
        break;
      case GgufModelKind::kWordPiece:
        build_word_piece();
        break;
    }
    spell_bytes();
  }

 private:
  const std::string& name() const { return data_.name; }

  void read_kind() {
    if (from_.model == "llama") {
      kind_ = GgufModelKind::kSentencePiece;
      data_.bos = 1, data_.eos = 2, data_.unk = 0;
      add_bos_ = space_prefix_ = true;
      data_.ill_formed = TokenizerData::IllFormed::kKeep;
    } else if (from_.model == "gpt2" || from_.model == "gemma4") {
      kind_ = GgufModelKind::kBytePair;
      if (from_.model == "gpt2") data_.bos = data_.eos = 11;
      data_.ill_formed = TokenizerData::IllFormed::kReplaceBytes;
    } else if (from_.model == "t5") {
      kind_ = GgufModelKind::kUnigram;
      data_.eos = 1, data_.unk = 2, data_.pad = 0;
      add_eos_ = true;
      data_.ill_formed = TokenizerData::IllFormed::kReplaceBytes;
    } else if (from_.model == "bert") {
      kind_ = GgufModelKind::kWordPiece;
      data_.bos = 101, data_.unk = 100, data_.pad = 0, sep_ = 102;
      add_bos_ = add_sep_ = true;
      data_.ill_formed = TokenizerData::IllFormed::kReplaceBytes;
    } else {
      throw unsupported(
          "{}: the tokenizer \"{}\" (tokenizer.ggml.model) is not supported; llama, gpt2, gemma4, t5 and bert are",
          name(), from_.model);
    }
    space_prefix_ = from_.add_space_prefix.value_or(space_prefix_);
  }

  void read_pre() {
    std::string_view pre = from_.model == "gemma4" ? "gemma4" : std::string_view(from_.pre);
    if (pre.empty()) {
      pre = recognize_pretokenizer(from_, data_.by_text);
      data_.warnings.push_back(fmt::format(
          "{}: tokenizer.ggml.pre is missing, as in files made before May 2024; {}. Convert the model again", name(),
          pre.empty() ? "texts are split as llama.cpp does by default, which may not be what the model was trained with"
                      : fmt::format("the vocabulary looks like that of \"{}\", so texts are split for that", pre)));
    }
    if (pre == "glm4" || pre == "chatglm-bpe") data_.bos.reset();
    pre_ = gguf_pretokenizer(pre, name());
    whole_line_breaks_ = pre == "gemma4" || pre == "granite-embed-multi-311m";
    add_bos_ = pre_.add_bos;
    add_sep_ = pre_.add_sep;
  }

  void read_tokens() {
    const size_t count = from_.tokens.size();
    if (count == 0) throw invalid("{}: tokenizer.ggml.tokens is empty", name());
    if (count > size_t{1} << 22) throw invalid("{}: {} tokens, at most {} are allowed", name(), count, size_t{1} << 22);
    if (!from_.scores.empty() && from_.scores.size() < count) {
      throw invalid("{}: {} tokens, but tokenizer.ggml.scores has {}", name(), count, from_.scores.size());
    }
    if (!from_.token_types.empty() && from_.token_types.size() < count) {
      throw invalid("{}: {} tokens, but tokenizer.ggml.token_type has {}", name(), count, from_.token_types.size());
    }
    for (size_t id = 0; id < count; ++id) {
      if (std::isnan(score(id))) throw invalid("{}: the score of token {} is not a number", name(), id);
      data_.texts.add(from_.tokens[id].empty() ? fmt::format("[EMPTY_{}]", id) : from_.tokens[id]);
      data_.kinds.push_back(from_.token_types.empty() ? TokenKind::kNormal : kind_of(from_.token_types[id]));
    }
    if (from_.token_types.empty())
      data_.warnings.push_back(
          fmt::format("{}: tokenizer.ggml.token_type is missing; all tokens are taken for text, except those with the "
                      "names of known "
                      "control tokens. Convert the model again",
                      name()));
    if (from_.scores.empty() && (kind_ == GgufModelKind::kSentencePiece || kind_ == GgufModelKind::kUnigram))
      data_.warnings.push_back(
          fmt::format("{}: tokenizer.ggml.scores is missing; all tokens count the same, so texts become other tokens "
                      "than those the "
                      "model was trained with. Convert the model again",
                      name()));
    index_texts(data_);
    if (data_.by_text.size() == count) return;
    for (size_t id = 0; id < count; ++id) {
      const TokenId other = data_.by_text[data_.texts[id]];
      if (static_cast<size_t>(other) != id) {
        throw invalid("{}: the token \"{}\" appears twice in tokenizer.ggml.tokens, at {} and {}", name(),
                      data_.texts[id], id, other);
      }
    }
  }

  float score(size_t id) const { return from_.scores.empty() ? 0.0f : from_.scores[id]; }

  // Ids outside the vocabulary are ignored, defaults too.
  void read_special_ids() {
    const auto take = [&](std::optional<TokenId>& id, const std::optional<TokenId>& given) {
      if (id && !data_.contains(*id)) id.reset();
      if (given && data_.contains(*given)) id = given;
    };
    take(data_.bos, from_.bos);
    take(data_.eos, from_.eos);
    take(data_.unk, from_.unk);
    take(data_.pad, from_.pad);
    take(data_.eot, from_.eot);
    take(data_.eom, from_.eom);
    take(sep_, from_.sep);
    for (const FimNames& fim : fim_names()) take(data_.fim.*fim.token, from_.fim.*fim.token);
    add_bos_ = from_.add_bos.value_or(add_bos_) || whole_line_breaks_;  // llama.cpp always adds it for Gemma 4
    add_eos_ = from_.add_eos.value_or(add_eos_);
    add_sep_ = from_.add_sep.value_or(add_sep_);
    if (kind_ == GgufModelKind::kWordPiece) return read_frame();
    if (add_bos_ && !data_.bos) throw invalid("{}: tokenizer.ggml.add_bos_token without a BOS token", name());
    if (add_eos_ && !data_.eos) throw invalid("{}: tokenizer.ggml.add_eos_token without an EOS token", name());
    if (add_bos_) data_.prefix = {*data_.bos};
    if (add_eos_) data_.suffix = {*data_.eos};
  }

  // llama.cpp frames a text in [CLS] and [SEP] whatever add_bos_token and add_eos_token say.
  void read_frame() {
    if (!data_.bos) throw invalid("{}: tokenizer.ggml.bos_token_id ([CLS]) is not a token", name());
    if (!sep_) throw invalid("{}: tokenizer.ggml.seperator_token_id ([SEP]) is not a token", name());
    data_.prefix = {*data_.bos};
    data_.suffix = {*sep_};
  }

  // bos a eos sep b eos, as llama-server's /rerank frames a query and a document. llama.cpp gives all tokens type 0; BERT
  // was trained with type 1 for the second text.
  void read_pair() {
    PairTemplate& pair = data_.pair;
    if (!add_eos_ && !add_sep_) {
      pair.missing = "tokenizer.ggml.add_eos_token and add_sep_token are false, so nothing separates the texts";
      return;
    }
    if (add_sep_ && !sep_) {
      pair.missing = "tokenizer.ggml.seperator_token_id is missing";
      return;
    }
    const std::optional<TokenId> end = data_.eos ? data_.eos : sep_;
    if (add_bos_) pair.add(*data_.bos);
    pair.add(PairTemplate::Kind::kFirst);
    if (add_eos_) pair.add(*end);
    if (add_sep_) pair.add(*sep_);
    const size_t second = pair.pieces.size();
    pair.add(PairTemplate::Kind::kSecond);
    if (add_eos_) pair.add(*end);
    pair.second = kind_ == GgufModelKind::kWordPiece ? second : pair.pieces.size();
  }

  // The id of the first name that is a token; that token becomes a control token whatever its type.
  std::optional<TokenId> control(std::initializer_list<std::string_view> names) {
    return control(std::vector<std::string_view>(names));
  }
  std::optional<TokenId> control(const std::vector<std::string_view>& names) {
    for (std::string_view n : names) {
      const auto found = data_.by_text.find(n);
      if (found == data_.by_text.end()) continue;
      data_.kinds[static_cast<size_t>(found->second)] = TokenKind::kControl;
      return found->second;
    }
    return std::nullopt;
  }

  void read_end_of_generation() {
    TokenIds& ends = data_.end_of_generation;
    if (!data_.eot) data_.eot = control(end_of_turn_names());
    if (!data_.eom) data_.eom = control({"<|eom_id|>"});
    const auto end = [&](const std::optional<TokenId>& id) {
      if (id) ends.push_back(*id);
    };
    for (const FimNames& fim : fim_names()) {
      std::optional<TokenId>& token = data_.fim.*fim.token;
      if (!token) token = control({fim.names.begin(), fim.names.begin() + static_cast<ptrdiff_t>(fim.control)});
      if (fim.ends) end(token);
    }
    find_fim_tokens(data_);
    for (std::string_view n : end_of_generation_names()) end(control({n}));
    end(data_.eos);
    end(data_.eot);
    end(data_.eom);
    // gpt-oss shows these.
    for (std::string_view n : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
      const auto found = data_.by_text.find(n);
      if (found != data_.by_text.end()) data_.kinds[static_cast<size_t>(found->second)] = TokenKind::kUserDefined;
    }
    const auto ends_with = [&](std::string_view n) { return data_.by_text.contains(n); };
    const auto spare = [&](std::string_view n, TokenKind kind) {
      const auto found = data_.by_text.find(n);
      if (found == data_.by_text.end()) return;
      std::erase(ends, found->second);
      data_.kinds[static_cast<size_t>(found->second)] = kind;
    };
    const bool call = ends_with("<|call|>") || ends_with("<|calls|>");
    if (call && (ends_with("<|return|>") || ends_with("<|flush|>"))) spare("<|end|>", TokenKind::kUserDefined);
    if (ends_with("<|tool_response>")) spare("</s>", TokenKind::kNormal);
    finish_end_of_generation(data_);
  }

  // By the model's name, as llama.cpp does.
  bool name_contains(std::string_view part) const {
    std::string lower = from_.model_name;
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return lower.find(part) != lower.npos;
  }

  // The token that includes the white space before it.
  std::string_view mask_token() const {
    for (std::string_view pre : {"jina-v2-de", "jina-v2-es", "jina-v2-code"}) {
      if (from_.pre.find(pre) != from_.pre.npos) return "<mask>";
    }
    if (from_.architecture == "nomic-bert-moe" || from_.architecture == "jina-bert-v3") return "<mask>";
    return name_contains("modern-bert") ? "[MASK]" : "";
  }

  void index_added_tokens() {
    // llama.cpp: the special tokens of Phi-3 include the white space after them, except those that begin a text.
    const bool rstrip = name_contains("phi-3") || name_contains("phi3");
    const std::string_view mask = mask_token();
    constexpr std::string_view kNeverStrip[] = {"<unk>", "<s>", "<|endoftext|>"};
    std::vector<AddedToken> tokens;
    data_.special.assign(data_.kinds.size(), false);
    for (size_t id = 0; id < data_.kinds.size(); ++id) {
      const TokenKind kind = data_.kinds[id];
      const bool special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
      data_.special[id] = special;
      if (!special && kind != TokenKind::kUserDefined) continue;
      tokens.push_back({.content = std::string(data_.texts[id]),
                        .id = static_cast<TokenId>(id),
                        .special = special,
                        .lstrip = data_.texts[id] == mask,
                        .rstrip = rstrip && std::ranges::find(kNeverStrip, data_.texts[id]) == std::end(kNeverStrip)});
    }
    data_.added = AddedTokens(std::move(tokens), AddedTokens::Order::kLongestFirst);
    index_special_texts(data_);
  }

  void build_unigram() {
    UnigramModel model;
    float lowest = std::numeric_limits<float>::max();
    for (size_t id = 0; id < data_.texts.size(); ++id) {
      const TokenKind kind = data_.kinds[id];
      if (kind == TokenKind::kNormal) lowest = std::min(lowest, score(id));
      model.scores.push_back(kind == TokenKind::kUserDefined ? 0.0 : static_cast<double>(score(id)));
      const bool usable = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kUnused;
      if (!usable) continue;
      check_token_length(name(), id, data_.texts[id]);
      model.tokens.insert(data_.texts[id], static_cast<int32_t>(id));
    }
    model.unknown_score = static_cast<double>(lowest - 10.0f);  // llama.cpp's penalty
    model.unk = data_.unk;
    model.byte_tokens.fill(kNoToken);
    UnigramSpaces spaces;
    spaces.prepend_space = space_prefix_;
    spaces.merge_spaces = from_.remove_extra_whitespaces.value_or(false);
    if (!from_.precompiled_charsmap.empty()) {
      spaces.map = std::make_shared<const CharsMap>(from_.precompiled_charsmap, name());
    }
    data_.normalizer.steps.emplace_back(std::move(spaces));
    data_.model = std::move(model);
    if (space_prefix_) data_.decoding.strip_count = 1;
  }

  // The tokens that begin a word are spelled with ▁, those that continue one without a mark.
  void build_word_piece() {
    WordPieceModel model;
    for (size_t id = 0; id < data_.texts.size(); ++id) {
      check_token_length(name(), id, data_.texts[id]);
      model.tokens.insert(data_.texts[id], static_cast<int32_t>(id));
    }
    model.beginning = model.node_after(kSpaceMark);
    if (!data_.unk) throw invalid("{}: tokenizer.ggml.unknown_token_id ([UNK]) is not a token", name());
    model.unk = *data_.unk;
    const bool lowercase = from_.lowercase.value_or(true);
    data_.normalizer.steps.emplace_back(BertCleanGguf{from_.strip_accents.value_or(lowercase), lowercase});
    data_.pretokenizer.steps.emplace_back(SplitByClass{is_white_space, SplitBehavior::kRemoved});
    data_.pretokenizer.steps.emplace_back(SplitByClass{is_punctuation, SplitBehavior::kIsolated});
    data_.model = std::move(model);
  }

  void spell_bytes() {
    const bool alphabet = kind_ == GgufModelKind::kBytePair && std::get<BpeModel>(data_.model).byte_level;
    std::string bytes;
    for (size_t id = 0; id < data_.texts.size(); ++id) {
      const std::string_view text = data_.texts[id];
      switch (data_.kinds[id]) {
        case TokenKind::kUnused:
          bytes.clear();
          break;
        case TokenKind::kByte: {
          const int byte = byte_token_value(text);
          bytes = byte < 0 ? std::string(text) : std::string(1, static_cast<char>(byte));
          break;
        }
        case TokenKind::kNormal:
          if (!alphabet)
            bytes = replaced(text, kSpaceMark, " ", text.size());
          else if (!is_utf8(text) || !alphabet_to_bytes(text, bytes))
            bytes = text;
          break;
        default:
          bytes = text;
      }
      data_.bytes.add(bytes);
    }
  }

  const GgufVocabulary& from_;
  TokenizerData& data_;
  GgufModelKind kind_ = GgufModelKind::kSentencePiece;
  GgufPreTokenizer pre_;
  std::optional<TokenId> sep_;
  bool add_bos_ = false, add_eos_ = false, add_sep_ = false, space_prefix_ = false, whole_line_breaks_ = false;
};

}  // namespace

Tokenizer Tokenizer::from_gguf(const GgufVocabulary& vocabulary, const std::string& name) {
  auto data = std::make_shared<TokenizerData>();
  data->name = name;
  GgufBuilder(vocabulary, *data).build();
  return Tokenizer(std::move(data));
}

}  // namespace quire

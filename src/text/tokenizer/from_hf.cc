// Reads tokenizer.json as Hugging Face's tokenizers library does.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text/utf8.h"
#include "json/field.h"
#include "text/tokenizer/build.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/data.h"
#include "text/tokenizer/hf_steps.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

// Higher ids mean a broken file, and the unused ids below them would take memory.

enum class HfModelKind : uint8_t { kBytePair, kUnigram, kWordPiece };

class HfBuilder {
 public:
  HfBuilder(const JsonField& root, TokenizerData& data) : root_(root), model_(root.at("model")), data_(data) {}

  void build(std::string_view config) {
    kind_ = read_kind();
    kind_ == HfModelKind::kUnigram ? collect_unigram_tokens() : collect_tokens();
    collect_added_tokens();
    add_texts();
    if (root_.has("normalizer")) data_.normalizer = read_hf_normalizer(root_.at("normalizer"));
    if (root_.has("pre_tokenizer")) data_.pretokenizer = read_hf_pretokenizer(root_.at("pre_tokenizer"));
    if (root_.has("decoder"))
      data_.decoding = read_hf_decoder(root_.at("decoder"));
    else
      data_.decoding.steps.emplace_back(DecodeJoinBySpaces{});
    read_post_processor();
    index_added_tokens();
    build_model();
    decode_texts(data_);
    name_special_tokens(config);
  }

 private:
  HfModelKind read_kind() const {
    if (model_.has("type")) {
      const std::string& type = model_.at("type").string();
      if (type == "BPE") return HfModelKind::kBytePair;
      if (type == "Unigram") return HfModelKind::kUnigram;
      if (type == "WordPiece") return HfModelKind::kWordPiece;
      throw unsupported("{}: the model \"{}\" is not supported", model_.where(), type);
    }
    // Old files have no type: BPE has merges, WordPiece limits words, Unigram has a list of tokens with scores.
    if (model_.has("merges")) return HfModelKind::kBytePair;
    if (model_.has("max_input_chars_per_word")) return HfModelKind::kWordPiece;
    if (const auto vocab = model_.find("vocab"); vocab && vocab->json().is_array()) return HfModelKind::kUnigram;
    throw invalid("{} is missing", model_.where("type"));
  }

  void place(int64_t id, std::string text, const JsonField& list) {
    if (static_cast<size_t>(id) >= texts_.size()) texts_.resize(static_cast<size_t>(id) + 1);
    std::string& slot = texts_[static_cast<size_t>(id)];
    if (!slot.empty() && slot != text) throw list.error("id {} is \"{}\" and \"{}\"", id, slot, text);
    slot = std::move(text);
  }

  void collect_tokens() {
    const JsonField vocab = model_.at("vocab").object();
    if (vocab.size() == 0) throw vocab.error("is empty");
    for (const auto& [text, id] : vocab.members()) place(id.integer(0, kMostTokens - 1), std::string(text), vocab);
    model_tokens_ = texts_.size();
  }

  void collect_unigram_tokens() {
    const JsonField vocab = model_.at("vocab").array();
    if (vocab.size() == 0) throw vocab.error("is empty");
    if (vocab.size() > static_cast<size_t>(kMostTokens))
      throw vocab.error("{} tokens, at most {} are allowed", vocab.size(), kMostTokens);
    for (size_t i = 0; i < vocab.size(); ++i) {
      const JsonField pair = vocab.at(i).array();
      if (pair.size() != 2) throw pair.error("expected [token, score]");
      texts_.push_back(pair.at(0).string());
      scores_.push_back(pair.at(1).number());
    }
    model_tokens_ = texts_.size();
  }

  void collect_added_tokens() {
    if (!root_.has("added_tokens")) return;
    const JsonField list = root_.at("added_tokens").array();
    std::unordered_map<std::string_view, TokenId> known;
    for (size_t i = 0; i < texts_.size(); ++i) known[texts_[i]] = static_cast<TokenId>(i);
    std::vector<std::pair<int64_t, size_t>> new_texts;
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonField item = list.at(i);
      AddedToken token{.content = item.at("content").string(),
                       .special = item.get_or<bool>("special", false),
                       .normalized = item.get_or<bool>("normalized", true),
                       .single_word = item.get_or<bool>("single_word", false),
                       .lstrip = item.get_or<bool>("lstrip", false),
                       .rstrip = item.get_or<bool>("rstrip", false)};
      const int64_t id = item.at("id").integer(0, kMostTokens - 1);
      if (token.content.empty()) continue;
      check_token_length(item.where(), static_cast<size_t>(id), token.content);
      // As in the library, tokens of the model's vocabulary keep their ids.
      const auto found = known.find(token.content);
      token.id = found != known.end() ? found->second : static_cast<TokenId>(id);
      if (found == known.end()) new_texts.emplace_back(id, added_.size());
      added_.push_back(std::move(token));
    }
    for (const auto& [id, index] : new_texts) place(id, added_[index].content, list);
  }

  void add_texts() {
    for (const std::string& text : texts_) data_.texts.add(text);
    data_.kinds.assign(texts_.size(), TokenKind::kNormal);
    data_.special.assign(texts_.size(), false);
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i].empty()) data_.kinds[i] = TokenKind::kUnused;
    }
    for (const AddedToken& token : added_) {
      const auto id = static_cast<size_t>(token.id);
      data_.kinds[id] = token.special ? TokenKind::kControl : TokenKind::kUserDefined;
      if (token.special) data_.special[id] = true;
    }
    texts_.clear();
    index_texts(data_);
    index_special_texts(data_);
  }

  void read_post_processor() {
    if (!root_.has("post_processor")) {
      data_.pair.missing = "post_processor is missing";
      return;
    }
    const JsonField field = root_.at("post_processor");
    AroundText around = read_hf_post_processor(field);
    for (const TokenIds* ids : {&around.prefix, &around.suffix}) {
      for (TokenId id : *ids) {
        if (!data_.contains(id)) throw field.error("token {} is not in the vocabulary", id);
      }
    }
    for (const PairTemplate::Piece& piece : around.pair.pieces) {
      if (piece.kind == PairTemplate::Kind::kToken && !data_.contains(piece.token))
        throw field.error("token {} is not in the vocabulary", piece.token);
    }
    data_.pair = std::move(around.pair);
    data_.prefix = std::move(around.prefix);
    data_.suffix = std::move(around.suffix);
  }

  void index_added_tokens() {
    std::vector<AddedToken> plain, normalized;
    Regex::Matcher matcher;
    for (AddedToken& token : added_) {
      if (token.normalized) {
        std::string changed = data_.normalizer.apply(token.content, matcher);
        if (changed != token.content) data_.normalized_texts[token.id] = changed;
        token.content = std::move(changed);
        if (!token.content.empty()) normalized.push_back(std::move(token));
      } else {
        plain.push_back(std::move(token));
      }
    }
    data_.added = AddedTokens(std::move(plain), AddedTokens::Order::kLeftmostLongest);
    data_.added_normalized = AddedTokens(std::move(normalized), AddedTokens::Order::kLeftmostLongest);
  }

  std::optional<TokenId> model_token(std::string_view text) const {
    const auto found = data_.by_text.find(text);
    if (found == data_.by_text.end() || static_cast<size_t>(found->second) >= model_tokens_) return std::nullopt;
    return found->second;
  }

  void mark_byte_tokens(const std::array<TokenId, 256>& byte_tokens) {
    for (TokenId id : byte_tokens) {
      if (id >= 0) data_.kinds[static_cast<size_t>(id)] = TokenKind::kByte;
    }
  }

  void build_model() {
    switch (kind_) {
      case HfModelKind::kBytePair:
        return build_bpe();
      case HfModelKind::kUnigram:
        return build_unigram();
      case HfModelKind::kWordPiece:
        return build_word_piece();
    }
  }

  void build_unigram() {
    UnigramModel model;
    double lowest = std::numeric_limits<double>::infinity();
    const std::string where = model_.where();
    for (size_t id = 0; id < model_tokens_; ++id) {
      lowest = std::min(lowest, scores_[id]);
      check_token_length(where, id, data_.texts[id]);
      if (!data_.texts[id].empty()) model.tokens.insert(data_.texts[id], static_cast<int32_t>(id));
    }
    model.scores = std::move(scores_);
    model.unknown_score = lowest - 10;  // the library's penalty
    model.byte_fallback = model_.get_or<bool>("byte_fallback", false);
    if (model_.has("unk_id")) {
      model.unk = static_cast<TokenId>(model_.at("unk_id").integer(0, static_cast<int64_t>(model_tokens_) - 1));
    }
    find_byte_tokens(data_, model.byte_tokens);
    if (model.byte_fallback) mark_byte_tokens(model.byte_tokens);
    mark_unk(model.unk);
    data_.model = std::move(model);
  }

  void mark_unk(std::optional<TokenId> unk) {
    data_.unk = unk;
    if (unk) data_.kinds[static_cast<size_t>(*unk)] = TokenKind::kUnknown;
  }

  TokenId read_unk() const {
    const JsonField field = model_.at("unk_token");
    const std::optional<TokenId> unk = model_token(field.string());
    if (!unk) throw field.error("\"{}\" is not in the vocabulary", field.string());
    return *unk;
  }

  void build_word_piece() {
    WordPieceModel model;
    const std::string where = model_.where();
    for (size_t id = 0; id < model_tokens_; ++id) {
      check_token_length(where, id, data_.texts[id]);
      if (!data_.texts[id].empty()) model.tokens.insert(data_.texts[id], static_cast<int32_t>(id));
    }
    const JsonField prefix = model_.at("continuing_subword_prefix");
    model.continuing = model.node_after(prefix.string());
    model.longest_word =
        static_cast<size_t>(model_.at("max_input_chars_per_word").integer(0, std::numeric_limits<int64_t>::max()));
    model.unk = read_unk();
    mark_unk(model.unk);
    data_.model = std::move(model);
  }

  void build_bpe() {
    BpeModel model;
    if (model_.has("dropout") && model_.at("dropout").number() > 0) {
      throw unsupported("{}: dropout makes the encoding random and is not supported", model_.where());
    }
    model.byte_fallback = model_.get_or<bool>("byte_fallback", false);
    model.fuse_unk = model_.get_or<bool>("fuse_unk", false);
    model.ignore_merges = model_.get_or<bool>("ignore_merges", false);
    if (model_.has("continuing_subword_prefix")) {
      model.continuing_prefix = model_.at("continuing_subword_prefix").string();
    }
    if (model_.has("end_of_word_suffix")) model.word_suffix = model_.at("end_of_word_suffix").string();
    if (model_.has("unk_token")) model.unk = read_unk();
    model.vocabulary_size = static_cast<int32_t>(data_.texts.size());
    read_merges(model);
    find_byte_tokens(data_, model.byte_tokens);
    if (model.byte_fallback) mark_byte_tokens(model.byte_tokens);
    mark_unk(model.unk);
    use_bytes(model);
    if (!model.byte_level) {
      model.symbols.reserve(model_tokens_);
      for (size_t id = 0; id < model_tokens_; ++id) {
        if (!data_.texts[id].empty()) model.symbols[data_.texts[id]] = static_cast<int32_t>(id);
      }
      std::vector<std::string_view> texts(data_.texts.size());
      for (size_t id = 0; id < texts.size(); ++id) texts[id] = data_.texts[id];
      model.find_joints(texts);
    }
    if (model.ignore_merges) index_whole_words(model);
    data_.model = std::move(model);
  }

  // If the last step maps bytes to GPT-2's alphabet and every byte has a token, words stay bytes instead.
  void use_bytes(BpeModel& model) {
    std::vector<PreTokenizerStep>& steps = data_.pretokenizer.steps;
    if (steps.empty() || !std::holds_alternative<ToAlphabet>(steps.back())) return;
    if (!model.continuing_prefix.empty() || !model.word_suffix.empty()) return;
    for (int b = 0; b < 256; ++b) {
      std::string character;
      append_utf8(byte_to_character(static_cast<unsigned char>(b)), character);
      const std::optional<TokenId> id = model_token(character);
      if (!id) return;
      model.first_symbols[static_cast<size_t>(b)] = *id;
    }
    model.byte_level = true;
    steps.pop_back();
  }

  void index_whole_words(BpeModel& model) {
    StringTable& words = data_.whole_words;
    std::vector<TokenId> ids;
    for (size_t id = 0; id < model_tokens_; ++id) {
      std::string bytes(data_.texts[id]);
      if (bytes.empty() || (model.byte_level && !alphabet_to_bytes(data_.texts[id], bytes))) continue;
      words.add(bytes);
      ids.push_back(static_cast<TokenId>(id));
    }
    model.whole_words.reserve(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      model.whole_words[words[i]] = ids[i];
      model.longest_word = std::max(model.longest_word, words[i].size());
    }
  }

  void read_merges(BpeModel& model) {
    const JsonField list = model_.at("merges").array();
    model.merges.reserve(list.size());
    std::string whole;
    uint32_t rank = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const Json& item = list.json()[i];
      std::string_view left, right;
      if (item.is_string()) {  // "left right"
        const std::string_view text = item.get_ref<const std::string&>();
        if (text.starts_with("#version")) continue;
        const size_t space = text.find(' ');
        if (space == text.npos || text.find(' ', space + 1) != text.npos) {
          throw list.at(i).error("\"{}\" is not two tokens", text);
        }
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        const JsonField pair = list.at(i).array();
        if (pair.size() != 2) throw pair.error("expected [left, right]");
        left = pair.at(0).string();
        right = pair.at(1).string();
      }
      if (right.size() < model.continuing_prefix.size()) {
        throw list.at(i).error("the right token lacks the prefix");
      }
      whole.assign(left).append(right.substr(model.continuing_prefix.size()));
      const auto a = model_token(left), b = model_token(right), c = model_token(whole);
      if (!a || !b || !c) {
        throw list.at(i).error("\"{}\" is not in the vocabulary", !a ? left : !b ? right : whole);
      }
      model.merges.set(*a, *b, {rank++, *c}, true);
    }
  }

  void name_special_tokens(std::string_view config_text) {
    const auto by_names = [&](std::initializer_list<const char*> names) -> std::optional<TokenId> {
      for (const char* name : names) {
        const auto found = data_.by_text.find(name);
        if (found != data_.by_text.end() && data_.special[static_cast<size_t>(found->second)]) return found->second;
      }
      return std::nullopt;
    };
    if (!data_.prefix.empty()) data_.bos = data_.prefix.front();
    if (!config_text.empty()) read_config(config_text);
    if (!data_.eos && !data_.suffix.empty()) data_.eos = data_.suffix.back();
    if (!data_.eos)
      data_.eos = by_names({"</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "<｜end▁of▁sentence｜>"});
    for (std::string_view name : end_of_turn_names()) {
      const auto found = data_.by_text.find(name);
      if (found == data_.by_text.end() || !data_.special[static_cast<size_t>(found->second)]) continue;
      data_.eot = found->second;
      break;
    }
    data_.eom = by_names({"<|eom_id|>"});
    find_fim_tokens(data_);
    for (std::string_view name : end_of_generation_names()) {
      const auto found = data_.by_text.find(name);
      if (found == data_.by_text.end() || !data_.special[static_cast<size_t>(found->second)]) continue;
      data_.end_of_generation.push_back(found->second);
    }
    if (data_.eos) data_.end_of_generation.push_back(*data_.eos);
    finish_end_of_generation(data_);
  }

  void read_config(std::string_view text) {
    const auto config = JsonField::parse(text, data_.name + " (config)");
    const auto read = [&](const char* key, std::optional<TokenId>& id) {
      if (!config.has(key)) return;
      const JsonField field = config.at(key);
      const std::string& name = field.json().is_object() ? field.at("content").string() : field.string();
      const auto found = data_.by_text.find(name);
      if (found != data_.by_text.end()) id = found->second;
    };
    read("bos_token", data_.bos);
    read("eos_token", data_.eos);
    read("unk_token", data_.unk);
    read("pad_token", data_.pad);
  }

  JsonField root_, model_;
  TokenizerData& data_;
  HfModelKind kind_ = HfModelKind::kBytePair;
  std::vector<std::string> texts_;  // by id; empty after add_texts
  std::vector<double> scores_;
  std::vector<AddedToken> added_;
  size_t model_tokens_ = 0;  // lower ids are the model's own tokens or unused
};

}  // namespace

Tokenizer Tokenizer::from_hf_json(std::string_view json, const std::string& name, std::string_view config) {
  auto data = std::make_shared<TokenizerData>();
  data->name = name;
  HfBuilder(JsonField::parse(json, name), *data).build(config);
  return Tokenizer(std::move(data));
}

}  // namespace quire

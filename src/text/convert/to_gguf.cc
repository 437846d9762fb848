#include "text/convert/to_gguf.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "text/convert/probe_texts.h"
#include "text/tokenizer/build.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/data.h"
#include "text/tokenizer/gguf_bpe.h"
#include "text/tokenizer/hf_component.h"
#include "text/tokenizer/hf_steps.h"
#include "text/tokenizer/text_replace.h"

namespace quire {
namespace {

using Words = std::vector<std::string>;

// The words of a text as bytes, whether or not the steps turn them into GPT-2's alphabet.
Words words_of(const PreTokenizer& pretokenizer, std::string_view text) {
  const bool alphabet = std::ranges::any_of(
      pretokenizer.steps, [](const PreTokenizerStep& step) { return std::holds_alternative<ToAlphabet>(step); });
  Words words;
  PreTokenizerScratch scratch;
  if (text.empty()) return words;
  pretokenizer.split(text, true, scratch, [&](std::string_view word) {
    std::string bytes;
    if (!alphabet || !alphabet_to_bytes(word, bytes)) bytes = word;
    words.push_back(std::move(bytes));
  });
  return words;
}

// llama.cpp's name of the pre-tokenizer that splits all ordinary texts as `steps` does; of several, that which differs
// least in the unusual ones, and treats merges alike.
std::string find_pretokenizer(const PreTokenizer& steps, bool ignore_merges, const std::string& file) {
  std::vector<Words> ordinary, unusual;
  for (std::string_view text : ordinary_texts()) ordinary.push_back(words_of(steps, text));
  for (std::string_view text : unusual_texts()) unusual.push_back(words_of(steps, text));
  std::string best;
  size_t least = std::numeric_limits<size_t>::max();
  for (std::string_view name : gguf_pretokenizer_names()) {
    const GgufPreTokenizer candidate = gguf_pretokenizer(name, file);
    if (!candidate.byte_level) continue;
    const auto differs = [&](std::string_view text, const Words& words) {
      return words_of(candidate.steps, text) != words;
    };
    bool same = true;
    for (size_t i = 0; i < ordinary.size() && same; ++i) same = !differs(ordinary_texts()[i], ordinary[i]);
    if (!same) continue;
    size_t differences = candidate.ignore_merges != ignore_merges ? 1 : 0;
    for (size_t i = 0; i < unusual.size(); ++i) differences += differs(unusual_texts()[i], unusual[i]) ? 2 : 0;
    if (differences < least) best = name, least = differences;
  }
  if (best.empty())
    throw unsupported("{}: pre_tokenizer: llama.cpp has no pre-tokenizer that splits texts in this way", file);
  return best;
}

class Writer {
 public:
  Writer(const Tokenizer& tokenizer, const JsonField& json, const ModelTokens& model)
      : data_(tokenizer.data()), root_(json), json_(json.at("model")), model_(model) {}

  GgufVocabularyData write() {
    const auto* bpe = std::get_if<BpeModel>(&data_.model);
    list_tokens();
    if (std::holds_alternative<WordPieceModel>(data_.model)) {
      write_word_piece();
    } else if (const auto* unigram = std::get_if<UnigramModel>(&data_.model)) {
      write_unigram(*unigram);
    } else if (bpe->byte_fallback && !bpe->byte_level) {
      v_.model = "llama";
      v_.pre = "default";
      v_.add_space_prefix = adds_space();
      rank_merges();
    } else {
      v_.model = "gpt2";
      v_.pre = find_pretokenizer(data_.pretokenizer, bpe->ignore_merges, data_.name);
      for (const auto& [left, right] : merges()) v_.merges.push_back(left + " " + right);
    }
    name_special_tokens();
    warn_of_white_space();
    return std::move(v_);
  }

 private:
  void list_tokens() {
    for (int id = 0; id < model_.vocab; ++id) {
      const bool exists = data_.contains(id) && data_.kinds[static_cast<size_t>(id)] != TokenKind::kUnused;
      v_.tokens.push_back(exists ? std::string(data_.texts[static_cast<size_t>(id)]) : fmt::format("[PAD{}]", id));
      v_.types.push_back(exists ? type_of(data_.kinds[static_cast<size_t>(id)]) : 5);
    }
  }
  static int32_t type_of(TokenKind kind) {
    switch (kind) {
      case TokenKind::kNormal:
        return 1;
      case TokenKind::kUnknown:
        return 2;
      case TokenKind::kControl:
        return 3;
      case TokenKind::kUserDefined:
        return 4;
      case TokenKind::kUnused:
        return 5;
      case TokenKind::kByte:
        return 6;
    }
    return 1;
  }

  std::vector<std::pair<std::string, std::string>> merges() const {
    std::vector<std::pair<std::string, std::string>> list;
    const JsonField field = json_.at("merges").array();
    list.reserve(field.size());
    for (const JsonField& item : field.elements()) {
      if (item.json().is_string()) {
        const std::string& text = item.string();
        const size_t space = text.find(' ');
        if (!text.starts_with("#version")) list.emplace_back(text.substr(0, space), text.substr(space + 1));
      } else {
        list.emplace_back(item.at(0).string(), item.at(1).string());
      }
    }
    return list;
  }

  // SentencePiece merges the pair whose result has the best score: the rank of the first merge that makes a token.
  // Tokens that no merge makes are single characters, bytes and added tokens.
  void rank_merges() {
    std::unordered_map<std::string, float> scores;
    for (const auto& [left, right] : merges()) scores.try_emplace(left + right, -static_cast<float>(scores.size()));
    const auto last = -static_cast<float>(scores.size());
    for (size_t id = 0; id < v_.tokens.size(); ++id) {
      const auto found = scores.find(v_.tokens[id]);
      v_.scores.push_back(v_.types[id] != 1 ? 0 : found == scores.end() ? last : found->second);
      // llama.cpp matches these in the text itself, which has spaces.
      if (v_.types[id] == 4) v_.tokens[id] = replaced(v_.tokens[id], kSpaceMark, " ", v_.tokens[id].size());
    }
  }

  // Tokens that begin a word are marked in a GGUF file, in a tokenizer.json those that continue one.
  void write_word_piece() {
    v_.model = "bert";
    v_.pre = "default";
    const std::string continuing = json_.at("continuing_subword_prefix").string();
    for (size_t id = 0; id < v_.tokens.size(); ++id) {
      if (v_.types[id] != 1) continue;
      std::string& token = v_.tokens[id];
      token = token.starts_with(continuing) ? token.substr(continuing.size()) : std::string(kSpaceMark) + token;
    }
    for (const NormalizerStep& step : data_.normalizer.steps) {
      const auto* clean = std::get_if<BertClean>(&step);
      if (!clean || !clean->clean_text || !clean->handle_chinese_chars)
        throw unsupported("{}: normalizer: llama.cpp has BertNormalizer only, with clean_text and handle_chinese_chars",
                          data_.name);
      v_.lowercase = clean->lowercase;
      v_.strip_accents = clean->strip_accents;
    }
  }

  void write_unigram(const UnigramModel& model) {
    v_.model = "t5";
    v_.pre = "default";
    v_.scores.assign(model.scores.begin(), model.scores.end());
    v_.scores.resize(v_.tokens.size(), 0);
    v_.add_space_prefix = adds_space();
    Regex::Matcher matcher;
    v_.remove_extra_whitespaces = data_.normalizer.apply("a  b", matcher) != "a  b";
    if (root_.has("normalizer")) {
      for_each_component(root_.at("normalizer"), "normalizers", [&](const JsonField& step) {
        if (component_type(step) == "Precompiled") v_.charsmap = decode_base64(step.at("precompiled_charsmap"));
      });
    }
  }

  bool adds_space() const {
    Regex::Matcher matcher;
    const std::string normalized = data_.normalizer.apply("x", matcher);
    const Words words = words_of(data_.pretokenizer, normalized);
    return !words.empty() && words[0].starts_with(kSpaceMark);
  }

  // The model's own tokens between two texts that it compares.
  ptrdiff_t tokens_between() const {
    const auto& pieces = data_.pair.pieces;
    const auto place = [&](PairTemplate::Kind kind) {
      return std::ranges::find(pieces, kind, &PairTemplate::Piece::kind);
    };
    return place(PairTemplate::Kind::kSecond) - place(PairTemplate::Kind::kFirst) - 1;
  }

  void warn_of_white_space() {
    if (!root_.has("added_tokens")) return;
    for (const JsonField& token : root_.at("added_tokens").elements()) {
      if (!token.get_or<bool>("lstrip", false) && !token.get_or<bool>("rstrip", false)) continue;
      v_.warnings.push_back(fmt::format("a GGUF file cannot say that the token \"{}\" includes white space next to it",
                                        token.get<std::string>("content")));
      return;  // one is enough
    }
  }

  void name_special_tokens() {
    const auto ends = [&](TokenId id) { return std::ranges::find(model_.eos, id) != model_.eos.end(); };
    v_.eos = data_.eos;
    if (!model_.eos.empty() && !(v_.eos && ends(*v_.eos))) v_.eos = model_.eos.front();
    v_.bos = data_.bos;
    if (!v_.bos && model_.bos != kNoToken) v_.bos = model_.bos;
    if (!v_.bos) v_.bos = v_.eos;  // llama.cpp's default is any token
    v_.unk = data_.unk;
    v_.pad = data_.pad;
    if (!data_.suffix.empty()) {
      v_.sep = data_.suffix.back();
      v_.add_sep = tokens_between() == 2;
    }
    // llama.cpp knows most ends of a turn by their names; one further id can be given.
    const auto known = end_of_generation_names();
    for (const TokenId id : model_.eos) {
      if (id == v_.eos || !data_.contains(id)) continue;
      const std::string_view text = data_.texts[static_cast<size_t>(id)];
      if (std::ranges::find(known, text) != known.end()) continue;
      if (!v_.eot)
        v_.eot = id;
      else
        v_.warnings.push_back(fmt::format("a GGUF file cannot say that \"{}\" ends an answer", text));
    }
    v_.add_bos = v_.bos && data_.prefix == TokenIds{*v_.bos};
    v_.add_eos = v_.eos && data_.suffix == TokenIds{*v_.eos};
    if ((!data_.prefix.empty() && !*v_.add_bos) || (!data_.suffix.empty() && !*v_.add_eos))
      v_.warnings.push_back(
          "a GGUF file cannot say which tokens the tokenizer adds around a text; chats are not affected");
  }

  const TokenizerData& data_;
  const JsonField root_, json_;
  const ModelTokens& model_;
  GgufVocabularyData v_;
};

}  // namespace

GgufVocabularyData gguf_vocabulary(const Tokenizer& tokenizer, const JsonField& json, const ModelTokens& model) {
  return Writer(tokenizer, json, model).write();
}

TokenizerDifference compare_tokenizers(const Tokenizer& a, const Tokenizer& b) {
  const auto first_difference = [&](std::span<const std::string_view> texts) -> std::string {
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    for (std::string_view text : texts) {
      if (a.encode(text, plain) != b.encode(text, plain)) return std::string(text);
    }
    return "";
  };
  return {first_difference(ordinary_texts()), first_difference(unusual_texts())};
}

}  // namespace quire

#include "text/tokenizer/gguf_bpe.h"

#include <algorithm>

#include "base/error.h"
#include "base/text/utf8.h"
#include "text/tokenizer/build.h"
#include "text/tokenizer/byte_alphabet.h"

namespace quire {
namespace {

// No real vocabulary merges longer tokens, and trying all their cuts takes quadratic time.
constexpr size_t kLongestCut = 1024;

class BpeBuilder {
 public:
  BpeBuilder(const GgufVocabulary& from, TokenizerData& data) : from_(from), data_(data) {}

  // Every way to cut a token in two is a merge. Better scores rank higher, equal scores rank equally.
  void sentence_piece(bool space_prefix) {
    BpeModel model;
    model.vocabulary_size = static_cast<int32_t>(data_.texts.size());
    model.byte_fallback = model.raw_bytes = true;
    model.unk = data_.unk;
    find_sentence_piece_bytes(model.byte_tokens);
    const size_t count = data_.texts.size();
    std::vector<float> scores(count);
    for (size_t id = 0; id < count; ++id) scores[id] = from_.scores.empty() ? 0.0f : from_.scores[id];
    std::vector<float> order = scores;
    std::sort(order.begin(), order.end(), std::greater<>());
    order.erase(std::unique(order.begin(), order.end()), order.end());
    const auto symbol_of = [&](std::string_view part) -> int32_t {
      if (const auto token = data_.by_text.find(part); token != data_.by_text.end()) {
        return data_.kinds[static_cast<size_t>(token->second)] == TokenKind::kByte ? -1 : token->second;
      }
      return utf8_length(part[0]) >= part.size() ? symbol(model, part) : -1;
    };
    model.merges.reserve(count * 2);
    for (size_t id = 0; id < count; ++id) {
      const std::string_view text = data_.texts[id];
      if (text.size() > kLongestCut) continue;
      const auto rank = static_cast<uint32_t>(
          std::lower_bound(order.begin(), order.end(), scores[id], std::greater<>()) - order.begin());
      for (size_t cut = utf8_length(text[0]); cut < text.size(); cut += utf8_length(text[cut])) {
        const int32_t left = symbol_of(text.substr(0, cut)), right = left < 0 ? -1 : symbol_of(text.substr(cut));
        if (right >= 0) model.merges.set(left, right, {rank, static_cast<int32_t>(id)}, true);
      }
    }
    if (space_prefix) data_.normalizer.steps.emplace_back(Prepend{" "});
    data_.normalizer.steps.emplace_back(ReplaceText{" ", std::string(kSpaceMark)});
    finish_text_model(std::move(model));
    if (space_prefix) data_.decoding.strip_count = 1;
  }

  void byte_pair(GgufPreTokenizer pre, bool whole_line_breaks) {
    BpeModel model;
    model.vocabulary_size = static_cast<int32_t>(data_.texts.size());
    model.byte_level = pre.byte_level;
    model.ignore_merges = pre.ignore_merges;
    model.byte_fallback = !model.byte_level;
    find_byte_tokens(data_, model.byte_tokens);
    if (model.byte_level) {
      for (int b = 0; b < 256; ++b) {
        std::string character;
        append_utf8(byte_to_character(static_cast<unsigned char>(b)), character);
        model.first_symbols[static_cast<size_t>(b)] = symbol(model, character);
      }
    }
    if (from_.merges.empty() && from_.pre != "kimi-k2") throw invalid("{}: tokenizer.ggml.merges is empty", data_.name);
    model.merges.reserve(from_.merges.size());
    std::string whole;
    for (size_t i = 0; i < from_.merges.size(); ++i) {
      const std::string_view merge = from_.merges[i];
      const size_t space = merge.find(' ', 1);
      if (space == merge.npos || space + 1 == merge.size()) continue;  // as in llama.cpp: a side is empty
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      whole.assign(left).append(right);
      const int32_t a = symbol(model, left), b = symbol(model, right);
      model.merges.set(a, b, {static_cast<uint32_t>(i), symbol(model, whole)}, false);
    }
    if (model.ignore_merges) index_whole_words(model);
    data_.pretokenizer = std::move(pre.steps);
    if (model.byte_level) {
      data_.model = std::move(model);
      return;
    }
    if (whole_line_breaks) {  // a run of line breaks that is a token becomes that token
      for (size_t id = 0; id < data_.texts.size(); ++id) {
        const std::string_view text = data_.texts[id];
        if (text.find_first_not_of('\n') != text.npos) continue;
        model.ignore_merges = true;
        model.whole_words[text] = static_cast<TokenId>(id);
        model.longest_word = std::max(model.longest_word, text.size());
      }
    }
    data_.normalizer.steps.emplace_back(ReplaceText{" ", std::string(kSpaceMark)});
    finish_text_model(std::move(model));
  }

 private:
  // The symbol of a text: its token, or an extra symbol.
  int32_t symbol(BpeModel& model, std::string_view text) {
    if (const auto token = data_.by_text.find(text); token != data_.by_text.end()) return token->second;
    const auto [it, is_new] = extra_.try_emplace(std::string(text), model.vocabulary_size + extra_.size());
    if (is_new) {
      data_.extra_symbols.add(text);
      model.extra.push_back(spell_extra(model, text));
    }
    return static_cast<int32_t>(it->second);
  }

  // The tokens of a symbol that is not a token: in a byte-level vocabulary those of its bytes that are tokens
  // themselves, otherwise its bytes' tokens.
  TokenIds spell_extra(const BpeModel& model, std::string_view text) const {
    TokenIds ids;
    for (char c : text) {
      if (!model.byte_level) {
        const TokenId id = model.byte_tokens[static_cast<unsigned char>(c)];
        if (id >= 0) ids.push_back(id);
      } else if (const auto found = data_.by_text.find(std::string_view(&c, 1)); found != data_.by_text.end()) {
        ids.push_back(found->second);
      }
    }
    return ids;
  }

  // <0x0A>, or a token that is the byte itself.
  void find_sentence_piece_bytes(std::array<TokenId, 256>& bytes) const {
    find_byte_tokens(data_, bytes);
    for (int b = 0; b < 256; ++b) {
      const char c = static_cast<char>(b);
      const auto found = data_.by_text.find(std::string_view(&c, 1));
      if (bytes[static_cast<size_t>(b)] < 0 && found != data_.by_text.end()) {
        bytes[static_cast<size_t>(b)] = found->second;
      }
    }
  }

  void index_whole_words(BpeModel& model) {
    std::vector<TokenId> ids;
    std::string bytes;
    for (size_t id = 0; id < data_.texts.size(); ++id) {
      if (!model.byte_level)
        bytes = data_.texts[id];
      else if (!is_utf8(data_.texts[id]) || !alphabet_to_bytes(data_.texts[id], bytes))
        continue;
      data_.whole_words.add(bytes);
      ids.push_back(static_cast<TokenId>(id));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      model.whole_words[data_.whole_words[i]] = ids[i];
      model.longest_word = std::max(model.longest_word, data_.whole_words[i].size());
    }
  }

  void finish_text_model(BpeModel model) {
    const size_t count = data_.texts.size();
    std::vector<std::string_view> texts(count + data_.extra_symbols.size());
    for (size_t id = 0; id < texts.size(); ++id) {
      texts[id] = id < count ? data_.texts[id] : data_.extra_symbols[id - count];
      if (!texts[id].empty()) model.symbols[texts[id]] = static_cast<int32_t>(id);
    }
    model.find_joints(texts);
    data_.model = std::move(model);
  }

  const GgufVocabulary& from_;
  TokenizerData& data_;
  std::unordered_map<std::string, size_t> extra_;
};

}  // namespace

void build_sentence_piece(const GgufVocabulary& from, bool space_prefix, TokenizerData& data) {
  BpeBuilder(from, data).sentence_piece(space_prefix);
}

void build_byte_pair(const GgufVocabulary& from, GgufPreTokenizer pre, bool whole_line_breaks, TokenizerData& data) {
  BpeBuilder(from, data).byte_pair(std::move(pre), whole_line_breaks);
}

}  // namespace quire

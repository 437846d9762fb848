#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/text/utf8.h"
#include "base/working_memory.h"
#include "text/detokenizer.h"
#include "text/marks.h"
#include "text/tokenizer/data.h"
#include "text/tokenizer/word_cache.h"

namespace quire {
namespace {

// Merging takes 36 bytes of memory per byte of a word. Real texts have a space, digit or punctuation long before that.
constexpr size_t kLongestWord = size_t{1} << 20, kMergeBytes = 36;

// One call of encode: its memory and the ids so far.
class Encoding {
 public:
  Encoding(const TokenizerData& data, size_t bytes) : data_(data), cache_(bytes) {}

  void encode(std::string_view text, EncodeOptions options) {
    if (options.add_special) ids_.insert(ids_.end(), data_.prefix.begin(), data_.prefix.end());
    std::string repaired;
    well_formed_ = is_utf8(text);
    if (!well_formed_ && data_.ill_formed != TokenizerData::IllFormed::kKeep) {
      const bool bytewise = data_.ill_formed == TokenizerData::IllFormed::kReplaceBytes;
      repaired = bytewise ? lossy_utf8_bytewise(text) : lossy_utf8(text);
      text = repaired;
      well_formed_ = true;
      if (!options.plain.empty()) options.parse_special = false;  // the offsets are those of another text
    }
    const AddedTokens::Specials specials{options.parse_special, options.plain};
    std::vector<Fragment> fragments;
    data_.added.split(text, specials, fragments);
    for (const Fragment& fragment : fragments) {
      if (fragment.id != kNoToken) {
        ids_.push_back(fragment.id);
      } else {
        normalize(fragment.text, static_cast<size_t>(fragment.text.data() - text.data()), specials);
      }
    }
    if (options.add_special) ids_.insert(ids_.end(), data_.suffix.begin(), data_.suffix.end());
  }

  TokenIds take() { return std::move(ids_); }

 private:
  // `offset` is where the text begins in the whole.
  void normalize(std::string_view text, size_t offset, AddedTokens::Specials specials) {
    const bool at_start = offset == 0;
    std::vector<size_t> plain;
    if (!data_.added_normalized.empty()) {
      for (const size_t at : specials.plain) {
        if (at >= offset && at < offset + text.size()) plain.push_back(at - offset);
      }
    }
    if (!data_.normalizer.steps.empty()) {
      text = plain.empty() ? texts_.emplace_back(data_.normalizer.apply(text, scratch_.matcher))
                           : normalize_with_offsets(text, plain);
    }
    if (data_.added_normalized.empty()) return words(text, at_start);
    std::vector<Fragment> fragments;
    data_.added_normalized.split(text, {specials.parse, plain}, fragments);
    for (const Fragment& fragment : fragments) {
      if (fragment.id != kNoToken) {
        ids_.push_back(fragment.id);
      } else {
        words(fragment.text, at_start && fragment.text.data() == text.data());
      }
    }
  }

  // The offsets follow the text through the normalizer, where a private character stands before each.
  std::string_view normalize_with_offsets(std::string_view text, std::vector<size_t>& offsets) {
    const std::string mark = unused_character(std::span(&text, 1));
    const std::string marked = insert_marks(text, offsets, mark);
    std::string& normalized = texts_.emplace_back(data_.normalizer.apply(marked, scratch_.matcher));
    offsets = remove_marks(normalized, mark);
    return normalized;
  }

  void words(std::string_view text, bool at_start) {
    if (text.empty()) return;
    if (data_.pretokenizer.steps.empty()) return word(text);
    data_.pretokenizer.split(text, at_start, scratch_, [this](std::string_view w) { word(w); });
  }

  void word(std::string_view word) {
    if (ids_.capacity() - ids_.size() < word.size()) check_work(2 * ids_.capacity() * sizeof(TokenId));
    if (const auto* unigram = std::get_if<UnigramModel>(&data_.model)) return unigram->encode(word, ids_);
    if (const auto* word_piece = std::get_if<WordPieceModel>(&data_.model)) return word_piece->encode(word, ids_);
    const auto& bpe = std::get<BpeModel>(data_.model);
    // A word that is a token must not be cut.
    if (bpe.joints.empty() || !well_formed_ || (bpe.ignore_merges && word.size() <= bpe.longest_word)) {
      return part(bpe, word);
    }
    for (size_t begin = 0; begin < word.size();) {
      const size_t end = bpe.next_cut(word, begin);
      part(bpe, word.substr(begin, end - begin));
      begin = end;
    }
  }

  void part(const BpeModel& bpe, std::string_view word) {
    if (cache_.copy(word, ids_)) return;
    if (word.size() > kLongestWord) {
      throw invalid("a word of {} bytes (no space, digit or punctuation in it); at most {} can be encoded", word.size(),
                    kLongestWord);
    }
    check_work(kMergeBytes * word.size());
    const size_t begin = ids_.size();
    bpe.encode(word, bpe_scratch_, ids_);
    cache_.put(word, begin, ids_.size() - begin);
  }

  const TokenizerData& data_;
  WordCache cache_;
  bool well_formed_ = true;
  std::deque<std::string> texts_;  // normalized parts; the cache points to them
  PreTokenizerScratch scratch_;    // the cache points to its texts, too
  BpeScratch bpe_scratch_;
  TokenIds ids_;
};

}  // namespace

std::vector<size_t> Tokenizer::special_starts(std::string_view text) const {
  const Trie& specials = data_->special_texts;
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); ++at) {
    int32_t node = 0;
    for (size_t end = at; node != Trie::kNone; ++end) {
      if (end == text.size() || specials.value(node) != Trie::kNone) {
        starts.push_back(at);
        break;
      }
      node = specials.next(node, static_cast<unsigned char>(text[end]));
    }
  }
  return starts;
}

TokenIds Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  // Positions in a text are 32-bit numbers in the merge heap.
  if (text.size() > (size_t{1} << 30)) throw invalid("a text of {} bytes; at most 1 GiB can be encoded", text.size());
  Encoding encoding(*data_, text.size());
  encoding.encode(text, options);
  return encoding.take();
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  Detokenizer detokenizer(*this, options);
  std::string out;
  for (TokenId id : ids) detokenizer.push(id, out);
  out += detokenizer.finish();
  return out;
}

int Tokenizer::vocab_size() const { return static_cast<int>(data_->kinds.size()); }

std::string_view Tokenizer::token_text(TokenId id) const {
  return data_->contains(id) ? data_->texts[static_cast<size_t>(id)] : std::string_view();
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return data_->contains(id) ? data_->bytes[static_cast<size_t>(id)] : std::string_view();
}

std::optional<TokenId> Tokenizer::find(std::string_view text) const {
  const auto found = data_->by_text.find(text);
  return found == data_->by_text.end() ? std::nullopt : std::optional(found->second);
}

TokenKind Tokenizer::kind(TokenId id) const {
  return data_->contains(id) ? data_->kinds[static_cast<size_t>(id)] : TokenKind::kUnused;
}

bool Tokenizer::is_special(TokenId id) const { return data_->contains(id) && data_->special[static_cast<size_t>(id)]; }
bool Tokenizer::is_added(TokenId id) const { return is_special(id) || kind(id) == TokenKind::kUserDefined; }
bool Tokenizer::is_control(TokenId id) const { return kind(id) == TokenKind::kControl; }

std::optional<TokenId> Tokenizer::bos() const { return data_->bos; }
std::optional<TokenId> Tokenizer::eos() const { return data_->eos; }
std::optional<TokenId> Tokenizer::unk() const { return data_->unk; }
std::optional<TokenId> Tokenizer::pad() const { return data_->pad; }
std::optional<TokenId> Tokenizer::eot() const { return data_->eot; }
std::optional<TokenId> Tokenizer::eom() const { return data_->eom; }
const FimTokens& Tokenizer::fim() const { return data_->fim; }
bool Tokenizer::adds_bos() const {
  return data_->bos && !data_->prefix.empty() && data_->prefix.front() == *data_->bos;
}
bool Tokenizer::adds_eos() const { return data_->eos && !data_->suffix.empty() && data_->suffix.back() == *data_->eos; }

std::span<const std::string> Tokenizer::warnings() const { return data_->warnings; }
std::span<const TokenId> Tokenizer::end_of_generation() const { return data_->end_of_generation; }

}  // namespace quire

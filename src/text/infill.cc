#include "text/infill.h"

#include <algorithm>

#include "base/error.h"
#include "base/text/utf8.h"

namespace quire {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁
// Names that the format needs and requests do not have.
constexpr std::string_view kRepository = "project\n", kFile = "filename\n";

bool suffix_first(const Tokenizer& tokenizer) {
  const auto suffix = tokenizer.fim().suffix;
  return suffix && tokenizer.token_text(*suffix) == "[SUFFIX]";
}

std::vector<TokenId> tokens_of(const FimTokens& fim) {
  std::vector<TokenId> ids;
  for (const auto& id : {fim.prefix, fim.suffix, fim.middle, fim.repository, fim.file, fim.pad, fim.end}) {
    if (id) ids.push_back(*id);
  }
  return ids;
}

// Encodes texts as text, wherever they stand in a prompt.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), line_end_(encode("\n")) {
    adds_space_ = !line_end_.empty() && tokenizer.token_text(line_end_.front()).starts_with(kSpaceMark);
    for (const TokenId id : tokens_of(tokenizer.fim())) {
      // Hugging Face matches added tokens that are not special in every text.
      if (tokenizer.is_added(id) && !tokenizer.is_special(id)) spellings_.push_back(tokenizer.token_text(id));
    }
  }

  // A text of its own: SentencePiece vocabularies put a space before it.
  void append(std::string_view text, TokenIds& ids) const { append(text, adds_space_, ids); }

  // Without that space.
  void append_inside(std::string_view text, TokenIds& ids) const { append(text, false, ids); }

 private:
  // A token whose spelling is cut after its first character is not that token.
  void append(std::string_view text, bool with_space, TokenIds& ids) const {
    size_t done = 0;
    const auto append_until = [&](size_t end) {
      const std::string_view part = text.substr(done, end - done);
      const TokenIds more = with_space && done == 0 ? encode(part) : encode_inside(part);
      ids.insert(ids.end(), more.begin(), more.end());
      done = end;
    };
    for (size_t at = 0; at < text.size() && !spellings_.empty(); ++at) {
      const auto begins = [&](std::string_view spelling) { return text.substr(at).starts_with(spelling); };
      if (std::ranges::any_of(spellings_, begins)) append_until(at + utf8_length(text[at]));
    }
    if (done < text.size()) append_until(text.size());
  }

  TokenIds encode(std::string_view text) const {
    return tokenizer_.encode(text, {.add_special = false, .parse_special = false});
  }

  // A line end never merges with what follows, so the text after it is encoded as inside a text.
  TokenIds encode_inside(std::string_view text) const {
    if (!adds_space_) return encode(text);
    TokenIds ids = encode("\n" + std::string(text));
    if (!std::ranges::equal(line_end_, std::span(ids).first(std::min(line_end_.size(), ids.size())))) {
      return encode(text);
    }
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(line_end_.size()));
    return ids;
  }

  const Tokenizer& tokenizer_;
  TokenIds line_end_;
  bool adds_space_ = false;
  std::vector<std::string_view> spellings_;
};

// Qwen's form for repositories, or the names and texts as text.
void append_files(const FimTokens& fim, const TextEncoder& encoder, const std::vector<InfillFile>& files,
                  TokenIds& ids) {
  if (files.empty()) return;
  const bool marked = fim.repository && fim.file;
  if (marked) {
    ids.push_back(*fim.repository);
    encoder.append_inside(kRepository, ids);
  }
  for (const InfillFile& file : files) {
    if (marked) ids.push_back(*fim.file);
    encoder.append_inside(file.name + '\n' + file.text + (file.text.ends_with('\n') ? "" : "\n"), ids);
  }
  if (marked) {
    ids.push_back(*fim.file);
    encoder.append_inside(kFile, ids);
  }
}

}  // namespace

bool can_infill(const Tokenizer& tokenizer) {
  const FimTokens& fim = tokenizer.fim();
  return fim.prefix && fim.suffix && (fim.middle || suffix_first(tokenizer));
}

TokenIds encode_infill(const Tokenizer& tokenizer, const InfillInput& input) {
  if (!can_infill(tokenizer)) {
    throw unsupported("this model cannot fill in the middle: its vocabulary has no tokens for it");
  }
  const FimTokens& fim = tokenizer.fim();
  const TextEncoder encoder(tokenizer);
  TokenIds ids;
  if (input.add_bos && tokenizer.adds_bos()) ids.push_back(*tokenizer.bos());
  append_files(fim, encoder, input.files, ids);
  const auto add_prefix = [&] {
    ids.push_back(*fim.prefix);
    encoder.append(input.prefix, ids);
  };
  const auto add_suffix = [&] {
    ids.push_back(*fim.suffix);
    encoder.append_inside(input.suffix, ids);
  };
  if (suffix_first(tokenizer)) {
    add_suffix();
    add_prefix();
  } else {
    add_prefix();
    add_suffix();
    ids.push_back(*fim.middle);
  }
  return ids;
}

TokenIds infill_ends(const Tokenizer& tokenizer) {
  const FimTokens& fim = tokenizer.fim();
  TokenIds ids;
  for (const auto& id : {fim.repository, fim.file, fim.pad, fim.end}) {
    if (id) ids.push_back(*id);
  }
  return ids;
}

}  // namespace quire

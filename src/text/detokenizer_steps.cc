#include "text/detokenizer_steps.h"

#include <algorithm>
#include <utility>

#include "base/text/utf8.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/text_growth.h"
#include "text/tokenizer/text_replace.h"

namespace quire {
namespace {

// Of a single token, one after the other, as Hugging Face's library cleans up.
constexpr std::pair<std::string_view, std::string_view> kEnglishCleanup[] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

struct Apply {
  bool first;
  Regex::Matcher& matcher;
  bool& raw;    // bytes that need not be text
  size_t most;  // bytes of a result

  std::string operator()(const DecodeAlphabet&, const std::string& text) const {
    std::string bytes;
    if (!alphabet_to_bytes(text, bytes)) return text;
    raw = true;
    return bytes;
  }
  std::string operator()(const DecodeByteToken&, const std::string& text) const {
    const int byte = byte_token_value(text);
    if (byte < 0) return text;
    raw = true;
    return std::string(1, static_cast<char>(byte));
  }
  std::string operator()(const DecodeReplace& s, const std::string& text) const {
    return replaced(text, s.from, s.to, most);
  }
  std::string operator()(const DecodeReplaceRegex& s, const std::string& text) const {
    return replaced(text, s.from, matcher, s.to, most);
  }
  std::string operator()(const DecodeStrip& s, const std::string& text) const {
    std::string character;
    append_utf8(s.character, character);
    std::string_view rest = text;
    for (int i = 0; i < s.left && rest.starts_with(character); ++i) rest.remove_prefix(character.size());
    for (int i = 0; i < s.right && rest.ends_with(character); ++i) rest.remove_suffix(character.size());
    return std::string(rest);
  }
  std::string operator()(const DecodeMetaspace& s, const std::string& text) const {
    return replaced(text, s.replacement, first && s.drop_in_first ? "" : " ", most);
  }
  std::string operator()(const DecodeWordPiece& s, const std::string& text) const {
    std::string out = text;
    if (!first) out = text.starts_with(s.prefix) ? text.substr(s.prefix.size()) : " " + text;
    if (!s.cleanup) return out;
    for (const auto& [from, to] : kEnglishCleanup) out = replaced(out, from, to, most);
    return out;
  }
  std::string operator()(const DecodeJoinBySpaces&, const std::string& text) const { return first ? text : " " + text; }
};

}  // namespace

std::string DecodeRules::bytes_of(std::string_view spelling, bool first, Regex::Matcher& matcher) const {
  std::string text(spelling);
  bool raw = false;
  for (const DecodeStep& step : steps) {
    if (raw) break;
    text = std::visit(
        [&](const auto& s) {
          return Apply{first, matcher, raw, longest_result(spelling.size())}(s, text);
        },
        step);
  }
  return text;
}

bool DecodeRules::first_differs() const {
  return std::any_of(steps.begin(), steps.end(), [](const DecodeStep& step) {
    const auto* metaspace = std::get_if<DecodeMetaspace>(&step);
    return std::holds_alternative<DecodeJoinBySpaces>(step) || std::holds_alternative<DecodeWordPiece>(step) ||
           (metaspace && metaspace->drop_in_first);
  });
}

}  // namespace quire

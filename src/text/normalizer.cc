#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/unicode.h"
#include "base/text/unicode_8.h"
#include "base/text/utf8.h"
#include "text/chars_map.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/text_growth.h"
#include "text/tokenizer/text_replace.h"

namespace quire {
namespace {

// Texts of characters below this one are unchanged by the form.
char32_t first_to_change(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfc:
      return 0x300;
    case UnicodeForm::kNfkc:
      return 0xA0;
    case UnicodeForm::kNfd:
      return 0xC0;
    case UnicodeForm::kNfkd:
      return 0xA0;
  }
  return 0;
}

bool is_unchanged(std::string_view text, char32_t limit) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
    } else if (utf8_next(text, at) >= limit) {
      return false;
    }
  }
  return true;
}

constexpr int kLongestDecomposition = 32;  // the longest one in Unicode has 18 characters

// How many characters `parts` received; negative: the character cannot be decomposed.
utf8proc_ssize_t decompose(utf8proc_int32_t c, int options, utf8proc_int32_t (&parts)[kLongestDecomposition]) {
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(c, parts, kLongestDecomposition, static_cast<utf8proc_option_t>(options), &boundary);
  return count > kLongestDecomposition ? -1 : count;
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Canonical ordering sorts each run of combining marks by class. utf8proc's own sort takes quadratic time.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  for (size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i), text.begin() + static_cast<ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

std::string to_utf8(const std::vector<utf8proc_int32_t>& text, size_t reserve) {
  std::string out;
  out.reserve(reserve);
  for (utf8proc_int32_t c : text) append_utf8(static_cast<char32_t>(c), out);
  return out;
}

template <class Fn>  // fn(character, out)
std::string map_characters(std::string_view text, Fn fn) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) fn(utf8_next(text, at), out);
  return out;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

char32_t to_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

char32_t first_of_decomposition(char32_t c) {
  if (c < first_to_change(UnicodeForm::kNfd)) return c;
  utf8proc_int32_t parts[kLongestDecomposition];
  return decompose(static_cast<utf8proc_int32_t>(c), UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, parts) > 0
             ? static_cast<char32_t>(parts[0])
             : c;
}

std::string strip_space(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    if (is_white_space(utf8_next(text, at))) continue;
    if (!inside) begin = here;
    inside = true;
    end = at;
  }
  if (!inside) return left || right ? std::string() : std::string(text);
  if (!left) begin = 0;
  if (!right) end = text.size();
  return std::string(text.substr(begin, end - begin));
}

struct Step {
  Regex::Matcher& matcher;
  size_t most;  // bytes of a result

  std::string operator()(const NormalizeForm& s, std::string_view text) const { return normalize_form(text, s.form); }
  std::string operator()(const Prepend& s, std::string_view text) const {
    return text.empty() ? std::string() : s.text + std::string(text);
  }
  std::string operator()(const ReplaceText& s, std::string_view text) const {
    return replaced(text, s.from, s.to, most);
  }
  std::string operator()(const ReplaceRegex& s, std::string_view text) const {
    return replaced(text, s.from, matcher, s.to, most);
  }
  std::string operator()(const Lowercase&, std::string_view text) const { return lowercase(text); }
  std::string operator()(const StripSpace& s, std::string_view text) const {
    return strip_space(text, s.left, s.right);
  }
  std::string operator()(const StripAccents&, std::string_view text) const {
    return map_characters(text, [](char32_t c, std::string& out) {
      if (!is_mark(c)) append_utf8(c, out);
    });
  }
  std::string operator()(const Nmt&, std::string_view text) const {
    return map_characters(text, [](char32_t c, std::string& out) {
      if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                         c == 0xFFFD;
      append_utf8(space ? U' ' : c, out);
    });
  }
  std::string operator()(const BertClean& s, std::string_view text) const {
    std::string out(text);
    if (s.clean_text) {
      out = map_characters(out, [](char32_t c, std::string& to) {
        const bool blank = c == '\t' || c == '\n' || c == '\r';
        if (c == 0 || c == 0xFFFD || (!blank && is_unicode_8_control(c))) return;
        append_utf8(is_white_space(c) ? U' ' : c, to);
      });
    }
    if (s.handle_chinese_chars) {
      out = map_characters(out, [](char32_t c, std::string& to) {
        if (!is_chinese(c)) return append_utf8(c, to);
        to += ' ';
        append_utf8(c, to);
        to += ' ';
      });
    }
    if (s.strip_accents) {
      out = map_characters(normalize_form(out, UnicodeForm::kNfd), [](char32_t c, std::string& to) {
        if (!is_unicode_8_accent(c)) append_utf8(c, to);
      });
    }
    return s.lowercase ? lowercase(out) : out;
  }
  std::string operator()(const BertCleanGguf& s, std::string_view text) const {
    return map_characters(text, [&](char32_t original, std::string& out) {
      const char32_t c = s.strip_accents ? first_of_decomposition(original) : original;
      if (is_white_space(c)) {
        out += ' ';
      } else if (c != 0xFFFD && !is_control(c) && !(s.strip_accents && is_mark(c))) {
        const bool alone = is_chinese(c);
        if (alone) out += ' ';
        append_utf8(s.lowercase ? to_lower(c) : c, out);
        if (alone) out += ' ';
      }
    });
  }
  std::string operator()(const NormalizeToAlphabet&, std::string_view text) const { return bytes_to_alphabet(text); }
  std::string operator()(const Precompiled& s, std::string_view text) const { return s.map->apply_graphemes(text); }
  std::string operator()(const UnigramSpaces& s, std::string_view text) const {
    const std::string mapped = s.map ? s.map->apply_prefixes(text) : std::string(text);
    std::string out;
    bool in_word = false, prepended = false;
    for (char c : mapped) {
      if (c == ' ') {
        in_word = false;
        if (!s.merge_spaces) out += "\xE2\x96\x81";
        continue;
      }
      if (!in_word && ((s.prepend_space && !prepended) || s.merge_spaces)) {
        out += "\xE2\x96\x81";
        prepended = true;
      }
      in_word = true;
      out += c;
    }
    return out;
  }
};

}  // namespace

std::string normalize_form(std::string_view text, UnicodeForm form) {
  if (is_unchanged(text, first_to_change(form))) return std::string(text);
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(utf8_next(text, at));
    utf8proc_int32_t parts[kLongestDecomposition];
    const utf8proc_ssize_t count = decompose(c, options, parts);
    if (count < 0) {
      out.push_back(c);
    } else {
      out.insert(out.end(), parts, parts + count);
    }
  }
  order_marks(out);
  if (compose) {
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(out.data(), static_cast<utf8proc_ssize_t>(out.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count >= 0) out.resize(static_cast<size_t>(count));
  }
  return to_utf8(out, text.size());
}

std::string lowercase(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if (c < 0x80) {
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (c == 0x130) {
      out += "i\xCC\x87";  // İ is the only character whose lower case has two
    } else {
      append_utf8(to_lower(c), out);
    }
  });
}

std::string Normalizer::apply(std::string_view text, Regex::Matcher& matcher) const {
  std::string out(text);
  const size_t most = longest_result(text.size());
  for (const NormalizerStep& step : steps) {
    out = std::visit([&](const auto& s) { return Step{matcher, most}(s, out); }, step);
    append_within(out, "", most);
  }
  return out;
}

}  // namespace quire

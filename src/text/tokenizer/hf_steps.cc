#include "text/tokenizer/hf_steps.h"

#include <iterator>

#include "base/error.h"
#include "base/text/unicode.h"
#include "base/text/unicode_8.h"
#include "base/text/utf8.h"
#include "text/chars_map.h"
#include "text/tokenizer/hf_component.h"

namespace quire {
namespace {

char32_t read_character(const JsonField& field) {
  const std::string& text = field.string();
  size_t at = 0;
  const char32_t c = text.empty() ? 0 : utf8_next(text, at);
  if (text.empty() || at != text.size()) throw field.error("expected one character, found {}", describe(field.json()));
  return c;
}

void check_count(const JsonField& field, size_t count) {
  constexpr size_t kMostSteps = 256;
  if (count > kMostSteps) throw unsupported("{}: more than {} steps", field.where(), kMostSteps);
}

// {"String": …} or {"Regex": …}: which, and the text.
struct Pattern {
  bool is_regex;
  std::string text;
  std::string where;
};
Pattern read_pattern(const JsonField& field) {
  if (field.json().is_string()) return {false, field.string(), field.where()};  // a single character
  if (field.has("String")) {
    const std::string& text = field.at("String").string();
    return {text.empty(), text, field.where()};  // an empty text is read as a pattern, which matches everywhere
  }
  if (field.has("Regex")) return {true, field.at("Regex").string(), field.where()};
  throw field.error("has neither \"String\" nor \"Regex\"");
}

void read_normalizer(const JsonField& field, std::vector<NormalizerStep>& steps) {
  const std::string& type = component_type(field);
  if (type == "NFC") {
    steps.emplace_back(NormalizeForm{UnicodeForm::kNfc});
  } else if (type == "NFD") {
    steps.emplace_back(NormalizeForm{UnicodeForm::kNfd});
  } else if (type == "NFKC") {
    steps.emplace_back(NormalizeForm{UnicodeForm::kNfkc});
  } else if (type == "NFKD") {
    steps.emplace_back(NormalizeForm{UnicodeForm::kNfkd});
  } else if (type == "Prepend") {
    steps.emplace_back(Prepend{field.at("prepend").string()});
  } else if (type == "Replace") {
    const Pattern from = read_pattern(field.at("pattern"));
    const std::string& to = field.at("content").string();
    if (from.is_regex)
      steps.emplace_back(ReplaceRegex{Regex(from.text, from.where), to});
    else
      steps.emplace_back(ReplaceText{from.text, to});
  } else if (type == "Lowercase") {
    steps.emplace_back(Lowercase{});
  } else if (type == "Strip") {
    steps.emplace_back(StripSpace{field.at("strip_left").boolean(), field.at("strip_right").boolean()});
  } else if (type == "StripAccents") {
    steps.emplace_back(StripAccents{});
  } else if (type == "Nmt") {
    steps.emplace_back(Nmt{});
  } else if (type == "BertNormalizer") {
    const bool lower = field.get_or<bool>("lowercase", true);
    steps.emplace_back(BertClean{field.get_or<bool>("clean_text", true),
                                 field.get_or<bool>("handle_chinese_chars", true),
                                 field.get_or<bool>("strip_accents", lower), lower});
  } else if (type == "ByteLevel") {
    steps.emplace_back(NormalizeToAlphabet{});
  } else if (type == "Precompiled") {
    const JsonField map = field.at("precompiled_charsmap");
    steps.emplace_back(Precompiled{std::make_shared<const CharsMap>(decode_base64(map), map.where())});
  } else {
    throw unsupported("{}: the normalizer \"{}\" is not supported", field.where(), type);
  }
}

SplitBehavior read_behavior(const JsonField& field) {
  const std::string& name = field.string();
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw field.error("unknown behavior \"{}\"", name);
}

struct MetaspaceFields {
  std::string replacement;
  Metaspace::Prepend prepend;
};
MetaspaceFields read_metaspace(const JsonField& field) {
  MetaspaceFields result{{}, Metaspace::Prepend::kAlways};
  append_utf8(read_character(field.at("replacement")), result.replacement);
  if (field.has("prepend_scheme")) {
    const std::string& scheme = field.at("prepend_scheme").string();
    if (scheme == "first")
      result.prepend = Metaspace::Prepend::kFirst;
    else if (scheme == "never")
      result.prepend = Metaspace::Prepend::kNever;
    else if (scheme != "always")
      throw field.error("unknown prepend_scheme \"{}\"", scheme);
  }
  if (!field.get_or<bool>("add_prefix_space", true))
    result.prepend = Metaspace::Prepend::kNever;  // the older name of prepend_scheme
  return result;
}

void read_pretokenizer(const JsonField& field, std::vector<PreTokenizerStep>& steps) {
  const std::string& type = component_type(field);
  if (type == "Split") {
    const Pattern pattern = read_pattern(field.at("pattern"));
    const SplitBehavior behavior = read_behavior(field.at("behavior"));
    const bool invert = field.get_or<bool>("invert", false);
    if (pattern.is_regex) {
      steps.emplace_back(
          SplitByRegex{.regex = Regex(pattern.text, pattern.where), .behavior = behavior, .invert = invert});
    } else {
      steps.emplace_back(SplitByText{pattern.text, behavior, invert});
    }
  } else if (type == "ByteLevel") {
    if (field.get_or<bool>("add_prefix_space", true)) steps.emplace_back(AddPrefixSpace{});
    if (field.get_or<bool>("use_regex", true))
      steps.emplace_back(SplitByRegex{.regex = Regex(kGpt2Pattern, "ByteLevel")});
    steps.emplace_back(ToAlphabet{});
  } else if (type == "Digits") {
    const bool each = field.get_or<bool>("individual_digits", false);
    steps.emplace_back(SplitByClass{is_numeric, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    steps.emplace_back(SplitByClass{is_unicode_8_punctuation, field.has("behavior")
                                                                  ? read_behavior(field.at("behavior"))
                                                                  : SplitBehavior::kIsolated});
  } else if (type == "Whitespace") {
    steps.emplace_back(SplitWords{});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(SplitByClass{is_white_space, SplitBehavior::kRemoved});
  } else if (type == "BertPreTokenizer") {
    steps.emplace_back(SplitByClass{is_white_space, SplitBehavior::kRemoved});
    steps.emplace_back(SplitByClass{is_unicode_8_punctuation, SplitBehavior::kIsolated});
  } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
    std::string delimiter;
    append_utf8(read_character(field.at("delimiter")), delimiter);
    steps.emplace_back(SplitByText{delimiter, SplitBehavior::kRemoved});
  } else if (type == "FixedLength") {
    steps.emplace_back(
        SplitByLength{static_cast<size_t>(field.has("length") ? field.at("length").integer(1, int64_t{1} << 30) : 5)});
  } else if (type == "Metaspace") {
    const MetaspaceFields m = read_metaspace(field);
    steps.emplace_back(Metaspace{m.replacement, m.prepend, field.get_or<bool>("split", true)});
  } else {
    throw unsupported("{}: the pre-tokenizer \"{}\" is not supported", field.where(), type);
  }
}

}  // namespace

std::string decode_base64(const JsonField& field) {
  const auto value = [](char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (char c : field.string()) {
    if (c == '=') break;
    const int v = value(c);
    if (v < 0) throw field.error("not base64");
    bits = (bits << 6) | static_cast<uint32_t>(v);
    if ((count += 6) >= 8) out.push_back(static_cast<char>((bits >> (count -= 8)) & 0xFF));
  }
  return out;
}

Normalizer read_hf_normalizer(const JsonField& field) {
  Normalizer result;
  for_each_component(field, "normalizers", [&](const JsonField& f) {
    read_normalizer(f, result.steps);
    check_count(f, result.steps.size());
  });
  return result;
}

PreTokenizer read_hf_pretokenizer(const JsonField& field) {
  PreTokenizer result;
  for_each_component(field, "pretokenizers", [&](const JsonField& f) {
    read_pretokenizer(f, result.steps);
    check_count(f, result.steps.size());
  });
  return result;
}

DecodeRules read_hf_decoder(const JsonField& field) {
  DecodeRules rules;
  bool fused = false;  // the following steps see the whole text as one piece
  for_each_component(field, "decoders", [&](const JsonField& f) {
    check_count(f, rules.steps.size());
    const std::string& type = component_type(f);
    if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip") {
      const char32_t character = read_character(f.at("content"));
      const int left = static_cast<int>(f.at("start").integer(0, 1 << 20));
      const int right = static_cast<int>(f.at("stop").integer(0, 1 << 20));
      if (!fused) {
        rules.steps.emplace_back(DecodeStrip{character, left, right});
      } else if (right > 0 || rules.strip_count > 0) {
        throw unsupported("{}: cannot strip the end of the whole text while streaming", f.where());
      } else {
        rules.strip_character = character;
        rules.strip_count = left;
      }
    } else if (fused) {
      throw unsupported("{}: the decoder \"{}\" after Fuse is not supported", f.where(), type);
    } else if (type == "ByteLevel") {
      rules.steps.emplace_back(DecodeAlphabet{});
      fused = true;
    } else if (type == "ByteFallback") {
      rules.steps.emplace_back(DecodeByteToken{});
    } else if (type == "Replace") {
      const Pattern from = read_pattern(f.at("pattern"));
      const std::string& to = f.at("content").string();
      if (from.is_regex)
        rules.steps.emplace_back(DecodeReplaceRegex{Regex(from.text, from.where), to});
      else
        rules.steps.emplace_back(DecodeReplace{from.text, to});
    } else if (type == "WordPiece") {
      rules.steps.emplace_back(
          DecodeWordPiece{f.has("prefix") ? f.at("prefix").string() : "##", f.get_or<bool>("cleanup", true)});
    } else if (type == "Metaspace") {
      const MetaspaceFields m = read_metaspace(f);
      rules.steps.emplace_back(DecodeMetaspace{m.replacement, m.prepend != Metaspace::Prepend::kNever});
    } else {
      throw unsupported("{}: the decoder \"{}\" is not supported", f.where(), type);
    }
  });
  return rules;
}

}  // namespace quire

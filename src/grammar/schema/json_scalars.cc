// null, booleans, numbers and strings: sets of schemas to regexes.
#include <algorithm>
#include <cmath>

#include "base/text/quote.h"
#include "grammar/regex_syntax.h"
#include "grammar/schema/json_formats.h"
#include "grammar/schema/schema_compiler.h"

namespace quire::grammar {

unsigned SchemaCompiler::type_named(const Json& schema, const Json& name) {
  static constexpr std::pair<const char*, unsigned> kTypes[] = {
      {"null", kNull},     {"boolean", kBoolean}, {"integer", kInteger}, {"number", kInteger | kFractional},
      {"string", kString}, {"array", kArray},     {"object", kObject},   {kFraction, kFractional}};
  for (const auto& [type, bits] : kTypes) {
    if (name.is_string() && name == type) return bits;
  }
  throw document_.invalid_at(
      schema, "type", "{} is not a type; use null, boolean, integer, number, string, array or object", describe(name));
}

unsigned SchemaCompiler::types_of(const Bases& bases) {
  unsigned types = kNull | kBoolean | kInteger | kFractional | kString | kArray | kObject;
  for (const Json* base : bases) {
    const Json* named = find(*base, "type");
    if (named == nullptr) continue;
    unsigned here = 0;
    if (named->is_array()) {
      for (const Json& name : *named) here |= type_named(*base, name);
    } else {
      here = type_named(*base, *named);
    }
    types &= here;
  }
  return types;
}

RegexId SchemaCompiler::scalars(const Bases& bases, unsigned types) {
  constexpr int kPlain = 21;  // digits of the largest numbers that are usually written without an exponent
  const auto values_of = [](const Json& base, const char* keyword) {
    return std::string_view(keyword) == "const" ? Json::array({base[keyword]}) : base[keyword];
  };
  std::optional<Json> allowed;
  Json excluded = Json::array();
  const auto has = [](const Json& values, const Json& value) {
    return std::ranges::find(values, value) != values.end();
  };
  for (const Json* base : bases) {
    for (const char* keyword : {"enum", "const"}) {
      if (!base->contains(keyword)) continue;
      const Json values = values_of(*base, keyword);
      if (!allowed) {
        allowed = values;
        continue;
      }
      Json both = Json::array();
      for (const Json& value : *allowed) {
        if (has(values, value)) both.push_back(value);
      }
      allowed = std::move(both);
    }
    if (base->contains(kNotEnum)) {
      for (const Json& value : (*base)[kNotEnum]) excluded.push_back(value);
    }
  }
  bool numbers_constrained = false, strings_constrained = false;
  RegexId number = (types & (kInteger | kFractional)) != 0 ? numbers(bases, types, numbers_constrained) : kNothing;
  RegexId content = (types & kString) != 0 ? string_content(bases, strings_constrained) : kNothing;
  std::vector<RegexId> made;
  if (allowed) {
    std::vector<std::string> texts;
    for (const Json& value : *allowed) {
      if (has(excluded, value)) continue;
      if ((value.is_null() && (types & kNull) != 0) || (value.is_boolean() && (types & kBoolean) != 0)) {
        texts.push_back(value.dump());
      } else if (value.is_number()) {
        const Decimal number_of = Decimal::of(value);
        const bool digits_only = texts_ == Texts::kToWrite && ((types & kFractional) == 0 || number_of.point <= kPlain);
        const RegexId literal = number_literal(s_, number_of, digits_only);
        if (!s_.is_empty(s_.all_of({number, literal}))) made.push_back(literal);
      } else if (value.is_string() && content != kNothing) {
        const std::string text = value.dump();
        if (strings_constrained && !s_.matches(content, std::string_view(text).substr(1, text.size() - 2))) continue;
        const bool ascii = std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7F; });
        if (ascii) {
          texts.push_back(text);
        } else {
          made.push_back(key_literal(value.get_ref<const std::string&>()));
        }
      }
    }
    if (!texts.empty()) made.push_back(s_.one_of(std::move(texts)));
    return s_.any_of(std::move(made));
  }
  std::vector<RegexId> not_numbers, not_strings;
  for (const Json& value : excluded) {
    if (value.is_number()) {
      const Bound bound{Decimal::of(value)};
      not_numbers.push_back(number_between(s_, {bound}, {bound}));
      not_numbers.push_back(number_literal(s_, bound.value, false));
    } else if (value.is_string()) {
      not_strings.push_back(encoder_.literal(value.get_ref<const std::string&>(), Encoding::kJson));
    }
  }
  if (!not_numbers.empty()) {
    std::vector<RegexId> both{number, number_between(s_, {}, {})};
    both.push_back(s_.negate(s_.any_of(std::move(not_numbers))));
    number = s_.all_of(std::move(both));
  }
  if (!not_strings.empty() && content != kNothing)
    content = s_.all_of({content, s_.negate(s_.any_of(std::move(not_strings)))});
  if ((types & kNull) != 0 && !has(excluded, nullptr)) made.push_back(s_.literal("null"));
  if ((types & kBoolean) != 0 && !has(excluded, true)) made.push_back(s_.literal("true"));
  if ((types & kBoolean) != 0 && !has(excluded, false)) made.push_back(s_.literal("false"));
  made.push_back(number);
  made.push_back(s_.concat({s_.literal("\""), content, s_.literal("\"")}));
  return s_.any_of(std::move(made));
}

RegexId SchemaCompiler::numbers(const Bases& bases, unsigned types, bool& constrained) {
  std::vector<Bound> at_least, at_most;
  std::vector<RegexId> all;
  bool integral = (types & kFractional) == 0;
  for (const Json* base : bases) {
    const auto number = [&](const char* keyword) -> const Json* {
      const Json* value = find(*base, keyword);
      if (value != nullptr && !value->is_number())
        throw document_.invalid_at(*base, keyword, "expected a number, found {}", describe(*value));
      return value;
    };
    // Draft 4: a boolean that makes the other bound strict.
    const auto strict = [&](const char* keyword) {
      const Json* value = find(*base, keyword);
      return value != nullptr && value->is_boolean() && value->get<bool>();
    };
    const auto flag = [&](const char* keyword) {
      const Json* value = find(*base, keyword);
      return value != nullptr && value->is_boolean();
    };
    if (const Json* bound = number("minimum")) at_least.push_back({Decimal::of(*bound), strict("exclusiveMinimum")});
    if (const Json* bound = number("maximum")) at_most.push_back({Decimal::of(*bound), strict("exclusiveMaximum")});
    if (!flag("exclusiveMinimum")) {
      if (const Json* bound = number("exclusiveMinimum")) at_least.push_back({Decimal::of(*bound), true});
    }
    if (!flag("exclusiveMaximum")) {
      if (const Json* bound = number("exclusiveMaximum")) at_most.push_back({Decimal::of(*bound), true});
    }
    if (const Json* divisor = number("multipleOf")) {
      const Decimal value = Decimal::of(*divisor);
      if (value.negative || value.is_zero())
        throw document_.invalid_at(*base, "multipleOf", "must be above 0, not {}", describe(*divisor));
      const std::optional<RegexId> multiple = multiple_of(s_, value);
      if (!multiple) throw document_.unsupported_at(*base, "multipleOf", "{} has too many digits", describe(*divisor));
      all.push_back(*multiple);
      integral = integral || value.is_integer();
    }
  }
  constrained =
      !at_least.empty() || !at_most.empty() || !all.empty() || (types & kFractional) == 0 || (types & kInteger) == 0;
  const bool bounded = !at_least.empty() || !at_most.empty();
  if (bounded || (types & (kInteger | kFractional)) == (kInteger | kFractional))
    all.push_back(number_between(s_, at_least, at_most));
  if ((types & kFractional) == 0) all.push_back(integer_syntax(s_));
  if (integral && texts_ == Texts::kToWrite) all.push_back(integer_digits(s_));
  if ((types & kInteger) == 0) {
    const RegexId digits = s_.repeat(s_.range('0', '9'), 0, kUnbounded), sign = s_.optional(s_.literal("-"));
    const RegexId whole = s_.any_of({s_.literal("0"), s_.concat(s_.range('1', '9'), digits)});
    const RegexId some = s_.concat({s_.literal("."), digits, s_.range('1', '9'), digits});
    const RegexId small =
        s_.concat({s_.range('1', '9'), s_.optional(s_.concat({s_.literal("."), s_.range('0', '9'), digits})),
                   s_.any_of({s_.literal("e-"), s_.literal("E-")}), s_.optional(s_.literal("0")), s_.range('1', '9'),
                   s_.repeat(s_.range('0', '9'), 0, 2)});
    all.push_back(s_.concat(sign, s_.any_of({s_.concat(whole, some), small})));
  }
  return s_.all_of(std::move(all));
}

uint32_t SchemaCompiler::count_of(const Json& schema, const char* keyword, uint32_t otherwise) {
  constexpr uint32_t kMost = 1'000'000'000;
  const Json* value = find(schema, keyword);
  if (value == nullptr) return otherwise;
  double count = -1;
  if (value->is_number()) count = value->get<double>();
  if (count < 0 || std::floor(count) != count)
    throw document_.invalid_at(schema, keyword, "expected an integer of at least 0, found {}", describe(*value));
  return count > kMost ? kMost : static_cast<uint32_t>(count);
}

SchemaCompiler::Counts SchemaCompiler::counts_of(const Bases& bases, const char* least, const char* most) {
  Counts counts;
  for (const Json* base : bases) {
    counts.least = std::max(counts.least, count_of(*base, least, 0));
    counts.most = std::min(counts.most, count_of(*base, most, kUnbounded));
  }
  return counts;
}

RegexId SchemaCompiler::pattern_regex(const Json& schema, std::string_view keyword, std::string_view pattern) {
  const auto found = patterns_.find(pattern);
  if (found != patterns_.end()) return found->second;
  const std::string where = fmt::format("schema: {} at {}", keyword, document_.where(schema));
  const RegexId made = parse_regex(pattern, Anchoring::kAnywhere, Encoding::kJson, encoder_, s_, where, limits_.depth);
  patterns_.emplace(pattern, made);
  return made;
}

RegexId SchemaCompiler::string_content(const Bases& bases, bool& constrained) {
  std::vector<RegexId> all;
  for (const Json* base : bases) {
    const auto string = [&](const char* keyword) -> const std::string* {
      const Json* value = find(*base, keyword);
      if (value == nullptr) return nullptr;
      if (!value->is_string())
        throw document_.invalid_at(*base, keyword, "expected a string, found {}", describe(*value));
      return &value->get_ref<const std::string&>();
    };
    if (const std::string* pattern = string("pattern")) all.push_back(pattern_regex(*base, "pattern", *pattern));
    if (const std::string* pattern = string(kNotPattern)) {
      all.push_back(text_);
      all.push_back(s_.negate(pattern_regex(*base, "pattern", *pattern)));
    }
    if (const std::string* format = string("format")) {
      if (is_refused_format(*format))
        throw document_.unsupported_at(*base, "format", "{} is not supported", quote(*format));
      const std::string expression = format_pattern(*format);
      if (expression.empty()) continue;  // an annotation
      if (std::ranges::none_of(bases, [](const Json* other) { return other->contains("type"); }))
        throw document_.unsupported_at(*base, "format", "{} is enforced only next to \"type\": \"string\"",
                                       quote(*format));
      const std::string where = fmt::format("schema: format at {}", document_.where(*base));
      all.push_back(parse_regex(expression, Anchoring::kWhole, Encoding::kJson, encoder_, s_, where, limits_.depth));
    }
  }
  const Counts counts = counts_of(bases, "minLength", "maxLength");
  constrained = !all.empty() || counts.least > 0 || counts.most != kUnbounded;
  if (counts.least > counts.most) return kNothing;
  if (all.empty() || counts.least > 0 || counts.most != kUnbounded)
    all.push_back(s_.repeat(character_, counts.least, counts.most));
  return s_.all_of(std::move(all));
}

}  // namespace quire::grammar

// Filters of single values and texts; sequence_filters.cc has those of whole sequences.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "jinja/builtins/params.h"
#include "jinja/builtins/tables.h"
#include "jinja/builtins/text_ops.h"
#include "jinja/value/format.h"
#include "jinja/value/print.h"
#include "jinja/value/unicode.h"
#include "json/parse.h"

namespace quire::jinja {
namespace {

Value text(Evaluator& e, std::string s) { return make_text(e.meter, std::move(s)); }

// str(v), metered for one pass over its characters.
std::string soft(Evaluator& e, const Value& v) {
  std::string s = text_of(e.meter, v);
  e.meter.step(s.size() / 8);
  return s;
}

template <std::string (*kMap)(std::string_view)>
Value map_filter(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "filter", {});
  return text(e, kMap(soft(e, v)));
}

Value trim(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "trim", {"chars"});
  const std::string_view chars = p.has(0) ? std::string_view(p.text(0)) : std::string_view();
  const std::string s = soft(e, v);
  e.meter.step(chars.size());
  return make_text(e.meter, std::string(strip(s, p.has(0) ? &chars : nullptr, true, true)),
                   v.text() != nullptr && v.text()->markup);
}

Value string_filter(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "string", {});
  return v.text() != nullptr ? v : text(e, text_of(e.meter, v));
}

Value safe(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "safe", {});
  return make_text(e.meter, text_of(e.meter, v), true);
}

Value escape(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "escape", {});
  if (v.text() != nullptr && v.text()->markup) return v;
  return arithmetic(e, Op::kAdd, make_text(e.meter, "", true), text(e, text_of(e.meter, v)));
}

Value length(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "length", {});
  if (v.text() != nullptr) e.meter.step(v.text()->bytes.size() / 16);
  const int64_t n = length_of(v);
  if (n < 0) throw invalid("object of type '{}' has no len()", type_name(v));
  return Int{n};
}

Value default_filter(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "default", {"default_value", "boolean"});
  if (!v.is_undefined() && !(p.flag(1, false) && !is_true(v))) return v;
  return p[0] != nullptr ? *p[0] : text(e, "");
}

Value replace(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "replace", {"old", "new", "count"}, 2);
  const Int count = p.has(2) ? p.integer(2, -1) : -1;
  return text(e, replaced(e.meter, text_of(e.meter, v), text_of(e.meter, *p[0]), text_of(e.meter, *p[1]), count));
}

Value indent(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "indent", {"width", "first", "blank"});
  if (v.text() == nullptr) throw invalid("indent requires a str, not {}", type_name(v));
  e.meter.step(v.text()->bytes.size() / 8);
  const Int width = p[0] != nullptr && p[0]->text() == nullptr ? p.integer(0, 4) : 4;
  if (width > 1000) throw invalid("indent: the width exceeds 1000");
  const std::string by = p[0] != nullptr && p[0]->text() != nullptr
                             ? p.text(0)
                             : std::string(static_cast<size_t>(std::max(width, Int{0})), ' ');
  const bool blank = p.flag(2, false);
  const std::string whole = v.text()->bytes + "\n";
  std::string out;
  Charge charge(e.meter, 0);
  bool first = true;
  for (const std::string_view line : split_lines(whole, false)) {
    charge.grow(line.size() + by.size() + 1);
    if (!first) out += "\n";
    if (first ? p.flag(1, false) : blank || !line.empty()) out += by;
    out += line;
    first = false;
  }
  return text(e, std::move(out));
}

Value tojson(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = p.flag(0, false);
  style.sorted = p.flag(3, false);
  if (p.has(1)) {
    style.multiline = true;
    style.comma.assign(1, ',');
    if (p[1]->text() != nullptr)
      style.indent = p.text(1);
    else
      style.indent.assign(static_cast<size_t>(std::clamp(p.integer(1, 0), Int{0}, Int{100})), ' ');
  }
  if (p.has(2)) {
    const Values both = iterate(e.meter, *p[2]);
    if (both.size() != 2 || both[0].text() == nullptr || both[1].text() == nullptr)
      throw invalid("tojson: separators must be two strings");
    style.comma = both[0].text()->bytes;
    style.colon = both[1].text()->bytes;
  }
  return text(e, to_json(e.meter, v, style));
}

std::string stripped_number(std::string_view s) {
  std::string out(strip(s, nullptr, true, true));
  if (out.find("__") == std::string::npos && !out.empty() && out.front() != '_' && out.back() != '_')
    std::erase(out, '_');
  return out;
}

std::optional<double> float_in(std::string_view text) {
  std::string s = stripped_number(text);
  if (!s.empty() && s[0] == '+' && s.size() > 1 && s[1] != '-') s.erase(0, 1);
  double d = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), d);
  if (s.empty() || end != s.data() + s.size() || error == std::errc::invalid_argument ||
      s.find("nan(") != std::string::npos)
    return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::nullopt;
  return d;
}

std::optional<Int> int_in(std::string_view text, Int base) {
  std::string s = to_lower(stripped_number(text));
  const bool negative = !s.empty() && s[0] == '-';
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.erase(0, 1);
  for (const auto& [prefix, b] : {std::pair<std::string_view, Int>{"0x", 16}, {"0o", 8}, {"0b", 2}}) {
    if ((base != b && base != 0) || !s.starts_with(prefix)) continue;
    s.erase(0, 2);
    base = b;
  }
  if (base == 0) base = 10;
  if (s.empty() || base < 2 || base > 36) return std::nullopt;
  Int value = 0;
  for (const char c : s) {
    const Int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
      throw invalid("the integer is too large");
  }
  return negative ? -value : value;
}

Value int_filter(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "int", {"default", "base"});
  const Value fallback = p[0] != nullptr ? *p[0] : Value(Int{0});
  if (v.is_int()) return v.to_int();
  std::optional<double> d;
  if (v.is<double>()) d = v.as<double>();
  if (v.text() != nullptr) {
    e.meter.step(v.text()->bytes.size() / 8);
    if (const auto i = int_in(v.text()->bytes, p.integer(1, 10))) return *i;
    d = float_in(v.text()->bytes);
  }
  if (v.is_undefined()) fail_undefined(v);
  if (!d || !std::isfinite(*d)) return fallback;
  if (std::fabs(*d) > 1e38) throw invalid("the integer is too large");
  return static_cast<Int>(*d);
}

Value float_filter(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "float", {"default"});
  if (v.is_number()) return v.to_double();
  if (v.is_undefined()) fail_undefined(v);
  if (v.text() != nullptr) {
    e.meter.step(v.text()->bytes.size() / 8);
    if (const auto d = float_in(v.text()->bytes)) return *d;
  }
  return p[0] != nullptr ? *p[0] : Value(0.0);
}

Value abs_filter(Evaluator&, const Value& v, const Args& args) {
  const Params p(args, "abs", {});
  if (v.is<double>()) return std::fabs(v.as<double>());
  if (!v.is_int()) throw invalid("bad operand type for abs(): '{}'", type_name(v));
  return v.to_int() < 0 ? negated(v, true) : Value(v.to_int());
}

Value round_filter(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "round", {"precision", "method"});
  const std::string method = p[1] != nullptr ? p.text(1) : "common";
  if (!v.is_number()) throw invalid("round requires a number, not {}", type_name(v));
  const Int precision = std::clamp(p.integer(0, 0), Int{-300}, Int{300});
  if (method == "common") {
    if (v.is_int() && precision >= 0) return v.to_int();
    const double d = v.to_double();
    if (precision < 0) {
      const double scale = std::pow(10.0, static_cast<double>(-precision));
      const double rounded = std::nearbyint(d / scale) * scale;
      if (v.is_int() && std::fabs(rounded) > 1e38) throw invalid("the integer is too large");
      return v.is_int() ? Value(static_cast<Int>(rounded)) : Value(rounded);
    }
    if (!std::isfinite(d)) return d;
    e.meter.step(static_cast<size_t>(precision));
    const std::string digits =
        fmt::format("{:.{}f}", d, static_cast<int>(precision));  // rounds as Python does: exactly
    double out = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return out;
  }
  if (method != "ceil" && method != "floor") throw invalid("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(v.to_double() * scale) : std::floor(v.to_double() * scale)) / scale;
}

Value wordcount(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "wordcount", {});
  const std::string s = soft(e, v);
  Int n = 0;
  bool inside = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_decode(s, at);
    const bool word = c == '_' || is_letter(c) || is_digit(c);
    n += word && !inside ? 1 : 0;
    inside = word;
  }
  return n;
}

// Words start after white space, hyphens and opening brackets: 'foo-bar' becomes 'Foo-Bar', "it's" becomes "It's".
std::string title_words(std::string_view s) {
  std::string out;
  bool start = true;
  for (size_t at = 0; at < s.size();) {
    const size_t from = at;
    const char32_t c = utf8_decode(s, at);
    out += start ? to_upper(s.substr(from, at - from)) : to_lower(s.substr(from, at - from));
    start = is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  }
  return out;
}

Value center(Evaluator& e, const Value& v, const Args& args) {
  return text(e, justified(soft(e, v), Params(args, "center", {"width"}).integer(0, 80), " ", '^'));
}

Value format(Evaluator& e, const Value& v, const Args& args) {
  if (!args.positional.empty() && !args.named.empty())
    throw invalid("can't handle positional and keyword arguments at the same time");
  if (args.named.empty()) return percent_format(e, text_of(e.meter, v), make_tuple(e.meter, args.positional));
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [name, value] : args.named) items.emplace_back(text(e, name), value);
  return percent_format(e, text_of(e.meter, v), make_dict(e.meter, std::move(items)));
}

Value truncate(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "truncate", {"length", "killwords", "end", "leeway"});
  const Int length = p.integer(0, 255), leeway = p.has(3) ? p.integer(3, 5) : 5;
  const std::string end = p.has(2) ? p.text(2) : "...";
  const std::string s = soft(e, v);
  if (length < static_cast<Int>(char_count(end)) || leeway < 0)
    throw invalid("truncate: expected length >= {} and leeway >= 0", char_count(end));
  if (static_cast<Int>(char_count(s)) <= length + leeway) return v;
  std::string cut = s.substr(0, byte_of_char(s, static_cast<size_t>(length) - char_count(end)));
  if (!p.flag(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return text(e, cut + end);
}

Value attr(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "attr", {"name"}, 1);
  p.text(0);
  if (v.is_undefined()) fail_undefined(v);
  if (v.dict() != nullptr) {  // methods only, not items
    const auto method = find_method(e, v, p.text(0));
    return method ? *method : make_undefined(fmt::format("'dict object' has no attribute '{}'", p.text(0)));
  }
  return e.attribute(v, *p[0]);
}

Value urlencode(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "urlencode", {});
  if (v.dict() != nullptr || v.sequence() != nullptr)
    throw unsupported("urlencode of a {} is not supported", type_name(v));
  std::string out;
  for (const char c : soft(e, v)) {
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain)
      out.push_back(c);
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text(e, std::move(out));
}

Value from_json_filter(Evaluator& e, const Value& v, const Args& args) {
  const Params p(args, "from_json", {});
  if (v.text() == nullptr) throw invalid("from_json requires a str, not {}", type_name(v));
  e.meter.step(v.text()->bytes.size());
  const Charge charge(e.meter, 16 * v.text()->bytes.size());
  return from_json(e.meter, parse_json(v.text()->bytes, "from_json"));
}

}  // namespace

const FilterTable& value_filters() {
  static const FilterTable kTable = {
      {"abs", abs_filter},
      {"attr", attr},
      {"capitalize", map_filter<capitalized>},
      {"center", center},
      {"count", length},
      {"d", default_filter},
      {"default", default_filter},
      {"e", escape},
      {"escape", escape},
      {"float", float_filter},
      {"format", format},
      {"from_json", from_json_filter},
      {"indent", indent},
      {"int", int_filter},
      {"length", length},
      {"lower", map_filter<to_lower>},
      {"replace", replace},
      {"round", round_filter},
      {"safe", safe},
      {"string", string_filter},
      {"title", map_filter<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", map_filter<to_upper>},
      {"urlencode", urlencode},
      {"wordcount", wordcount},
  };
  return kTable;
}

Filter find_filter(std::string_view name) {
  for (const FilterTable* table : {&value_filters(), &sequence_filters()})
    if (const auto it = table->find(name); it != table->end()) return it->second;
  return nullptr;
}

}  // namespace quire::jinja

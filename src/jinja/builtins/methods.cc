// Methods of texts, and finding the method of any value.
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/text/text_search.h"
#include "jinja/builtins/params.h"
#include "jinja/builtins/tables.h"
#include "jinja/builtins/text_ops.h"
#include "jinja/eval.h"
#include "jinja/loop.h"
#include "jinja/value/format.h"
#include "jinja/value/print.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

const std::string& str(const Value& self) { return self.text()->bytes; }

Value text_of_self(Evaluator& e, const Value& self, std::string s) {
  return make_text(e.meter, std::move(s), self.text()->markup);
}

Value texts(Evaluator& e, const std::vector<std::string_view>& parts) {
  const Charge charge(e.meter, parts.size() * sizeof(Value));
  Values out;
  out.reserve(parts.size());
  for (const std::string_view part : parts) out.push_back(make_text(e.meter, std::string(part)));
  return make_sequence(e.meter, std::move(out));
}

template <bool kLeft, bool kRight>
Value strip_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "strip", {"chars"});
  const std::string_view chars = p.has(0) ? std::string_view(p.text(0)) : std::string_view();
  e.meter.step(str(self).size() / 16 + chars.size());
  return text_of_self(e, self, std::string(strip(str(self), p.has(0) ? &chars : nullptr, kLeft, kRight)));
}

template <bool kRight>
Value split_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "split", {"sep", "maxsplit"});
  return texts(e, split(e.meter, str(self), p.has(0) ? &p.text(0) : nullptr, p.integer(1, -1), kRight));
}

template <bool kRight>
Value partition_method(Evaluator& e, const Value& self, const Args& args) {
  const std::string& separator = Params(args, "partition", {"sep"}, 1).text(0);
  if (separator.empty()) throw invalid("empty separator");
  const std::string& s = str(self);
  e.meter.step((s.size() + separator.size()) / 16);
  const size_t hit = kRight ? rfind_text(s, separator) : find_text(s, separator);
  const bool found = hit != std::string::npos;
  const std::string before = found ? s.substr(0, hit) : kRight ? "" : s;
  const std::string after = found ? s.substr(hit + separator.size()) : kRight ? s : "";
  Values parts;
  for (const std::string& part : {before, found ? separator : std::string(), after})
    parts.push_back(make_text(e.meter, part));
  return make_tuple(e.meter, std::move(parts));
}

// s[start:end] for the arguments 1 and 2, and its start in characters.
std::pair<std::string_view, Int> part_of(Evaluator& e, const Value& self, const Params& p) {
  const std::string_view s = str(self);
  e.meter.step(s.size() / 16);
  if (!p.has(1) && !p.has(2)) return {s, 0};
  const Int n = static_cast<Int>(char_count(s));
  const auto placed = [&](Int i) { return std::clamp(i < 0 ? i + n : i, Int{0}, n); };
  const Int start = placed(p.has(1) ? p.integer(1, 0) : 0), end = placed(p.has(2) ? p.integer(2, 0) : n);
  const size_t from = byte_of_char(s, static_cast<size_t>(start));
  return {s.substr(from, byte_of_char(s.substr(from), static_cast<size_t>(std::max(end - start, Int{0})))), start};
}

template <bool kStart>
Value affix_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, kStart ? "startswith" : "endswith", {"affix", "start", "end"}, 1);
  const std::string_view s = part_of(e, self, p).first;
  const auto fits = [&](const Value& v) {
    if (v.text() == nullptr)
      throw invalid("{} first arg must be str or a tuple of str, not {}", kStart ? "startswith" : "endswith",
                    type_name(v));
    return kStart ? s.starts_with(v.text()->bytes) : s.ends_with(v.text()->bytes);
  };
  const Sequence* choices = p[0]->sequence();
  if (choices == nullptr || choices->kind != SequenceKind::kTuple) return fits(*p[0]);
  return std::any_of(choices->items.begin(), choices->items.end(), fits);
}

template <bool kRight, bool kMustExist>
Value find_method_of_text(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "find", {"sub", "start", "end"}, 1);
  const auto [s, start] = part_of(e, self, p);
  e.meter.step(p.text(0).size() / 16);
  const size_t hit = kRight ? rfind_text(s, p.text(0)) : find_text(s, p.text(0));
  if (hit != std::string_view::npos) return start + static_cast<Int>(char_count(s.substr(0, hit)));
  if (kMustExist) throw invalid("substring not found");
  return Int{-1};
}

Value count_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "count", {"sub", "start", "end"}, 1);
  const std::string_view s = part_of(e, self, p).first;
  const std::string& sub = p.text(0);
  if (sub.empty()) return static_cast<Int>(char_count(s)) + 1;
  e.meter.step(sub.size() / 16);
  Int n = 0;
  for (size_t at = 0; (at = find_text(s, sub, at)) != std::string_view::npos; at += sub.size()) ++n;
  return n;
}

Value replace_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "replace", {"old", "new", "count"}, 2);
  return text_of_self(e, self, replaced(e.meter, str(self), p.text(0), p.text(1), p.integer(2, -1)));
}

Value join_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "join", {"iterable"}, 1);
  std::string out;
  Charge charge(e.meter, 0);
  bool first = true;
  for (const Value& item : iterate(e.meter, *p[0])) {
    if (item.text() == nullptr) throw invalid("sequence item: expected str instance, {} found", type_name(item));
    if (!first) out += str(self);
    first = false;
    charge.grow(str(self).size() + item.text()->bytes.size());
    out += item.text()->bytes;
  }
  return make_text(e.meter, std::move(out));
}

template <std::string (*kMap)(std::string_view)>
Value map_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "method", {});
  e.meter.step(str(self).size() / 8);
  return text_of_self(e, self, kMap(str(self)));
}

std::string swap_case(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_decode(s, at);
    out += is_upper(c) ? to_lower(s.substr(start, at - start)) : to_upper(s.substr(start, at - start));
  }
  return out;
}

template <char kAlign>
Value justify_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "justify", {"width", "fillchar"}, 1);
  e.meter.step(str(self).size() / 16);
  return text_of_self(e, self, justified(str(self), p.integer(0, 0), p.has(1) ? p.text(1) : " ", kAlign));
}

Value zfill_method(Evaluator& e, const Value& self, const Args& args) {
  const std::string& s = str(self);
  const Int width = Params(args, "zfill", {"width"}, 1).integer(0, 0);
  const bool has_sign = !s.empty() && (s[0] == '-' || s[0] == '+');
  const std::string digits =
      justified(s.substr(has_sign ? 1 : 0), std::max(width, Int{1}) - (has_sign ? 1 : 0), "0", '>');
  return text_of_self(e, self, (has_sign ? s.substr(0, 1) : "") + digits);
}

// True if the text is not empty and every character is in the class.
template <bool (*kIs)(char32_t)>
Value class_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "method", {});
  const std::string& s = str(self);
  e.meter.step(s.size() / 8);
  for (size_t at = 0; at < s.size();)
    if (!kIs(utf8_decode(s, at))) return false;
  return !s.empty();
}

template <bool (*kIs)(char32_t), bool (*kIsNot)(char32_t)>
Value case_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "method", {});
  const std::string& s = str(self);
  e.meter.step(s.size() / 8);
  bool any = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_decode(s, at);
    if (kIsNot(c)) return false;
    any |= kIs(c);
  }
  return any;
}

bool is_alnum(char32_t c) { return is_letter(c) || is_digit(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

Value isascii_method(Evaluator& e, const Value& self, const Args& args) {
  return str(self).empty() || class_method<is_ascii>(e, self, args).as<bool>();
}

Value isidentifier_method(Evaluator& e, const Value& self, const Args&) {
  const std::string& s = str(self);
  e.meter.step(s.size() / 8);
  for (size_t at = 0, i = 0; at < s.size(); ++i) {
    const char32_t c = utf8_decode(s, at);
    if (c != '_' && !is_letter(c) && (i == 0 || !is_digit(c))) return false;
  }
  return !s.empty();
}

template <bool kPrefix>
Value remove_method(Evaluator& e, const Value& self, const Args& args) {
  const std::string& affix = Params(args, "remove", {"affix"}, 1).text(0);
  std::string_view s = str(self);
  if (kPrefix && s.starts_with(affix)) s.remove_prefix(affix.size());
  if (!kPrefix && s.ends_with(affix)) s.remove_suffix(affix.size());
  return text_of_self(e, self, std::string(s));
}

Value splitlines_method(Evaluator& e, const Value& self, const Args& args) {
  const Params p(args, "splitlines", {"keepends"});
  e.meter.step(str(self).size() / 8);
  return texts(e, split_lines(str(self), p.flag(0, false)));
}

Value format_method(Evaluator& e, const Value& self, const Args& args) { return brace_format(e, str(self), args); }

Value expandtabs_method(Evaluator& e, const Value& self, const Args& args) {
  const Int size = std::clamp(Params(args, "expandtabs", {"tabsize"}).integer(0, 8), Int{0}, Int{1000});
  std::string out;
  Int column = 0;
  for (size_t at = 0; at < str(self).size();) {
    const char32_t c = utf8_decode(str(self), at);
    if (c == '\t') {
      const Int spaces = size == 0 ? 0 : size - column % size;
      e.meter.step(static_cast<size_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      append_utf8(c, out);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return text_of_self(e, self, std::move(out));
}

const MethodTable& text_methods() {
  static const MethodTable kTable = {
      {"strip", strip_method<true, true>},
      {"lstrip", strip_method<true, false>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"splitlines", splitlines_method},
      {"partition", partition_method<false>},
      {"rpartition", partition_method<true>},
      {"startswith", affix_method<true>},
      {"endswith", affix_method<false>},
      {"find", find_method_of_text<false, false>},
      {"rfind", find_method_of_text<true, false>},
      {"index", find_method_of_text<false, true>},
      {"rindex", find_method_of_text<true, true>},
      {"count", count_method},
      {"replace", replace_method},
      {"join", join_method},
      {"format", format_method},
      {"upper", map_method<to_upper>},
      {"lower", map_method<to_lower>},
      {"title", map_method<to_title>},
      {"capitalize", map_method<capitalized>},
      {"casefold", map_method<to_folded>},
      {"swapcase", map_method<swap_case>},
      {"ljust", justify_method<'<'>},
      {"rjust", justify_method<'>'>},
      {"center", justify_method<'^'>},
      {"zfill", zfill_method},
      {"isalpha", class_method<is_letter>},
      {"isdigit", class_method<is_digit>},
      {"isdecimal", class_method<is_digit>},
      {"isnumeric", class_method<is_digit>},
      {"isalnum", class_method<is_alnum>},
      {"isspace", class_method<is_space>},
      {"isascii", isascii_method},
      {"isprintable", class_method<is_printable>},
      {"isidentifier", isidentifier_method},
      {"isupper", case_method<is_upper, is_lower>},
      {"islower", case_method<is_lower, is_upper>},
      {"removeprefix", remove_method<true>},
      {"removesuffix", remove_method<false>},
      {"expandtabs", expandtabs_method},
  };
  return kTable;
}

const MethodTable* methods_of(const Value& v) {
  if (v.text() != nullptr) return &text_methods();
  if (v.dict() != nullptr) return &dict_methods();
  if (v.sequence() != nullptr && v.sequence()->kind == SequenceKind::kList) return &list_methods();
  if (v.sequence() != nullptr && v.sequence()->kind <= SequenceKind::kRange) return &tuple_methods();
  return v.is<double>() ? &float_methods() : nullptr;
}

}  // namespace

std::optional<Value> find_method(Evaluator& evaluator, const Value& self, std::string_view name) {
  if (self.is<Ref<Namespace>>()) {
    for (const auto& [key, value] : self.as<Ref<Namespace>>()->attributes)
      if (key == name) return value;
    return std::nullopt;
  }
  if (self.is<Ref<LoopState>>()) {
    const Ref<LoopState>& loop = self.as<Ref<LoopState>>();
    return loop->attribute(evaluator, name, loop);
  }
  if (self.is<Ref<const Callable>>() && self.as<Ref<const Callable>>()->is_macro && name == "name")
    return make_text(evaluator.meter, self.as<Ref<const Callable>>()->name);
  const MethodTable* table = methods_of(self);
  if (table == nullptr) return std::nullopt;
  const auto it = table->find(name);
  if (it == table->end()) return std::nullopt;
  if (it->second == &forbidden_method)
    return make_undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(self)));
  const Method method = it->second;
  return make_callable(
      evaluator.meter, std::string(name),
      [method, self](Evaluator& e, const Args& args) { return method(e, self, args); }, &self);
}

}  // namespace quire::jinja

#include "jinja/value/format.h"

#include <algorithm>
#include <cmath>

#include "jinja/value/print.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

constexpr size_t kMaxWidth = 10'000, kMaxPrecision = 500;

// How one value is formatted. Python knows more: other alignments, fills, signs and types are refused.
struct Spec {
  char align = 0;  // < > ^; 0: text left, numbers right
  bool zeros = false, commas = false;
  size_t width = 0;
  int precision = -1;
  char type = 0;  // s r d x f %; 0: by the value's type
};

[[noreturn]] void refuse(std::string_view format) {
  throw unsupported("the format '{}' is not supported; use s, r, d, x, f or % with a width and precision", format);
}

size_t number_in(std::string_view s, size_t& at, size_t limit) {
  size_t n = 0;
  while (at < s.size() && s[at] >= '0' && s[at] <= '9') {
    n = n * 10 + static_cast<size_t>(s[at++] - '0');
    if (n > limit) throw invalid("a width or precision above {} in a format", limit);
  }
  return n;
}

// The digits of a number, without its sign.
std::string digits_of(const Value& v, const Spec& spec) {
  if (!v.is_number()) throw invalid("the format '{}' requires a number, not {}", spec.type, type_name(v));
  const bool as_int = spec.type == 'd' || (spec.type == 0 && v.is_int());
  std::string out;
  if (spec.type == 'x' || as_int) {
    if (!v.is_int() && (spec.type == 'x' || !(std::fabs(v.to_double()) < 1e30)))
      throw invalid("the format '{}' requires an integer, not {}", spec.type, type_name(v));
    const Int i = v.is_int() ? v.to_int() : static_cast<Int>(v.to_double());
    const Int magnitude = i < 0 ? negated(i, true).to_int() : i;
    out = spec.type == 'x' ? fmt::format("{:x}", magnitude) : fmt::format("{}", magnitude);
  } else if (spec.type == 0) {
    if (spec.precision >= 0) refuse("a precision without a type");
    out = float_repr(std::fabs(v.to_double()));
  } else {
    const double scale = spec.type == '%' ? 100 : 1;
    out = fmt::format("{:.{}f}", std::fabs(v.to_double()) * scale, spec.precision < 0 ? 6 : spec.precision);
  }
  if (spec.commas) {
    for (size_t end = std::min(out.find_first_of(".e"), out.size()); end > 3;) out.insert(end -= 3, ",");
  }
  return spec.type == '%' ? out + '%' : out;
}

std::string formatted(const Value& v, const Spec& spec, Meter& meter) {
  std::string sign, body;
  const bool is_text = spec.type == 's' || spec.type == 'r' || (spec.type == 0 && (!v.is_number() || v.is<bool>()));
  if (is_text) {
    spec.type == 'r' ? print_repr(meter, v, body) : print(meter, v, body);
    if (spec.precision >= 0) body.resize(byte_of_char(body, static_cast<size_t>(spec.precision)));
  } else {
    body = digits_of(v, spec);
    sign = (v.is_int() ? v.to_int() < 0 : std::signbit(v.to_double())) ? "-" : "";
    meter.step(body.size() / 4);
  }
  const size_t length = char_count(body) + sign.size(), missing = spec.width > length ? spec.width - length : 0;
  if (spec.zeros && !is_text) return sign + std::string(missing, '0') + body;
  const char align = spec.align != 0 ? spec.align : is_text ? '<' : '>';
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  return std::string(left, ' ') + sign + body + std::string(missing - left, ' ');
}

// [<>^][0][width][,][.precision][type]
Spec brace_spec(std::string_view s) {
  Spec spec;
  size_t at = 0;
  const auto take = [&](char c) { return at < s.size() && s[at] == c && (++at, true); };
  if (!s.empty() && std::string_view("<>^").find(s[0]) != s.npos) spec.align = s[at++];
  spec.zeros = take('0');
  spec.width = number_in(s, at, kMaxWidth);
  spec.commas = take(',');
  if (take('.')) spec.precision = static_cast<int>(number_in(s, at, kMaxPrecision));
  if (at < s.size() && std::string_view("sdxf%").find(s[at]) != s.npos) spec.type = s[at++];
  if (at != s.size()) refuse(s);
  return spec;
}

// The argument of a field: {}, {0} or {name}.
const Value& argument(const Args& args, std::string_view name, size_t& next) {
  if (name.find_first_not_of("0123456789") == name.npos) {
    size_t at = 0;
    const size_t i = name.empty() ? next++ : number_in(name, at, 100'000);
    if (i >= args.positional.size()) throw invalid("Replacement index {} out of range for positional args tuple", i);
    return args.positional[i];
  }
  for (const auto& [key, value] : args.named)
    if (key == name) return value;
  if (name.find_first_of(".[!") != name.npos)
    throw unsupported("the field '{{{}}}' is not supported in a format", name);
  throw invalid("'{}'", name);
}

}  // namespace

Value percent_format(Evaluator& e, std::string_view format, const Value& values) {
  e.meter.step(format.size() / 16);
  const Sequence* tuple =
      values.sequence() != nullptr && values.sequence()->kind == SequenceKind::kTuple ? values.sequence() : nullptr;
  size_t next = 0;
  const auto take = [&]() -> const Value& {
    if (tuple == nullptr && next++ == 0) return values;
    if (tuple != nullptr && next < tuple->items.size()) return tuple->items[next++];
    throw invalid("not enough arguments for format string");
  };
  std::string out;
  Charge charge(e.meter, 0);
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      const size_t end = std::min(format.find('%', at), format.size());
      out.append(format.substr(at, end - at));
      at = end;
      continue;
    }
    const size_t begin = at++;
    const Value* named = nullptr;
    if (at < format.size() && format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == std::string_view::npos) throw invalid("incomplete format key");
      if (values.dict() == nullptr) throw invalid("format requires a mapping");
      named = values.dict()->find(format.substr(at + 1, end - at - 1));
      if (named == nullptr) throw invalid("'{}'", format.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    Spec spec{.align = '>'};
    for (; at < format.size() && (format[at] == '-' || format[at] == '0'); ++at) {
      if (format[at] == '-') spec.align = '<';
      spec.zeros |= format[at] == '0';
    }
    spec.zeros = spec.zeros && spec.align == '>';
    spec.width = number_in(format, at, kMaxWidth);
    if (at < format.size() && format[at] == '.')
      spec.precision = static_cast<int>(number_in(format, ++at, kMaxPrecision));
    if (at >= format.size()) throw invalid("incomplete format");
    spec.type = format[at] == 'i' ? 'd' : format[at];
    ++at;
    if (spec.type == '%') {
      out.push_back('%');
      continue;
    }
    if (std::string_view("srdxf").find(spec.type) == std::string_view::npos) refuse(format.substr(begin, at - begin));
    const std::string text = formatted(named != nullptr ? *named : take(), spec, e.meter);
    charge.grow(text.size());
    out += text;
  }
  const bool all_used = tuple != nullptr ? next == tuple->items.size() : next > 0 || values.dict() != nullptr;
  if (!all_used) throw invalid("not all arguments converted during string formatting");
  return make_text(e.meter, std::move(out));
}

Value brace_format(Evaluator& e, std::string_view format, const Args& args) {
  e.meter.step(format.size() / 16);
  std::string out;
  Charge charge(e.meter, 0);
  size_t next = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out.push_back(c);
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out.push_back(c);
      ++at;
      continue;
    }
    if (c == '}') throw invalid("Single '}}' encountered in format string");
    const size_t end = format.find('}', at);
    if (end == std::string_view::npos) throw invalid("expected '}}' before end of string");
    const std::string_view field = format.substr(at + 1, end - at - 1);
    const size_t colon = std::min(field.find(':'), field.size());
    const Spec spec = brace_spec(colon < field.size() ? field.substr(colon + 1) : "");
    const std::string text = formatted(argument(args, field.substr(0, colon), next), spec, e.meter);
    charge.grow(text.size());
    out += text;
    at = end;
  }
  return make_text(e.meter, std::move(out));
}

}  // namespace quire::jinja

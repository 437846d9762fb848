#include "jinja/format.h"

#include <algorithm>
#include <cmath>

#include "jinja/print.h"
#include "jinja/unicode.h"

namespace quire::jinja {
namespace {

constexpr size_t kMaxWidth = 10'000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =; 0: by the value's type
  char sign = '-';
  bool alternate = false, commas = false;
  size_t width = 0;
  int precision = -1;
  char type = 0;
};

size_t number_in(std::string_view s, size_t& at, size_t limit) {
  size_t n = 0;
  while (at < s.size() && s[at] >= '0' && s[at] <= '9') {
    n = n * 10 + static_cast<size_t>(s[at++] - '0');
    if (n > limit) throw invalid("a width or precision above {} in a format", limit);
  }
  return n;
}

std::string in_base(Int value, unsigned base, bool upper) {
  std::string out;
  const std::string_view digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  for (Int rest = value; rest > 0; rest /= base) {
    const auto digit = static_cast<unsigned>(rest % base);
    out.push_back(digits[digit]);
  }
  std::reverse(out.begin(), out.end());
  return out.empty() ? "0" : out;
}

void add_commas(std::string& digits) {
  size_t end = std::min(digits.find_first_of(".e"), digits.size());
  while (end > 3) digits.insert(end -= 3, ",");
}

// The number without its sign.
std::string magnitude(const Value& v, const Spec& spec) {
  const char type = spec.type;
  if (type == 'x' || type == 'X' || type == 'o' || type == 'b') {
    if (!v.is_int()) throw invalid("format code '{}' needs an integer, not {}", type, type_name(v));
    const Int i = v.to_int() < 0 ? negated(v, true).to_int() : v.to_int();
    const unsigned base = type == 'o' ? 8 : type == 'b' ? 2 : 16;
    return (spec.alternate ? std::string("0") + type : "") + in_base(i, base, type == 'X');
  }
  std::string out;
  if (type == 0 && v.is<double>() && spec.precision < 0) {
    out = float_repr(std::fabs(v.as<double>()));
  } else if (type == 'd' || type == 'i' || type == 'u' || (type == 0 && v.is_int())) {
    const Int i = v.is_int()
                      ? v.to_int()
                      : static_cast<Int>(std::isnan(v.as<double>()) ? 0 : std::clamp(v.as<double>(), -1e30, 1e30));
    out = fmt::format("{}", i < 0 ? negated(i, true).to_int() : i);
    if (spec.precision > static_cast<int>(out.size()))
      out.insert(0, static_cast<size_t>(spec.precision) - out.size(), '0');
  } else {
    const double d = std::fabs(v.to_double()) * (type == '%' ? 100 : 1);
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    switch (type) {
      case 'f':
      case 'F':
      case '%':
        out = fmt::format("{:.{}f}", d, precision);
        break;
      case 'e':
        out = fmt::format("{:.{}e}", d, precision);
        break;
      case 'E':
        out = fmt::format("{:.{}E}", d, precision);
        break;
      case 0:
      case 'g':
        out = fmt::format("{:.{}g}", d, std::max(precision, 1));
        break;
      case 'G':
        out = fmt::format("{:.{}G}", d, std::max(precision, 1));
        break;
      default:
        throw invalid("unknown format code '{}' for {}", type, type_name(v));
    }
    if (type == '%') out += "%";
  }
  if (spec.commas) add_commas(out);
  return out;
}

std::string padded(const Value& v, const Spec& spec, Meter& meter) {
  std::string sign, body;
  const bool as_text = spec.type == 's' || spec.type == 'r' || spec.type == 'a' || (spec.type == 0 && !v.is_number()) ||
                       (spec.type == 0 && v.is<bool>());
  if (as_text) {
    if (spec.type == 'r' || spec.type == 'a')
      print_repr(meter, v, body);
    else
      print(meter, v, body);
    if (spec.precision >= 0) body.resize(byte_of_char(body, static_cast<size_t>(spec.precision)));
  } else if (spec.type == 'c') {
    if (v.text() != nullptr)
      body = v.text()->bytes;
    else if (v.is_int() && v.to_int() >= 0 && v.to_int() < 0xD800)
      append_utf8(body, static_cast<char32_t>(v.to_int()));
    else
      throw invalid("%c requires a character");
  } else {
    if (!v.is_number()) throw invalid("format code '{}' needs a number, not {}", spec.type, type_name(v));
    const bool negative = v.is_int() ? v.to_int() < 0 : std::signbit(v.as<double>());
    sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    body = magnitude(v, spec);
    meter.step(body.size() / 4);
  }
  const size_t length = char_count(body) + sign.size();
  if (length >= spec.width) return sign + body;
  const size_t missing = spec.width - length;
  const char align = spec.align != 0 ? spec.align : as_text ? '<' : '>';
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (size_t i = 0; i < left; ++i) before += spec.fill;
  for (size_t i = left; i < missing; ++i) after += spec.fill;
  return align == '=' ? sign + before + body + after : before + sign + body + after;
}

// [[fill]align][sign][#][0][width][,][.precision][type]
Spec brace_spec(std::string_view s) {
  Spec spec;
  size_t at = 0;
  if (!s.empty()) {
    size_t next = 0;
    decode_at(s, next);
    const auto is_align = [&](size_t i) {
      return i < s.size() && std::string_view("<>^=").find(s[i]) != std::string_view::npos;
    };
    if (is_align(next)) {
      spec.fill = s.substr(0, next);
      spec.align = s[next];
      at = next + 1;
    } else if (is_align(0)) {
      spec.align = s[at++];
    }
  }
  const auto take = [&](char c) { return at < s.size() && s[at] == c && (++at, true); };
  if (take('+'))
    spec.sign = '+';
  else if (take(' '))
    spec.sign = ' ';
  else
    take('-');
  spec.alternate = take('#');
  if (take('0') && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = number_in(s, at, kMaxWidth);
  spec.commas = take(',');
  if (take('.')) spec.precision = static_cast<int>(number_in(s, at, 500));
  if (at < s.size()) spec.type = s[at++];
  if (at != s.size()) throw invalid("invalid format specifier '{}'", s);
  return spec;
}

class BraceFormat {
 public:
  BraceFormat(Evaluator& e, const Args& args) : e_(e), args_(args) {}

  // The value of a field such as 0, name, name.attribute, name[key].
  Value field(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value v = argument(path.substr(0, end));
    size_t at = end;
    while (at < path.size()) {
      const bool bracket = path[at] == '[';
      const size_t stop = bracket ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      if (stop == std::string_view::npos) throw invalid("expected ']' in a format field");
      const std::string key(path.substr(at + 1, stop - at - 1));
      const bool is_number =
          bracket && !key.empty() && key.find_first_not_of("0123456789") == std::string::npos && key.size() < 10;
      v = is_number ? e_.subscript(v, Int{std::stol(key)})
          : bracket ? e_.subscript(v, make_text(e_.meter, key))
                    : e_.attribute(v, make_text(e_.meter, key));
      at = bracket ? stop + 1 : stop;
    }
    return v;
  }

 private:
  Value argument(std::string_view name) {
    if (name.empty() || name.find_first_not_of("0123456789") == std::string_view::npos) {
      size_t at = 0;
      const size_t i = name.empty() ? next_++ : number_in(name, at, 100'000);
      if (i >= args_.positional.size()) throw invalid("Replacement index {} out of range for positional args tuple", i);
      return args_.positional[i];
    }
    for (const auto& [key, value] : args_.named)
      if (key == name) return value;
    throw invalid("'{}'", name);
  }

  Evaluator& e_;
  const Args& args_;
  size_t next_ = 0;
};

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
    ++at;
    const Value* named = nullptr;
    if (at < format.size() && format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == std::string_view::npos) throw invalid("incomplete format key");
      if (values.dict() == nullptr) throw invalid("format requires a mapping");
      named = values.dict()->find(format.substr(at + 1, end - at - 1));
      if (named == nullptr) throw invalid("'{}'", format.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    Spec spec;
    spec.align = '>';
    bool left = false;
    for (; at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos; ++at) {
      left |= format[at] == '-';
      if (format[at] == '+' || (format[at] == ' ' && spec.sign == '-')) spec.sign = format[at];
      spec.alternate |= format[at] == '#';
      if (format[at] == '0') spec.fill = "0", spec.align = '=';
    }
    if (left) spec.fill = " ", spec.align = '<';
    spec.width = number_in(format, at, kMaxWidth);
    if (at < format.size() && format[at] == '.') spec.precision = static_cast<int>(number_in(format, ++at, 500));
    if (at >= format.size()) throw invalid("incomplete format");
    spec.type = format[at++];
    if (spec.type == '%') {
      out.push_back('%');
      continue;
    }
    if (std::string_view("sradiuxXofFeEgGc").find(spec.type) == std::string_view::npos)
      throw invalid("unsupported format character '{}'", spec.type);
    if (spec.fill == "0" && std::string_view("srac").find(spec.type) != std::string_view::npos)
      spec.fill = " ", spec.align = '>';
    const std::string text = padded(named != nullptr ? *named : take(), spec, e.meter);
    charge.grow(text.size());
    out += text;
  }
  const bool all_used = tuple != nullptr ? next == tuple->items.size() : next > 0 || values.dict() != nullptr;
  if (!all_used) throw invalid("not all arguments converted during string formatting");
  return make_text(e.meter, std::move(out));
}

Value brace_format(Evaluator& e, std::string_view format, const Args& args) {
  e.meter.step(format.size() / 16);
  BraceFormat fields(e, args);
  std::string out;
  Charge charge(e.meter, 0);
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
    std::string_view field = format.substr(at + 1, end - at - 1);
    if (field.find('{') != std::string_view::npos) throw unsupported("a field within a format field");
    const size_t colon = std::min(field.find(':'), field.size());
    Spec spec = brace_spec(colon < field.size() ? field.substr(colon + 1) : "");
    field = field.substr(0, colon);
    const size_t bang = field.find('!');
    Value v = fields.field(field.substr(0, bang));
    if (bang != std::string_view::npos) {
      std::string text;
      if (field.substr(bang) == "!r")
        print_repr(e.meter, v, text);
      else if (field.substr(bang) == "!s")
        print(e.meter, v, text);
      else
        throw invalid("unknown conversion '{}' in a format field", field.substr(bang));
      v = make_text(e.meter, std::move(text));
    }
    const std::string text = padded(v, spec, e.meter);
    charge.grow(text.size());
    out += text;
    at = end;
  }
  return make_text(e.meter, std::move(out));
}

}  // namespace quire::jinja

#include "jinja/value/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

void quote_repr(std::string_view s, std::string& out) {
  const char quote = s.find('\'') != std::string_view::npos && s.find('"') == std::string_view::npos ? '"' : '\'';
  out.push_back(quote);
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_decode(s, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      append_utf8(c, out);
    } else {
      const auto code = static_cast<uint32_t>(c);
      out += c < 0x100     ? fmt::format("\\x{:02x}", code)
             : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                           : fmt::format("\\U{:08x}", code);
    }
  }
  out.push_back(quote);
}

class ReprWriter {
 public:
  ReprWriter(Meter& meter, std::string& out) : meter_(meter), charge_(meter, 0), out_(out) {}

  void write(const Value& v) {
    meter_.step();
    const size_t before = out_.size();
    if (const Text* t = v.text()) {
      meter_.step(t->bytes.size() / 8);
      charge_.grow(t->bytes.size());
      if (t->markup) out_ += "Markup(";
      quote_repr(t->bytes, out_);
      if (t->markup) out_ += ")";
    } else if (const Sequence* s = v.sequence()) {
      sequence(*s);
    } else if (const Dict* d = v.dict()) {
      dict(*d);
    } else if (v.is<Ref<Namespace>>()) {
      ns(*v.as<Ref<Namespace>>());
    } else {
      scalar(v);
      charge_.grow(out_.size() - before);
    }
  }

 private:
  void scalar(const Value& v) {
    if (v.is_undefined())
      out_ += "Undefined";
    else if (v.is_none())
      out_ += "None";
    else if (v.is<bool>())
      out_ += v.as<bool>() ? "True" : "False";
    else if (v.is<Int>())
      out_ += fmt::format("{}", v.as<Int>());
    else if (v.is<double>())
      out_ += float_repr(v.as<double>());
    else if (v.is<Ref<const Callable>>())
      out_ += fmt::format("<{} '{}'>", type_name(v), v.as<Ref<const Callable>>()->name);
    else
      out_ += fmt::format("<{} object>", type_name(v));
  }

  void sequence(const Sequence& s) {
    if (s.kind == SequenceKind::kRange) {
      range(s);
      return;
    }
    static constexpr std::string_view kOpen[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
    static constexpr std::string_view kClose[] = {"]", ")", "", "])", "])", "])"};
    out_ += kOpen[static_cast<size_t>(s.kind)];
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(s.items[i]);
    }
    if (s.kind == SequenceKind::kTuple && s.items.size() == 1) out_ += ",";
    out_ += kClose[static_cast<size_t>(s.kind)];
  }

  void range(const Sequence& s) {
    const Int first = s.items.empty() ? 0 : s.items.front().to_int();
    const Int step = s.items.size() < 2 ? 1 : s.items[1].to_int() - first;
    const Int stop = s.items.empty() ? 0 : s.items.back().to_int() + (step > 0 ? 1 : -1);
    out_ += step == 1 ? fmt::format("range({}, {})", first, stop) : fmt::format("range({}, {}, {})", first, stop, step);
  }

  void dict(const Dict& d) {
    out_ += "{";
    for (size_t i = 0; i < d.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(d.items[i].first);
      out_ += ": ";
      write(d.items[i].second);
    }
    out_ += "}";
  }

  void ns(const Namespace& n) {
    if (++namespaces_ > 20) throw invalid("a namespace that contains itself cannot be printed");
    out_ += "<Namespace {";
    for (size_t i = 0; i < n.attributes.size(); ++i) {
      out_ += i > 0 ? ", " : "";
      quote_repr(n.attributes[i].first, out_);
      out_ += ": ";
      write(n.attributes[i].second);
    }
    out_ += "}>";
    --namespaces_;
  }

  Meter& meter_;
  Charge charge_;
  std::string& out_;
  int namespaces_ = 0;
};

class JsonWriter {
 public:
  JsonWriter(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style), charge_(meter, 0) {}

  std::string write(const Value& v) {
    value(v);
    return std::move(out_);
  }

 private:
  void value(const Value& v) {
    meter_.step();
    if (const Text* t = v.text())
      text(t->bytes);
    else if (v.is_none())
      out_ += "null";
    else if (v.is<bool>())
      out_ += v.as<bool>() ? "true" : "false";
    else if (v.is<Int>())
      out_ += fmt::format("{}", v.as<Int>());
    else if (v.is<double>())
      number(v.as<double>());
    else if (v.sequence() != nullptr && v.sequence()->kind <= SequenceKind::kTuple)
      list(*v.sequence());
    else if (const Dict* d = v.dict())
      dict(*d);
    else
      throw invalid("Object of type {} is not JSON serializable", type_name(v));
    if (out_.size() > charged_) {
      const size_t more = std::max(out_.size() - charged_, size_t{4096});
      charge_.grow(more);
      meter_.step(more / 32);
      charged_ += more;
    }
  }

  void number(double d) {
    if (std::isnan(d))
      out_ += "NaN";
    else if (std::isinf(d))
      out_ += d > 0 ? "Infinity" : "-Infinity";
    else
      out_ += float_repr(d);
  }

  void text(std::string_view s) {
    out_.push_back('"');
    for (size_t at = 0; at < s.size();) {
      const size_t start = at;
      const char32_t c = utf8_decode(s, at);
      static constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f", kLetter = "\"\\nrtbf";
      if (const size_t k = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
          k != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetter[k]);
      } else if (c < 0x20 || (style_.ascii && c > 0x7E)) {
        const auto code = static_cast<uint32_t>(c);
        if (code < 0x10000)
          out_ += fmt::format("\\u{:04x}", code);
        else
          out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
      } else {
        out_.append(s.substr(start, at - start));
      }
    }
    out_.push_back('"');
  }

  void line_break() {
    if (!style_.multiline) return;
    out_.push_back('\n');
    meter_.step(depth_);
    charge_.grow(style_.indent.size() * depth_);
    for (size_t i = 0; i < depth_; ++i) out_ += style_.indent;
  }

  void list(const Sequence& s) {
    if (s.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += "[";
    ++depth_;
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i > 0) out_ += style_.comma;
      line_break();
      value(s.items[i]);
    }
    --depth_;
    line_break();
    out_ += "]";
  }

  void key(const Value& k) {
    if (k.text() != nullptr) return text(k.text()->bytes);
    if (!k.is_none() && !k.is_number())
      throw invalid("keys must be str, int, float, bool or None, not {}", type_name(k));
    out_.push_back('"');
    value(k);
    out_.push_back('"');
  }

  void dict(const Dict& d) {
    if (d.items.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : d.items) order.push_back(&item);
    if (style_.sorted)
      std::stable_sort(order.begin(), order.end(),
                       [&](const auto* a, const auto* b) { return less(meter_, a->first, b->first); });
    out_ += "{";
    ++depth_;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_ += style_.comma;
      line_break();
      key(order[i]->first);
      out_ += style_.colon;
      value(order[i]->second);
    }
    --depth_;
    line_break();
    out_ += "}";
  }

  Meter& meter_;
  const JsonStyle& style_;
  Charge charge_;
  std::string out_;
  size_t charged_ = 0, depth_ = 0;
};

Value from_json_at(Meter& meter, const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxValueDepth) throw invalid("the input is nested more than {} deep", kMaxValueDepth);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return Int{json.get<int64_t>()};
    case Type::number_unsigned:
      return Int{json.get<uint64_t>()};
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return make_text(meter, json.get_ref<const std::string&>());
    case Type::array: {
      Values items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json_at(meter, item, depth + 1));
      return make_sequence(meter, std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (const auto& [key, value] : json.get_ref<const nlohmann::ordered_json::object_t&>())
        items.emplace_back(make_text(meter, key), from_json_at(meter, value, depth + 1));
      return make_dict(meter, std::move(items));
    }
    default:
      return None{};
  }
}

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  // The shortest digits that read back as d; Python writes an exponent below 1e-4 and from 1e16 on.
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific).ptr;
  std::string s(buffer, end);
  const size_t e = s.find('e');
  const int exponent = std::stoi(s.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return s;
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::fixed).ptr;
  s.assign(buffer, fixed);
  return s.find('.') == std::string::npos ? s + ".0" : s;
}

void print_repr(Meter& meter, const Value& v, std::string& out) { ReprWriter(meter, out).write(v); }

void print(Meter& meter, const Value& v, std::string& out) {
  if (const Text* t = v.text()) {
    meter.step(t->bytes.size() / 64);
    out += t->bytes;
  } else if (!v.is_undefined()) {
    print_repr(meter, v, out);
  }
}

std::string text_of(Meter& meter, const Value& v) {
  std::string out;
  print(meter, v, out);
  return out;
}

std::string to_json(Meter& meter, const Value& v, const JsonStyle& style) { return JsonWriter(meter, style).write(v); }
Value from_json(Meter& meter, const nlohmann::ordered_json& json) { return from_json_at(meter, json, 0); }

}  // namespace quire::jinja

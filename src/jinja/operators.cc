// Arithmetic and slices.
#include <algorithm>
#include <cmath>

#include "base/text/escape_html.h"
#include "jinja/eval.h"
#include "jinja/value/format.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

constexpr size_t kMaxText = size_t{16} << 20;

[[noreturn]] void fail_operands(std::string_view sign, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b})
    if (v->is_undefined()) fail_undefined(*v);
  if (sign == "+" && a.text() != nullptr) throw invalid("can only concatenate str (not \"{}\") to str", type_name(b));
  throw invalid("unsupported operand type(s) for {}: '{}' and '{}'", sign, type_name(a), type_name(b));
}

[[noreturn]] void fail_overflow() { throw invalid("the integer is too large"); }

std::string escape_markup(const Text& t) { return t.markup ? t.bytes : escape_html(t.bytes); }

Value add(Evaluator& e, const Value& a, const Value& b) {
  if (const Text* x = a.text(), *y = b.text(); x != nullptr && y != nullptr) {
    e.meter.step((x->bytes.size() + y->bytes.size()) / 64);
    const Charge charge(e.meter, x->bytes.size() + y->bytes.size());
    if (x->markup || y->markup) return make_text(e.meter, escape_markup(*x) + escape_markup(*y), true);
    std::string sum;
    sum.reserve(x->bytes.size() + y->bytes.size());
    sum.append(x->bytes).append(y->bytes);
    return make_text(e.meter, std::move(sum));
  }
  const Sequence *x = a.sequence(), *y = b.sequence();
  if (x == nullptr || y == nullptr || x->kind != y->kind || x->kind > SequenceKind::kTuple) fail_operands("+", a, b);
  const Charge charge(e.meter, (x->items.size() + y->items.size()) * sizeof(Value));
  Values items;
  items.reserve(x->items.size() + y->items.size());
  items.insert(items.end(), x->items.begin(), x->items.end());
  items.insert(items.end(), y->items.begin(), y->items.end());
  return make_sequence(e.meter, std::move(items), x->kind);
}

Value repeat(Evaluator& e, const Value& of, Int times) {
  times = std::max(times, Int{0});
  const size_t unit = of.text() != nullptr ? of.text()->bytes.size() : of.sequence()->items.size() * sizeof(Value);
  if (unit != 0 && times > Int{kMaxText} / static_cast<Int>(unit))
    throw no_resource("a repetition of more than {} bytes", kMaxText);
  const auto n = unit == 0 ? size_t{0} : static_cast<size_t>(times);
  const Charge charge(e.meter, unit * n);
  e.meter.step(n / 8);
  if (const Text* t = of.text()) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += t->bytes;
    return make_text(e.meter, std::move(text), t->markup);
  }
  Values items;
  for (size_t i = 0; i < n; ++i) items.insert(items.end(), of.sequence()->items.begin(), of.sequence()->items.end());
  return make_sequence(e.meter, std::move(items), of.sequence()->kind);
}

bool repeatable(const Value& v) {
  return v.text() != nullptr || (v.sequence() != nullptr && v.sequence()->kind <= SequenceKind::kTuple);
}

Int floor_divide(Int a, Int b) {
  if (b == 0) throw invalid("integer division or modulo by zero");
  if (b == -1) {
    Int out = 0;
    if (__builtin_sub_overflow(Int{0}, a, &out)) fail_overflow();
    return out;
  }
  const Int q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}

Value integer_power(Int base, Int exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  if (base == 0 || base == 1) return exponent == 0 ? Int{1} : base;
  if (base == -1) return exponent % 2 == 0 ? Int{1} : Int{-1};
  if (exponent > 127) fail_overflow();
  Int out = 1;
  for (Int i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(out, base, &out)) fail_overflow();
  return out;
}

Value integer_arithmetic(Op op, Int a, Int b) {
  Int out = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case Op::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case Op::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case Op::kFloorDivide:
      return floor_divide(a, b);
    case Op::kModulo: {
      if (b == 0) throw invalid("integer modulo by zero");
      if (b == -1) return Int{0};
      const Int rest = a % b;
      return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
    }
    case Op::kDivide:
      if (b == 0) throw invalid("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    default:
      return integer_power(a, b);
  }
  if (overflow) fail_overflow();
  return out;
}

Value float_arithmetic(Op op, double a, double b) {
  if (b == 0 && (op == Op::kDivide || op == Op::kFloorDivide || op == Op::kModulo))
    throw invalid("float division by zero");
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return a / b;
    case Op::kFloorDivide:
      return std::floor(a / b);
    case Op::kModulo: {
      const double rest = std::fmod(a, b);
      return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
    }
    default:
      return std::pow(a, b);
  }
}

}  // namespace

Value arithmetic(Evaluator& evaluator, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())
    return a.is_int() && b.is_int() ? integer_arithmetic(op, a.to_int(), b.to_int())
                                    : float_arithmetic(op, a.to_double(), b.to_double());
  if (op == Op::kAdd) return add(evaluator, a, b);
  if (op == Op::kMultiply && repeatable(a) && b.is_int()) return repeat(evaluator, a, b.to_int());
  if (op == Op::kMultiply && repeatable(b) && a.is_int()) return repeat(evaluator, b, a.to_int());
  if (op == Op::kModulo && a.text() != nullptr) return percent_format(evaluator, a.text()->bytes, b);
  static constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  fail_operands(kSigns[static_cast<size_t>(op) - static_cast<size_t>(Op::kAdd)], a, b);
}

Value negated(const Value& v, bool negative) {
  if (v.is_int()) return negative ? integer_arithmetic(Op::kSubtract, 0, v.to_int()) : Value(v.to_int());
  if (v.is<double>()) return negative ? -v.as<double>() : v.as<double>();
  if (v.is_undefined()) fail_undefined(v);
  throw invalid("bad operand type for unary {}: '{}'", negative ? "-" : "+", type_name(v));
}

Value slice(Evaluator& evaluator, const Value& of, const Value* start, const Value* stop, const Value* step) {
  if (of.is_undefined()) fail_undefined(of);
  const Text* text = of.text();
  const Sequence* sequence = of.sequence();
  if (text == nullptr && (sequence == nullptr || sequence->kind > SequenceKind::kRange))
    throw invalid("'{}' object cannot be sliced", type_name(of));
  const auto part = [](const Value* v) -> std::optional<Int> {
    if (v == nullptr || v->is_none()) return std::nullopt;
    if (!v->is_int()) throw invalid("slice indices must be integers or None, not {}", type_name(*v));
    return v->to_int();
  };
  const std::optional<Int> given_start = part(start), given_stop = part(stop);
  const Int by = part(step).value_or(1);
  if (by == 0) throw invalid("slice step cannot be zero");
  if (text != nullptr) evaluator.meter.step(text->bytes.size() / 16);
  const Int n = length_of(of);
  const Int lowest = by > 0 ? 0 : -1, highest = by > 0 ? n : n - 1;
  const auto placed = [&](Int i) { return std::clamp(i < 0 ? i + n : i, lowest, highest); };
  const Int first = given_start ? placed(*given_start) : by > 0 ? 0 : n - 1;
  const Int end = given_stop ? placed(*given_stop) : by > 0 ? n : -1;
  if (text != nullptr && by == 1) {
    const size_t from = byte_of_char(text->bytes, static_cast<size_t>(first));
    const std::string_view rest = std::string_view(text->bytes).substr(from);
    const size_t length = end <= first ? 0 : byte_of_char(rest, static_cast<size_t>(end - first));
    return make_text(evaluator.meter, std::string(rest.substr(0, length)), text->markup);
  }
  std::vector<size_t> starts;  // byte offsets of the characters
  const Charge charge(evaluator.meter, text == nullptr ? 0 : text->bytes.size() * sizeof(size_t));
  for (size_t at = 0; text != nullptr && at < text->bytes.size(); utf8_decode(text->bytes, at)) starts.push_back(at);
  Values items;
  std::string characters;
  for (Int i = first; by > 0 ? i < end : i > end; i += by) {
    evaluator.meter.step();
    if (text == nullptr) {
      items.push_back(sequence->items[static_cast<size_t>(i)]);
    } else {
      size_t at = starts[static_cast<size_t>(i)];
      const size_t from = at;
      utf8_decode(text->bytes, at);
      characters.append(text->bytes, from, at - from);
    }
    if (by > n || by < -n) break;  // the next index is out of range and could overflow
  }
  if (text != nullptr) return make_text(evaluator.meter, std::move(characters), text->markup);
  return make_sequence(evaluator.meter, std::move(items), sequence->kind);
}

}  // namespace quire::jinja

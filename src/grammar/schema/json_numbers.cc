#include "grammar/schema/json_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "grammar/char_set.h"

namespace quire::grammar {
namespace {

ByteSet digit_bytes(uint8_t first, uint8_t last) { return ByteSet::range(first, last); }

class Numbers {
 public:
  explicit Numbers(RegexStore& store)
      : s(store),
        digit(s.range('0', '9')),
        digits(s.repeat(digit, 0, kUnbounded)),
        whole(s.any_of({s.literal("0"), s.concat(s.range('1', '9'), digits)})),
        fraction(s.optional(s.concat({s.literal("."), digit, digits}))),
        plain(s.concat(whole, fraction)),
        mantissa(s.concat(s.range('1', '9'), fraction)),
        e(s.any_of({s.literal("e"), s.literal("E")})) {}

  // Exponents: up to three digits, as doubles have them.
  RegexId exponent_from(int least) {
    const RegexId plus = s.optional(s.literal("+")), minus = s.literal("-");
    if (least > 0) return s.concat(plus, count(least, 399));
    return s.any_of({s.concat(plus, count(0, 399)), s.concat(minus, count(0, -least))});
  }
  // Numbers from 0 to 399 of one to three digits.
  RegexId count(int from, int to) {
    std::vector<RegexId> parts;
    for (int length = 1, most = 9; length <= 3; ++length, most = length == 2 ? 99 : 399) {
      const int last = std::min(to, most);
      if (from > last) continue;
      std::vector<uint8_t> lo, hi;
      for (int i = 0, low = from, high = last; i < length; ++i, low /= 10, high /= 10) {
        lo.insert(lo.begin(), static_cast<uint8_t>('0' + low % 10));
        hi.insert(hi.begin(), static_cast<uint8_t>('0' + high % 10));
      }
      parts.push_back(digit_range(s, lo, hi, '0', '9', digit_bytes));
    }
    return s.any_of(std::move(parts));
  }

  RegexId scientific() { return s.concat({mantissa, e, exponent_from(-399)}); }
  RegexId any() { return s.any_of({plain, scientific()}); }  // unsigned

  // Plain numbers with a value of at least (strict: over) 0.DIGITS * 10^point.
  RegexId plain_from(const Decimal& value, bool strict) {
    std::string before = "0", after;
    if (value.point > 0) {
      before = value.digits.substr(0, static_cast<size_t>(value.point));
      before.resize(static_cast<size_t>(value.point), '0');
      if (value.digits.size() > before.size()) after = value.digits.substr(before.size());
    } else if (!value.is_zero()) {
      after = std::string(static_cast<size_t>(-value.point), '0') + value.digits;
    }
    return s.any_of(
        {s.concat(whole_over(before), fraction), s.concat(s.literal(before), fraction_from(after, strict))});
  }

  RegexId scientific_from(const Decimal& value, bool strict) {
    if (value.is_zero()) return scientific();
    Decimal front = value;  // 1 <= front < 10
    front.point = 1;
    const RegexId same = s.all_of({mantissa, plain_from(front, strict)});
    return s.any_of(
        {s.concat({mantissa, e, exponent_from(std::min(value.point, 400))}),
         s.concat({same, e, s.all_of({exponent_from(value.point - 1), s.negate(exponent_from(value.point))})})});
  }

  RegexId from(const Decimal& value, bool strict) {
    return s.any_of({plain_from(value, strict), scientific_from(value, strict)});
  }

  RegexId between(const std::vector<Bound>& at_least, const std::vector<Bound>& at_most) {
    std::vector<RegexId> parts{any()};
    for (const Bound& bound : at_least) parts.push_back(from(bound.value, bound.strict));
    for (const Bound& bound : at_most) parts.push_back(s.negate(from(bound.value, !bound.strict)));
    return s.all_of(std::move(parts));
  }

 private:
  RegexId whole_over(const std::string& value) {
    const auto length = static_cast<uint32_t>(value.size());
    if (value == "0") return s.concat(s.range('1', '9'), digits);
    std::vector<RegexId> parts{s.concat(s.range('1', '9'), s.repeat(digit, length, kUnbounded))};
    std::string next = value;
    size_t i = next.size();
    while (i > 0 && next[i - 1] == '9') next[--i] = '0';
    if (i > 0) {
      ++next[i - 1];
      const std::vector<uint8_t> lo(next.begin(), next.end()), hi(next.size(), '9');
      parts.push_back(digit_range(s, lo, hi, '0', '9', digit_bytes));
    }
    return s.any_of(std::move(parts));
  }

  // "", or a point and digits, of a value of at least 0.AFTER.
  RegexId fraction_from(const std::string& after, bool strict) {
    const RegexId positive = s.concat({s.repeat(s.literal("0"), 0, kUnbounded), s.range('1', '9'), digits});
    if (after.empty()) return strict ? s.concat(s.literal("."), positive) : fraction;
    RegexId made = strict ? positive : digits;
    for (size_t i = after.size(); i-- > 0;) {
      const auto at = static_cast<unsigned char>(after[i]);
      const RegexId more = at == '9' ? kNothing : s.concat(s.range(at + 1u, '9'), digits);
      made = s.any_of({s.concat(s.range(at, at), made), more});
    }
    return s.concat(s.literal("."), made);
  }

 public:
  RegexStore& s;
  RegexId digit, digits, whole, fraction, plain, mantissa, e;
};

}  // namespace

Decimal Decimal::of(const Json& number) {
  std::string text = number.is_number_float() ? fmt::format("{}", number.get<double>()) : number.dump();
  Decimal made;
  made.negative = text[0] == '-';
  if (made.negative) text.erase(0, 1);
  if (const size_t e = text.find('e'); e != text.npos) {
    const size_t digits = text[e + 1] == '+' ? e + 2 : e + 1;
    std::from_chars(text.data() + digits, text.data() + text.size(), made.point);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  made.point += static_cast<int>(point);
  std::erase(text, '.');
  const size_t first = std::min(text.find_first_not_of('0'), text.size());
  made.point -= static_cast<int>(first);
  made.digits = text.substr(first);
  while (made.digits.ends_with('0')) made.digits.pop_back();
  if (made.is_zero()) made = {};
  return made;
}

RegexId number_between(RegexStore& store, const std::vector<Bound>& at_least, const std::vector<Bound>& at_most) {
  Numbers n(store);
  if (at_least.empty() && at_most.empty()) {
    const RegexId tail = store.optional(store.concat(n.e, n.exponent_from(-399)));
    return store.concat({store.optional(store.literal("-")), n.plain, tail});
  }
  const auto magnitude = [](Bound bound) {
    bound.value.negative = false;
    return bound;
  };
  // Of numbers without a sign, then of the magnitudes of those with one.
  std::vector<Bound> low, high, minus_low, minus_high;
  bool positive = true, negative = true;
  for (const Bound& bound : at_least) {
    const bool zero = bound.value.is_zero();
    if (!bound.value.negative && (!zero || bound.strict)) low.push_back(bound);
    if (bound.value.negative || (zero && !bound.strict)) {
      minus_high.push_back(magnitude(bound));
    } else {
      negative = false;
    }
  }
  for (const Bound& bound : at_most) {
    const bool zero = bound.value.is_zero();
    if (bound.value.negative || (zero && bound.strict)) minus_low.push_back(magnitude(bound));
    if (bound.value.negative || (zero && bound.strict)) {
      positive = false;
    } else {
      high.push_back(bound);
    }
  }
  std::vector<RegexId> parts;
  if (positive) parts.push_back(n.between(low, high));
  if (negative) parts.push_back(store.concat(store.literal("-"), n.between(minus_low, minus_high)));
  return store.any_of(std::move(parts));
}

RegexId integer_syntax(RegexStore& store) {
  Numbers n(store);
  const RegexId plain = store.concat(n.whole, store.optional(store.literal(".0")));
  // A fraction of at most 16 digits, as doubles have it, is gone from 10^16 on.
  const RegexId short_fraction = store.concat(store.literal("."), store.repeat(n.digit, 1, 16));
  const RegexId large = store.concat({store.range('1', '9'), store.optional(short_fraction), n.e, n.exponent_from(16)});
  const RegexId round = store.concat({store.range('1', '9'), n.e, n.exponent_from(0)});
  return store.concat(store.optional(store.literal("-")), store.any_of({plain, large, round}));
}

RegexId integer_digits(RegexStore& store) {
  Numbers n(store);
  const RegexId positive = store.concat(store.range('1', '9'), n.digits);
  return store.any_of({store.literal("0"), store.concat(store.optional(store.literal("-")), positive)});
}

std::optional<RegexId> multiple_of(RegexStore& store, const Decimal& divisor) {
  const int decimals = std::max(0, static_cast<int>(divisor.digits.size()) - divisor.point);
  std::string scaled = divisor.digits;
  if (divisor.point > static_cast<int>(scaled.size()))
    scaled.resize(static_cast<size_t>(std::min(divisor.point, 64)), '0');
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(scaled.data(), scaled.data() + scaled.size(), value);
  constexpr uint32_t kMost = 100'000;  // an automaton's states
  if (error != std::errc() || value == 0 || value > kMost || decimals > 20) return std::nullopt;
  Numbers n(store);
  return store.concat(store.optional(store.literal("-")),
                      store.all_of({n.plain, store.multiple(value, static_cast<uint32_t>(decimals))}));
}

RegexId number_literal(RegexStore& store, const Decimal& value, bool digits_only) {
  const bool whole = digits_only && value.is_integer();
  if (value.is_zero() && whole) return store.literal("0");
  if (value.is_zero())
    return store.concat({store.optional(store.literal("-")), store.literal("0"), store.optional(store.literal(".0"))});
  const std::string sign = value.negative ? "-" : "";
  const std::string front = value.digits.substr(0, 1) + (value.digits.size() > 1 ? "." + value.digits.substr(1) : "");
  const int exponent = value.point - 1;
  std::vector<RegexId> parts;
  if (!whole && (value.point > 16 || value.point < -3)) {
    Numbers n(store);
    const RegexId spelled = store.all_of({n.exponent_from(exponent), store.negate(n.exponent_from(exponent + 1))});
    parts.push_back(store.concat({store.literal(sign + front), n.e, spelled}));
  }
  std::string plain = value.digits;
  if (value.is_integer()) {
    plain.resize(static_cast<size_t>(value.point), '0');
    parts.push_back(store.concat(store.literal(sign + plain), whole ? kEmpty : store.optional(store.literal(".0"))));
  } else {
    if (value.point > 0) {
      plain.insert(static_cast<size_t>(value.point), ".");
    } else {
      plain = "0." + std::string(static_cast<size_t>(-value.point), '0') + plain;
    }
    parts.push_back(store.literal(sign + plain));
  }
  return store.any_of(std::move(parts));
}

}  // namespace quire::grammar

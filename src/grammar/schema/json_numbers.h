// JSON's numbers between bounds, as regexes.
//
// Numbers are plain (-12.50) or, where a shortest form would be, scientific with one digit before the point (1.5e-07).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/regex.h"
#include "json/parse.h"

namespace quire::grammar {

// A number as it is written: (-1)^negative * 0.DIGITS * 10^point; zero has no digits. No digits lead or trail as zeros.
struct Decimal {
  bool negative = false;
  std::string digits;
  int point = 0;

  static Decimal of(const Json& number);
  bool is_integer() const { return static_cast<int>(digits.size()) <= point; }
  bool is_zero() const { return digits.empty(); }
};

struct Bound {
  Decimal value;
  bool strict = false;  // the value itself is out of bounds
};

// All numbers within the bounds. -0 is 0.
RegexId number_between(RegexStore& store, const std::vector<Bound>& at_least, const std::vector<Bound>& at_most);
// Numbers with an integer value: 5, 5.0, 1e+22.
RegexId integer_syntax(RegexStore& store);
// Integers as strict readers take them: digits without a point or an exponent, and no -0.
RegexId integer_digits(RegexStore& store);
// Plain numbers only. Nothing if the divisor has too many digits.
std::optional<RegexId> multiple_of(RegexStore& store, const Decimal& divisor);
// The usual spellings of a number: 5 and 5.0; 0.5; 1e-07. digits_only: integers as in integer_digits.
RegexId number_literal(RegexStore& store, const Decimal& value, bool digits_only);

}  // namespace quire::grammar

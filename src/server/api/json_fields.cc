#include "server/api/json_fields.h"

#include <cmath>

#include "server/api/error.h"

namespace quire {

int64_t read_integer(const Json& value, std::string_view field, int64_t low, int64_t high) {
  const auto outside = [&] { return bad_request(field, "{} is outside [{}, {}]", describe(value), low, high); };
  if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) throw outside();
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number != std::floor(number)) throw bad_request(field, "expected an integer, found {}", describe(value));
    if (std::fabs(number) > 0x1p53) throw outside();
  } else if (!value.is_number_integer()) {
    throw bad_request(field, "expected an integer in [{}, {}], found {}", low, high, describe(value));
  }
  const auto number = value.get<int64_t>();
  if (number < low || number > high) throw outside();
  return number;
}

double read_number(const Json& value, std::string_view field, double low, double high) {
  if (!value.is_number()) {
    throw bad_request(field, "expected a number in [{}, {}], found {}", low, high, describe(value));
  }
  const auto number = value.get<double>();
  if (!(number >= low && number <= high)) {
    throw bad_request(field, "{} is outside [{}, {}]", describe(value), low, high);
  }
  return number;
}

bool read_bool(const Json& value, std::string_view field) {
  if (!value.is_boolean()) throw bad_request(field, "expected true or false, found {}", describe(value));
  return value.get<bool>();
}

const std::string& read_string(const Json& value, std::string_view field) {
  if (!value.is_string()) throw bad_request(field, "expected a string, found {}", describe(value));
  return value.get_ref<const std::string&>();
}

const Json& read_array(const Json& value, std::string_view field, size_t at_most) {
  if (!value.is_array()) throw bad_request(field, "expected an array, found {}", describe(value));
  if (value.size() > at_most) {
    throw bad_request(field, "has {} elements, at most {} are allowed", value.size(), at_most);
  }
  return value;
}

const Json& read_object(const Json& value, std::string_view field) {
  if (!value.is_object()) throw bad_request(field, "expected an object, found {}", describe(value));
  return value;
}

TokenIds read_token_ids(const Json& value, std::string_view field, int vocab_size, size_t at_most) {
  TokenIds ids;
  for (const Json& element : read_array(value, field, at_most)) {
    if (!element.is_number()) {
      throw bad_request(field, "expected token ids, found {} as element {}", describe(element), ids.size());
    }
    ids.push_back(static_cast<TokenId>(read_integer(element, field, 0, vocab_size - 1)));
  }
  return ids;
}

}  // namespace quire

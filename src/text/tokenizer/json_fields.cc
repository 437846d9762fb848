#include "text/tokenizer/json_fields.h"

#include "base/error.h"
#include "base/utf8.h"

namespace quire {

void JsonField::wrong(const char* wanted) const {
  throw invalid("{}: shall be {}, not {}", where_, wanted, value_->type_name());
}

bool JsonField::has(const char* key) const {
  object();
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonField JsonField::at(const char* key) const {
  object();
  const auto found = value_->find(key);
  if (found == value_->end()) throw invalid("{}: has no \"{}\"", where_, key);
  return {*found, fmt::format("{}.{}", where_, key)};
}

JsonField JsonField::at(size_t index) const { return {(*value_)[index], fmt::format("{}[{}]", where_, index)}; }

const JsonField& JsonField::object() const {
  if (!value_->is_object()) wrong("an object");
  return *this;
}

const JsonField& JsonField::array() const {
  if (!value_->is_array()) wrong("an array");
  return *this;
}

const std::string& JsonField::string() const {
  if (!value_->is_string()) wrong("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) wrong("true or false");
  return value_->get<bool>();
}

int64_t JsonField::integer(int64_t low, int64_t high) const {
  if (!value_->is_number_integer()) wrong("an integer");
  const bool fits = value_->is_number_unsigned() ? value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX) : true;
  const int64_t number = fits ? value_->get<int64_t>() : INT64_MAX;
  if (!fits || number < low || number > high) {
    throw invalid("{}: {} is not between {} and {}", where_, value_->dump(), low, high);
  }
  return number;
}

double JsonField::number() const {
  if (!value_->is_number()) wrong("a number");
  return value_->get<double>();
}

char32_t JsonField::character() const {
  const std::string& text = string();
  size_t at = 0;
  const char32_t c = text.empty() ? 0 : utf8_next(text, at);
  if (text.empty() || at != text.size()) throw invalid("{}: shall be one character, not \"{}\"", where_, text);
  return c;
}

}  // namespace quire

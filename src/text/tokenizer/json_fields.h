// Reading a tokenizer.json's fields, with errors that say which one is wrong.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace quire {

// A value and where it stands: "Qwen3/tokenizer.json: model.vocab". Both must outlive it.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const nlohmann::json& json() const { return *value_; }
  const std::string& where() const { return where_; }

  bool has(const char* key) const;      // present and not null
  JsonField at(const char* key) const;  // Error if it is missing
  JsonField at(size_t index) const;     // of an array, index < size()
  size_t size() const { return value_->size(); }

  // Each an Error when the value has another type (or does not fit).
  const JsonField& object() const;
  const JsonField& array() const;
  const std::string& string() const;
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number() const;
  char32_t character() const;  // a string of one character

  bool boolean_or(const char* key, bool fallback) const { return has(key) ? at(key).boolean() : fallback; }
  // The type tag of a component.
  const std::string& type() const { return at("type").string(); }

 private:
  [[noreturn]] void wrong(const char* wanted) const;
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace quire

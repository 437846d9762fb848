// The one parser of JSON from outside: files, request bodies, flags. Linear in time, bounded in depth and values.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire {

using Json = nlohmann::ordered_json;  // objects keep the order of their keys

// An error in a document or one of its fields.
class JsonError : public Error {
 public:
  JsonError(const std::string& message, std::string field)
      : Error(ErrorKind::kInvalid, message), field_(std::move(field)) {}
  const std::string& field() const { return field_; }  // "messages[2].content"; empty: the document itself

 private:
  std::string field_;
};

struct JsonBounds {
  int depth = 64;  // nesting of objects and arrays; code may recurse over a parsed value
  size_t values = size_t{1} << 24;
  bool unique_keys = false;  // refuse equal keys in an object; otherwise the last one wins, as in Python
  // Half of a UTF-16 pair becomes U+FFFD, as an escape (\ud83d) or as its three bytes; otherwise it is an error.
  // Programs that count in UTF-16 cut texts in the middle of a pair.
  bool replace_surrogates = false;
};

// Throws JsonError for a syntax error, ill-formed UTF-8, a number out of range, or an exceeded bound.
// `file` is the document's name in messages: "config.json:3:14: expected ',' or '}'". Without a name:
// "not valid JSON: line 3, column 14: expected ',' or '}'".
Json parse_json(std::string_view text, const std::string& file, const JsonBounds& bounds = {});

// A value as error messages show it: short, on one line, well-formed UTF-8.
std::string describe(const Json& value);

}  // namespace quire

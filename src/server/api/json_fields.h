// Single JSON values as C++ values, or a 400 that names the field, what was found and what is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quire/types.h"
#include "server/api/body_json.h"

namespace quire {

int64_t read_integer(const Json& value, std::string_view field, int64_t low, int64_t high);  // 16.0 is an integer too
double read_number(const Json& value, std::string_view field, double low, double high);
bool read_bool(const Json& value, std::string_view field);
const std::string& read_string(const Json& value, std::string_view field);
const Json& read_array(const Json& value, std::string_view field, size_t at_most);
const Json& read_object(const Json& value, std::string_view field);

TokenIds read_token_ids(const Json& value, std::string_view field, int vocab_size, size_t at_most);

}  // namespace quire

#include "json/object.h"

#include <cstdint>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/quote.h"

namespace quire {
namespace {

using Json = nlohmann::json;

std::string_view type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_float:
      return "a number with a fraction";
    default:
      return "an integer";
  }
}

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

Error wrong_type(const std::string& where, std::string_view wanted, const Json& value) {
  return invalid("{}: expected {}, found {}", where, wanted, type_of(value));
}

template <class T>
T convert(const Json& value, const std::string& where) {
  if constexpr (IsVector<T>::value) {
    if (!value.is_array()) throw wrong_type(where, "an array", value);
    T out;
    for (size_t i = 0; i < value.size(); ++i) {
      out.push_back(convert<typename T::value_type>(value[i], fmt::format("{}[{}]", where, i)));
    }
    return out;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) throw wrong_type(where, "a boolean", value);
    return value.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    if (!value.is_number_integer()) throw wrong_type(where, "an integer", value);
    const bool fits =
        value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>()) : std::in_range<T>(value.get<int64_t>());
    if (!fits) {
      throw invalid("{}: {} is out of range, allowed are {} to {}", where, value.dump(), std::numeric_limits<T>::min(),
                    std::numeric_limits<T>::max());
    }
    return value.get<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) throw wrong_type(where, "a number", value);
    const double number = value.get<double>();
    if (number > static_cast<double>(std::numeric_limits<T>::max()) ||
        number < static_cast<double>(std::numeric_limits<T>::lowest())) {
      throw invalid("{}: {} is out of range", where, number);
    }
    return static_cast<T>(number);
  } else {
    if (!value.is_string()) throw wrong_type(where, "a string", value);
    return value.get<std::string>();
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file, DuplicateKeys duplicates) {
  // The parser takes a zero byte for the end of the text; what stands behind it would be hidden.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw invalid("{}: not valid JSON: a zero byte at offset {}", file, zero);
  }
  std::vector<std::set<std::string>> open_objects;
  const auto watch = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxJsonDepth) {
      throw invalid("{}: nested deeper than {} levels", file, kMaxJsonDepth);
    }
    if (duplicates == DuplicateKeys::kLastWins) return true;
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key && !open_objects.back().insert(parsed.get<std::string>()).second) {
      throw invalid("{}: key {} stands twice in one object", file, quote(parsed.get_ref<const std::string&>()));
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& e) {
    throw invalid("{}: not valid JSON at offset {}: {}", file, e.byte, quote(e.what()));
  } catch (const Json::exception& e) {
    throw invalid("{}: not valid JSON: {}", file, quote(e.what()));
  }
}

JsonObject::JsonObject(std::shared_ptr<const Json> value, std::string file, std::string path)
    : value_(std::move(value)), file_(std::move(file)), path_(std::move(path)) {}

JsonObject JsonObject::read(const std::filesystem::path& path, size_t limit) {
  return parse(read_text_file(path, limit), path.string());
}

JsonObject JsonObject::parse(std::string_view text, const std::string& file) {
  auto value = std::make_shared<const Json>(parse_json(text, file));
  if (!value->is_object()) throw wrong_type(file, "an object", *value);
  return {std::move(value), file, ""};
}

const Json* JsonObject::find(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

std::string JsonObject::where(std::string_view key) const {
  std::string plain = quote(key);  // escaped, without the quotes around it
  if (plain.back() == '"') plain = plain.substr(1, plain.size() - 2);
  return fmt::format("{}: {}{}", file_, path_, plain);
}

const Json& JsonObject::at(std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  throw invalid("{} is missing", where(key));
}

JsonObject JsonObject::object(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_object()) throw wrong_type(where(key), "an object", value);
  return {std::shared_ptr<const Json>(value_, &value), file_, fmt::format("{}{}.", path_, key)};
}

std::optional<JsonObject> JsonObject::optional_object(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  return object(key);
}

std::vector<JsonObject> JsonObject::objects(std::string_view key) const {
  const Json& value = at(key);
  if (!value.is_array()) throw wrong_type(where(key), "an array", value);
  std::vector<JsonObject> out;
  for (size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_object()) throw wrong_type(fmt::format("{}[{}]", where(key), i), "an object", value[i]);
    out.push_back({std::shared_ptr<const Json>(value_, &value[i]), file_, fmt::format("{}{}[{}].", path_, key, i)});
  }
  return out;
}

template <class T>
T JsonObject::get(std::string_view key) const {
  return convert<T>(at(key), where(key));
}

#define QUIRE_TYPE(T)                                    \
  template T JsonObject::get<T>(std::string_view) const; \
  template std::vector<T> JsonObject::get<std::vector<T>>(std::string_view) const;
QUIRE_TYPE(bool)
QUIRE_TYPE(int32_t)
QUIRE_TYPE(uint32_t)
QUIRE_TYPE(int64_t)
QUIRE_TYPE(uint64_t)
QUIRE_TYPE(float)
QUIRE_TYPE(double)
QUIRE_TYPE(std::string)
#undef QUIRE_TYPE

}  // namespace quire

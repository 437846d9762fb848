#include "json/field.h"

#include <cmath>
#include <concepts>
#include <type_traits>

#include "base/files/mapped_file.h"
#include "base/text/quote.h"
#include "base/working_memory.h"

namespace quire {
namespace {

// A key inside a path: escaped, and short even if the file's key is not.
std::string shown(std::string_view key) {
  std::string quoted = quote(key);
  return quoted.back() == '"' ? quoted.substr(1, quoted.size() - 2) : quoted;
}

std::string join(const std::string& path, std::string_view key) {
  return path.empty() ? shown(key) : fmt::format("{}.{}", path, shown(key));
}

// Appends the path of `wanted` below `from`; false if it is not there.
bool find_path(const Json& from, const Json* wanted, std::string& path) {
  if (&from == wanted) return true;
  const auto is_below = [&](const Json& child, const auto& path_of_child) {
    if (&child != wanted && !child.is_structured()) return false;
    std::string longer = path_of_child();
    if (!find_path(child, wanted, longer)) return false;
    path = std::move(longer);
    return true;
  };
  if (from.is_array()) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (is_below(from[i], [&] { return fmt::format("{}[{}]", path, i); })) return true;
    }
  } else if (from.is_object()) {
    for (const auto& [key, child] : from.get_ref<const Json::object_t&>()) {
      if (is_below(child, [&, &name = key] { return join(path, name); })) return true;
    }
  }
  return false;
}

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

}  // namespace

JsonField::JsonField(Json document, std::string file)
    : document_(std::make_shared<const Document>(Document{std::move(document), std::move(file)})),
      value_(&document_->root) {}

JsonField::JsonField(std::shared_ptr<const Document> document, const Json* value)
    : document_(std::move(document)), value_(value) {}

JsonField JsonField::parse(std::string_view text, const std::string& file, const JsonBounds& bounds) {
  return {parse_json(text, file, bounds), file};
}

JsonField JsonField::read(const std::filesystem::path& path, size_t max_bytes) {
  return parse(read_text_file(path, max_bytes), path.string());
}

std::string JsonField::path() const {
  std::string path;
  find_path(document_->root, value_, path);
  return path;
}

std::string JsonField::where() const {
  const std::string p = path();
  if (document_->file.empty() || p.empty()) return document_->file + p;
  return fmt::format("{}: {}", document_->file, p);
}

std::string JsonField::where(std::string_view key) const {
  const std::string p = join(path(), key);
  return document_->file.empty() ? p : fmt::format("{}: {}", document_->file, p);
}

JsonError JsonField::make_error(const std::string& path, const std::string& what) const {
  std::string message = document_->file;
  for (const std::string& part : {path, what}) {
    if (!message.empty() && !part.empty()) message += ": ";
    message += part;
  }
  return {message, path};
}

JsonError JsonField::wrong_type(std::string_view wanted) const {
  return error("expected {}, found {}", wanted, describe(*value_));
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) throw wrong_type("true or false");
  return value_->get<bool>();
}

int64_t JsonField::integer(int64_t low, int64_t high) const {
  const auto wrong = [&] { return wrong_type(fmt::format("an integer from {} to {}", low, high)); };
  if (value_->is_number_float()) {
    const auto number = value_->get<double>();
    if (number != std::floor(number) || std::fabs(number) > 0x1p53) throw wrong();
  } else if (value_->is_number_unsigned()) {
    if (!std::in_range<int64_t>(value_->get<uint64_t>())) throw wrong();
  } else if (!value_->is_number_integer()) {
    throw wrong();
  }
  const auto number = value_->get<int64_t>();
  if (number < low || number > high) throw wrong();
  return number;
}

double JsonField::number(double low, double high) const {
  const auto number = value_->is_number() ? value_->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (number >= low && number <= high) return number;
  const bool bounded = low > std::numeric_limits<float>::lowest() || high < std::numeric_limits<float>::max();
  throw wrong_type(bounded || value_->is_number() ? fmt::format("a number from {} to {}", low, high) : "a number");
}

const std::string& JsonField::string() const {
  if (!value_->is_string()) throw wrong_type("a string");
  check_work(value_->get_ref<const std::string&>().size());  // the caller copies it
  return value_->get_ref<const std::string&>();
}

JsonField JsonField::object() const {
  if (!value_->is_object()) throw wrong_type("an object");
  return *this;
}

JsonField JsonField::array(size_t at_most) const {
  if (!value_->is_array()) throw wrong_type("an array");
  if (size() > at_most) throw error("has {} elements, at most {} are allowed", size(), at_most);
  return *this;
}

template <class T>
T JsonField::as() const {
  if constexpr (kIsVector<T>) {
    T out;
    for (const JsonField& element : elements()) out.push_back(element.as<typename T::value_type>());
    return out;
  } else if constexpr (std::is_same_v<T, bool>) {
    return boolean();
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return value_->is_number_unsigned() ? value_->get<uint64_t>() : static_cast<uint64_t>(integer(0, INT64_MAX));
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(integer(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(number(std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()));
  } else {
    return string();
  }
}

#define QUIRE_TYPE(T)                  \
  template T JsonField::as<T>() const; \
  template std::vector<T> JsonField::as<std::vector<T>>() const;
QUIRE_TYPE(bool)
QUIRE_TYPE(int32_t)
QUIRE_TYPE(uint32_t)
QUIRE_TYPE(int64_t)
QUIRE_TYPE(uint64_t)
QUIRE_TYPE(float)
QUIRE_TYPE(double)
QUIRE_TYPE(std::string)
#undef QUIRE_TYPE

Json JsonField::parsed(const JsonBounds& bounds) const {
  try {
    return parse_json(string(), "", bounds);
  } catch (const JsonError& e) {
    throw error("{}", e.what());
  }
}

const Json* JsonField::member(std::string_view key) const {
  object();
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

JsonField JsonField::at(std::string_view key) const {
  if (const Json* value = member(key)) return child(*value);
  const std::string missing = join(path(), key);
  throw JsonError(where(key) + " is missing", missing);
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  const Json* value = member(key);
  return value ? std::optional(child(*value)) : std::nullopt;
}

std::vector<std::pair<std::string_view, JsonField>> JsonField::members() const {
  std::vector<std::pair<std::string_view, JsonField>> out;
  check_work(object().size() * sizeof(out[0]));
  out.reserve(size());
  for (const auto& [key, value] : value_->get_ref<const Json::object_t&>()) out.emplace_back(key, child(value));
  return out;
}

std::vector<JsonField> JsonField::elements(size_t at_most) const {
  std::vector<JsonField> out;
  check_work(array(at_most).size() * sizeof(out[0]));
  out.reserve(size());
  for (const Json& element : *value_) out.push_back(child(element));
  return out;
}

}  // namespace quire

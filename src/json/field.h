// A JSON value and where it stands, so that each error says which field is wrong, what was found and what is allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/parse.h"

namespace quire {

// Cheap to copy; keeps the document alive. Accessors throw JsonError:
//   config.get<int>("hidden_size")                     config.json: hidden_size is missing
//   config.at("rope_scaling").get<double>("factor")    config.json: rope_scaling.factor: expected a number, found "2"
//   body.at("top_p").number(0, 1)                      top_p: expected a number from 0 to 1, found 1.5  (no file name)
// A member whose value is null counts as missing.
class JsonField {
 public:
  JsonField(Json document, std::string file);
  static JsonField parse(std::string_view text, const std::string& file, const JsonBounds& bounds = {});
  static JsonField read(const std::filesystem::path& path, size_t max_bytes = size_t{64} << 20);

  const Json& json() const { return *value_; }
  std::string path() const;                       // "rope_scaling.factor", "messages[2]"; empty: the document itself
  std::string where() const;                      // "config.json: rope_scaling.factor"
  std::string where(std::string_view key) const;  // the same for a member, which may be missing
  template <class... A>
  JsonError error(fmt::format_string<A...> f, A&&... a) const {  // throw field.error("must not be empty");
    return make_error(path(), fmt::format(f, std::forward<A>(a)...));
  }

  // This value, if it has the type. 16.0 is an integer, too.
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number(double low = std::numeric_limits<double>::lowest(),
                double high = std::numeric_limits<double>::max()) const;
  const std::string& string() const;
  JsonField object() const;
  JsonField array(size_t at_most = SIZE_MAX) const;
  // T: bool, int32_t, int64_t, uint32_t, uint64_t, float, double, std::string, or a std::vector of those.
  template <class T>
  T as() const;
  // The document that a string spells.
  Json parsed(const JsonBounds& bounds = {}) const;

  // Members of an object.
  bool has(std::string_view key) const { return member(key) != nullptr; }
  JsonField at(std::string_view key) const;
  std::optional<JsonField> find(std::string_view key) const;
  std::vector<std::pair<std::string_view, JsonField>> members() const;  // null ones, too
  template <class T>
  T get(std::string_view key) const {
    return at(key).as<T>();
  }
  template <class T>
  std::optional<T> optional(std::string_view key) const {
    return has(key) ? std::optional<T>(get<T>(key)) : std::nullopt;
  }
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : fallback;
  }

  // Elements of an array.
  size_t size() const { return value_->size(); }
  JsonField at(size_t index) const { return child((*value_)[index]); }  // index < size()
  std::vector<JsonField> elements(size_t at_most = SIZE_MAX) const;

 private:
  struct Document {
    Json root;
    std::string file;
  };
  JsonField(std::shared_ptr<const Document> document, const Json* value);
  JsonField child(const Json& value) const { return {document_, &value}; }
  const Json* member(std::string_view key) const;
  JsonError make_error(const std::string& path, const std::string& what) const;
  JsonError wrong_type(std::string_view wanted) const;

  std::shared_ptr<const Document> document_;
  const Json* value_;  // inside document_->root, where errors look for its path
};

}  // namespace quire

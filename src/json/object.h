// JSON from files we do not trust: bounded parsing, and access whose errors say where.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class DuplicateKeys { kLastWins, kRefused };  // Python's json module lets the last one win

// Objects and arrays nested deeper than this are an Error, so that nothing that recurses over the value overflows.
inline constexpr int kMaxJsonDepth = 64;

// `file` is the name in messages. Broken JSON, bad UTF-8, a number out of range or too deep nesting is an Error.
nlohmann::json parse_json(std::string_view text, const std::string& file,
                          DuplicateKeys duplicates = DuplicateKeys::kLastWins);

// An object inside a parsed document, which it keeps alive. Cheap to copy.
//   config.get<int>("hidden_size");  config.get_or<float>("rms_norm_eps", 1e-6f);
//   config.object("rope_scaling").get<std::string>("rope_type");
// T: bool, int32_t, int64_t, uint32_t, uint64_t, float, double, std::string, or a std::vector of those. A wrong type or
// an integer that does not fit is an Error: "config.json: rope_scaling.factor: expected a number, found a string".
// A key whose value is null counts as missing.
class JsonObject {
 public:
  static JsonObject read(const std::filesystem::path& path, size_t limit = size_t{64} << 20);  // bytes
  static JsonObject parse(std::string_view text, const std::string& file);

  bool has(std::string_view key) const { return find(key) != nullptr; }

  template <class T>
  T get(std::string_view key) const;  // a missing key is an Error
  template <class T>
  std::optional<T> optional(std::string_view key) const {
    return has(key) ? std::optional<T>(get<T>(key)) : std::nullopt;
  }
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : fallback;
  }

  JsonObject object(std::string_view key) const;  // a missing key is an Error
  std::optional<JsonObject> optional_object(std::string_view key) const;
  std::vector<JsonObject> objects(std::string_view key) const;  // an array of objects

  const nlohmann::json& json() const { return *value_; }
  const nlohmann::json* find(std::string_view key) const;  // nullptr: missing or null
  const std::string& file() const { return file_; }
  std::string where(std::string_view key) const;  // "config.json: rope_scaling.factor"

 private:
  JsonObject(std::shared_ptr<const nlohmann::json> value, std::string file, std::string path);
  const nlohmann::json& at(std::string_view key) const;

  std::shared_ptr<const nlohmann::json> value_;
  std::string file_, path_;  // path: "" or "rope_scaling."
};

}  // namespace quire

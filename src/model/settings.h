// The settings of a model in its files, and which of them were read: a setting that changes the computation and that the
// family does not read is refused, not ignored.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/gguf.h"
#include "format/hf_config.h"

namespace quire {

// config.json. Models that also see or hear keep those of their text in `text_config`.
class HfSettings {
 public:
  explicit HfSettings(const HfConfig& hf);

  using Keys = std::initializer_list<std::string_view>;  // the names that files use; the first is the usual one

  bool has(std::string_view key) const { return mark(key), json_.has(key); }
  std::string where(std::string_view key) const { return json_.where(key); }
  template <class T>
  T get(Keys keys) const {
    for (const std::string_view key : keys) {
      if (has(key)) return json_.get<T>(key);
    }
    return json_.get<T>(*keys.begin());  // throws: missing
  }
  template <class T>
  T get_or(Keys keys, T fallback) const {
    for (const std::string_view key : keys) {
      if (has(key)) return json_.get<T>(key);
    }
    return fallback;
  }
  template <class T>
  T get(std::string_view key) const {
    return get<T>(Keys{key});
  }
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return get_or<T>(Keys{key}, std::move(fallback));
  }
  std::optional<JsonField> find(std::string_view key) const { return mark(key), json_.find(key); }
  // This setting has no effect on the computation beyond those that were read.
  void ignore(Keys keys) const {
    for (const std::string_view key : keys) mark(key);
  }

  const HfConfig& files() const { return hf_; }
  // Throws Error (kUnsupported) for a setting that would make it another model.
  void refuse_unread(std::string_view family) const;

 private:
  void mark(std::string_view key) const { read_.emplace(key); }

  const HfConfig& hf_;
  JsonField json_;
  mutable std::set<std::string, std::less<>> read_;
};

// The metadata of a GGUF file under "ARCHITECTURE.".
class GgufSettings {
 public:
  explicit GgufSettings(const Gguf& gguf) : gguf_(gguf), architecture_(gguf.get<std::string>("general.architecture")) {}

  const std::string& architecture() const { return architecture_; }
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }
  std::string where(std::string_view name) const { return gguf_.file() + ": key " + key(name); }
  bool has(std::string_view name) const { return gguf_.has(read(name)); }
  template <class T>
  T get(std::string_view name) const {
    return gguf_.get<T>(read(name));
  }
  template <class T>
  T get_or(std::string_view name, T fallback) const {
    return gguf_.get_or<T>(read(name), fallback);
  }
  // One number for all layers, or one for each.
  std::vector<int> per_layer(std::string_view name, int layers, int fallback) const;
  std::vector<bool> flags_per_layer(std::string_view name, int layers) const;

  const Gguf& file() const { return gguf_; }
  void refuse_unread() const;

 private:
  std::string read(std::string_view name) const { return *read_.emplace(key(name)).first; }

  const Gguf& gguf_;
  std::string architecture_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace quire

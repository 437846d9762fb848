// Who may ask: API keys, each with the name that the scheduler shares fairly between and the log shows.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Thread-safe. Holds digests under a salt of this process; comparing takes the same time whichever key is almost right.
class ApiKeys {
 public:
  // keys: as they are. file: "key" or "name:key" a line, blank lines and those that begin with '#' are ignored; empty:
  // none. Throws Error that names the file and the line.
  ApiKeys(const std::vector<std::string>& keys, std::string file);

  bool required() const { return required_; }
  const std::string& file() const { return file_; }

  // Reads the file again and gives how many keys there are. Throws as the constructor does, and then nothing has
  // changed.
  size_t reload();

  // The key's name; "key-" and 8 hexadecimal digits of its SHA-256 where it has none. Nothing: no such key.
  std::optional<std::string> name_of(std::string_view key) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    std::string name;
  };
  static std::vector<Entry> read_file(const std::string& file, const Digest& salt);
  static Digest digest_of(const Digest& salt, std::string_view key);
  static Entry entry_of(const Digest& salt, std::string_view key, std::string name);

  std::string file_;
  Digest salt_;
  std::vector<Entry> given_;
  bool required_;
  mutable std::mutex mutex_;
  std::vector<Entry> from_file_;
};

// What probes and Prometheus ask. Everything else, also what is not there, is for those with a key.
bool needs_no_key(std::string_view path);

// "Bearer KEY" of an Authorization header; empty: something else.
std::string_view bearer_key(std::string_view authorization);

}  // namespace quire

// API keys. Each has a name: the tenant, between which the scheduler shares the machine and which the log shows.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/admission.h"

namespace quire {

// Thread-safe. Stores digests salted per process, so that comparing takes the same time for every wrong key.
class ApiKeys {
 public:
  // keys: without names; admin_keys: likewise, of operators. file: one "key", "name:key" or "name:key:priority" per line; blank lines and lines that begin
  // with '#' are ignored; empty: no file. Throws Error that names the file and the line.
  ApiKeys(const std::vector<std::string>& keys, std::string file, const std::vector<std::string>& admin_keys = {});

  bool required() const { return required_; }
  const std::string& file() const { return file_; }

  // Reads the file again and returns the number of keys. Throws like the constructor, and then nothing has changed.
  size_t reload();

  // The tenant has the key's name; for a key without one, "key-" and 8 hexadecimal digits of its SHA-256. Nothing: not a
  // valid key.
  std::optional<Tenant> tenant_of(std::string_view key) const;

  // Whether the keys have more than one name.
  bool several_tenants() const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    Tenant tenant;
  };
  static std::vector<Entry> read_file(const std::string& file, const Digest& salt);
  static Digest digest_of(const Digest& salt, std::string_view key);
  static Entry entry_of(const Digest& salt, std::string_view key, Tenant tenant);

  std::string file_;
  Digest salt_;
  std::vector<Entry> given_;
  bool required_;
  mutable std::mutex mutex_;
  std::vector<Entry> from_file_;
};

// KEY of "Bearer KEY" in an Authorization header; empty: another scheme or no key.
std::string_view bearer_key(std::string_view authorization);

}  // namespace quire

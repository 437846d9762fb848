#include "server/http/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/files/line_file.h"

namespace quire {
namespace {

constexpr size_t kMaxNameBytes = 64, kMaxKeyBytes = 1024;
constexpr int kMostPriority = 1000;

std::array<uint8_t, 32> sha256(std::string_view first, std::string_view second) {
  std::array<uint8_t, 32> digest{};
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!hash || EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) != 1 ||
      EVP_DigestUpdate(hash.get(), first.data(), first.size()) != 1 ||
      EVP_DigestUpdate(hash.get(), second.data(), second.size()) != 1 ||
      EVP_DigestFinal_ex(hash.get(), digest.data(), nullptr) != 1) {
    throw no_resource("SHA-256 failed");
  }
  return digest;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

// Visible ASCII, which fits in a header.
bool is_key(std::string_view key) {
  return !key.empty() && key.size() <= kMaxKeyBytes &&
         std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; });
}

// "name:key:priority", "name:key" or "key". A key may have colons of its own, but with a name, a number after the last
// one is the priority.
struct KeyLine {
  std::optional<std::string_view> name;
  std::string_view key;
  int priority = 0;
  bool wrong_priority = false;
};
KeyLine split_line(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos) return {std::nullopt, line};
  KeyLine split{trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1))};
  const size_t last = split.key.rfind(':');
  if (last == split.key.npos) return split;
  const std::string_view number = trimmed(split.key.substr(last + 1));
  int priority = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), priority);
  if (error == std::errc::invalid_argument || end != number.data() + number.size()) return split;
  split.wrong_priority = error != std::errc() || priority < -kMostPriority || priority > kMostPriority;
  split.priority = priority;
  split.key = trimmed(split.key.substr(0, last));
  return split;
}

}  // namespace

ApiKeys::Digest ApiKeys::digest_of(const Digest& salt, std::string_view key) {
  return sha256({reinterpret_cast<const char*>(salt.data()), salt.size()}, key);
}

ApiKeys::Entry ApiKeys::entry_of(const Digest& salt, std::string_view key, Tenant tenant) {
  if (tenant.name.empty()) {
    // Unsalted: a tenant keeps its name, and with it its cached prefixes, across restarts.
    const auto digest = sha256({}, key);
    tenant.name = fmt::format("key-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
  }
  return {digest_of(salt, key), std::move(tenant)};
}

std::vector<ApiKeys::Entry> ApiKeys::read_file(const std::string& file, const Digest& salt) {
  std::vector<Entry> entries;
  if (file.empty()) return entries;
  LineFile in(file, "--api-key-file " + file);
  std::string text;
  while (in.next(text, size_t{64} << 10)) {
    const int number = in.number();
    const std::string_view line = trimmed(text);
    if (line.empty() || line.front() == '#') continue;
    const auto [name, key, priority, wrong_priority] = split_line(line);
    // The message must not show the key.
    if (name && !is_name(*name)) {
      throw invalid("--api-key-file {}:{}: a name must be 1 to {} of a-z, A-Z, 0-9, '-', '_' and '.'", file, number,
                    kMaxNameBytes);
    }
    if (!is_key(key)) {
      throw invalid("--api-key-file {}:{}: a key must be 1 to {} visible ASCII characters", file, number, kMaxKeyBytes);
    }
    if (wrong_priority) {
      throw invalid("--api-key-file {}:{}: a priority must be between -{} and {}", file, number, kMostPriority,
                    kMostPriority);
    }
    Entry entry = entry_of(salt, key, {std::string(name.value_or("")), priority});
    const auto other = std::ranges::find(entries, entry.tenant.name, [](const Entry& e) { return e.tenant.name; });
    if (other != entries.end() && other->tenant.priority != priority) {
      throw invalid("--api-key-file {}:{}: {} has the priorities {} and {}; keys of one name must have the same", file,
                    number, entry.tenant.name, other->tenant.priority, priority);
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) throw invalid("--api-key-file {}: there is no key in it", file);
  return entries;
}

ApiKeys::ApiKeys(const std::vector<std::string>& keys, std::string file, const std::vector<std::string>& admin_keys)
    : file_(std::move(file)) {
  if (RAND_bytes(salt_.data(), static_cast<int>(salt_.size())) != 1) throw no_resource("no random bytes for API keys");
  for (const auto& [flag, given] : {std::pair("--api-key", &keys), {"--admin-key", &admin_keys}}) {
    for (const std::string& key : *given) {
      if (!is_key(key)) throw invalid("{}: a key must be 1 to {} visible ASCII characters", flag, kMaxKeyBytes);
      given_.push_back(entry_of(salt_, key, {.is_operator = given == &admin_keys}));
    }
  }
  from_file_ = read_file(file_, salt_);
  required_ = !given_.empty() || !file_.empty();
}

size_t ApiKeys::reload() {
  std::vector<Entry> entries = read_file(file_, salt_);
  const std::lock_guard lock(mutex_);
  from_file_ = std::move(entries);
  return given_.size() + from_file_.size();
}

bool ApiKeys::several_tenants() const {
  const std::lock_guard lock(mutex_);
  const std::string* first = nullptr;
  for (const auto* entries : {&given_, &from_file_}) {
    for (const Entry& entry : *entries) {
      if (!first) first = &entry.tenant.name;
      if (*first != entry.tenant.name) return true;
    }
  }
  return false;
}

std::optional<Tenant> ApiKeys::tenant_of(std::string_view key) const {
  const Digest digest = digest_of(salt_, key);
  const Entry* found = nullptr;
  bool is_operator = false;  // a key may be among both kinds
  const auto search = [&](const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) != 0) continue;
      found = &entry;
      is_operator = is_operator || entry.tenant.is_operator;
    }
  };
  const std::lock_guard lock(mutex_);
  search(given_);
  search(from_file_);
  if (!found) return std::nullopt;
  Tenant tenant = found->tenant;
  tenant.is_operator = is_operator;
  return tenant;
}

std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!boost::beast::iequals(authorization.substr(0, kScheme.size()), kScheme)) return {};
  return trimmed(authorization.substr(kScheme.size()));
}

}  // namespace quire

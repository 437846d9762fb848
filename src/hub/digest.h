// Hashes of downloaded files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace quire {

enum class DigestKind : uint8_t {
  kSha256,
  kGitBlob,  // git's SHA-1 of "blob SIZE\0" and the content
};

// In lower-case hexadecimal. `read` is told how many bytes were read so far, and may throw. Throws Error if the file cannot
// be read.
std::string digest_of_file(const std::filesystem::path& file, DigestKind kind,
                           const std::function<void(uint64_t)>& read = {});

std::string sha256_of(std::string_view text);

}  // namespace quire

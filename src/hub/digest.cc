#include "hub/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

class Hash {
 public:
  explicit Hash(DigestKind kind) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    [[maybe_unused]] const int ok =
        EVP_DigestInit_ex(context_.get(), kind == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1(), nullptr);
    assert(ok == 1);
  }
  void add(const void* data, size_t bytes) { EVP_DigestUpdate(context_.get(), data, bytes); }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string digest_of_file(const std::filesystem::path& file, DigestKind kind,
                           const std::function<void(uint64_t)>& read) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw not_found("{} cannot be opened: {}", file.string(), std::strerror(errno));
  const auto close = [](const int* open) { ::close(*open); };
  const std::unique_ptr<const int, decltype(close)> closing(&fd, close);
  Hash hash(kind);
  if (kind == DigestKind::kGitBlob) {
    const std::string head = fmt::format("blob {}", std::filesystem::file_size(file));
    hash.add(head.c_str(), head.size() + 1);
  }
  std::vector<char> buffer(size_t{1} << 20);
  uint64_t done = 0;
  while (true) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw no_resource("{} cannot be read: {}", file.string(), std::strerror(errno));
    if (count == 0) return hash.hex();
    hash.add(buffer.data(), static_cast<size_t>(count));
    done += static_cast<uint64_t>(count);
    if (read) read(done);
  }
}

std::string sha256_of(std::string_view text) {
  Hash hash(DigestKind::kSha256);
  hash.add(text.data(), text.size());
  return hash.hex();
}

}  // namespace quire

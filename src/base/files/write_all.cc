#include "base/files/write_all.h"

#include <unistd.h>

#include <cerrno>

namespace quire {
namespace {

// write(rest) as ::write(); rest: a view of what is left.
template <class View, class Write>
int write_rest(View rest, const Write& write) {
  while (!rest.empty()) {
    const ssize_t written = write(rest);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    rest = View(rest.data() + written, rest.size() - static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

int write_all(int descriptor, std::string_view bytes) {
  return write_rest(bytes, [&](std::string_view rest) { return ::write(descriptor, rest.data(), rest.size()); });
}

int write_all_at(int descriptor, std::span<const std::byte> bytes, uint64_t offset) {
  const std::byte* const begin = bytes.data();
  return write_rest(bytes, [&](std::span<const std::byte> rest) {
    return ::pwrite(descriptor, rest.data(), rest.size(),
                    static_cast<off_t>(offset + static_cast<uint64_t>(rest.data() - begin)));
  });
}

}  // namespace quire

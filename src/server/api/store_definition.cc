#include "server/api/store_definition.h"

#include <unistd.h>

#include <utility>

namespace quire {

StoreReply::StoreReply(std::string type, int open_file, uint64_t size)
    : reply{.status = 200, .body = {}, .content_type = std::move(type)},
      file(new int(open_file),
           [](const int* descriptor) {
             ::close(*descriptor);
             delete descriptor;
           }),
      bytes(size) {}

}  // namespace quire

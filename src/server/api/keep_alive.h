// How long a model stays loaded.
#pragma once

#include <chrono>
#include <optional>

namespace quire {

// Since it was last used; nullopt: until its memory is needed.
using KeepAlive = std::optional<std::chrono::milliseconds>;

}  // namespace quire

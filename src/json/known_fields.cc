#include "json/known_fields.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/nearest.h"

namespace quire {

void refuse_unknown_fields(const JsonField& object, std::string_view what, std::span<const std::string> names) {
  for (const auto& [key, value] : object.members()) {
    if (std::ranges::find(names, key) != names.end()) continue;
    throw value.error("is not a field of {}; the fields are {}.{}", what, fmt::join(names, ", "),
                      did_you_mean(key, names));
  }
}

}  // namespace quire

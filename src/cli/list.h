// What `quire list --families` prints, which docs/models.md repeats.
#pragma once

#include <string>

namespace quire {

std::string families_markdown();

}  // namespace quire

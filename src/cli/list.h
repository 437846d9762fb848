// What `quire list --families` and `quire list --formats` print, which docs/models.md and docs/formats.md repeat.
#pragma once

#include <string>

namespace quire {

std::string families_markdown();
std::string gguf_types_markdown();
std::string quantization_methods_markdown();

}  // namespace quire

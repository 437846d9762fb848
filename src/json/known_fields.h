// Objects whose fields are all known: a misspelled one is an error, not a default.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "json/field.h"

namespace quire {

// Throws JsonError for the first member that is not among `names`. what: the object, as "a workload".
void refuse_unknown_fields(const JsonField& object, std::string_view what, std::span<const std::string> names);

}  // namespace quire

// The arguments of a call as a constraint, in the syntax of each family.
#pragma once

#include <string>

#include "json/parse.h"
#include "parsers/families.h"
#include "quire/constraint.h"

namespace quire {

// parameters: a JSON Schema of an object, or null: any object. Throws Error (kUnsupported) for keywords that the syntax
// cannot follow exactly; families whose arguments are JSON have none of those.
ConstraintSource call_arguments(const AnswerFormat& format, const Json& parameters, const std::string& label);

}  // namespace quire

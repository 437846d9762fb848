// From a ConstraintSource, which may be composed of others, to a Grammar.
#pragma once

#include "grammar/compile.h"
#include "quire/constraint.h"

namespace quire::grammar {

// Throws as the functions of compile.h do; messages begin with the label of the part that is refused.
GrammarPtr compile(const ConstraintSource& source, const Limits& limits = {});

}  // namespace quire::grammar

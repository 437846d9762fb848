// Reads llama.cpp's GBNF and the EBNF of XGrammar and vLLM.
//
//   root ::= greeting ("," [ \t]* name){1,3} <stop>   # rules may span lines; "root" is where a text begins
//
// Literals and classes take the escapes of C; `.` is any character; <name> is the special token with that spelling.
// A rule may begin with itself only directly (expr ::= expr "+" term | term).
#pragma once

#include <string_view>

#include "grammar/char_set.h"
#include "grammar/limits.h"
#include "grammar/parts.h"

namespace quire::grammar {

// Throws quire::Error naming line and column.
NodeId add_gbnf(GrammarParts& parts, CharEncoder& encoder, std::string_view text, const Limits& limits);

}  // namespace quire::grammar

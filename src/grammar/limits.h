// Bounds of a grammar: what a client may ask for, and what its lazily built automaton may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

namespace quire::grammar {

// Steps are counted, not timed, so that a grammar is refused on every machine or on none. A step takes about 20 to 100 ns.
struct Limits {
  size_t bytes = size_t{1} << 20;         // of a schema, regex, choice list or grammar
  int depth = 100;                        // of nested groups, schemas and rules
  size_t nodes = 200'000;                 // of the compiled grammar and its regexes
  uint64_t compile_steps = 500'000;       // of one compilation
  uint64_t mask_steps = 5'000'000;        // of one fill_mask or advance
  size_t cache_bytes = size_t{32} << 20;  // of the automaton and its masks; beyond it they are built anew
  std::stop_token stop = {};              // ends a compilation early
};

// What texts of a schema are for. Those to write are spelled as strict readers want it: an integer is 5, never 5.0 or 5e0.
// A text to check may have come from elsewhere.
enum class Texts : uint8_t { kToWrite, kToCheck };

}  // namespace quire::grammar

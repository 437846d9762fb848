// quire bench serve --selftest
#pragma once

namespace quire {

// Drives scripted servers and holds what is reported against what they did; prints a line a check. Takes a few
// seconds. False when one does not hold.
bool load_selftest();

}  // namespace quire

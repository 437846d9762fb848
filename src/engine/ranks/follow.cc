#include "engine/ranks/follow.h"

#include <cassert>
#include <exception>

#include "engine/loaded_model.h"

namespace quire {

void follow(const EngineOptions& options) {
  assert(options.processes && options.processes->rank() > 0);
  try {
    LoadedModel(options).processes->follow();
  } catch (const std::exception& e) {
    options.processes->fail(e.what());
    throw;
  }
}

}  // namespace quire

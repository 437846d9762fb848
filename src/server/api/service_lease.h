// A model that is loaded, and stays so while it is used.
#pragma once

#include <cstddef>

#include "server/api/model_pool.h"

namespace quire {

class Service;

// The model stays loaded while this lives.
struct ServiceLease {
  ModelPool::Lease lease = {};
  Service* service = nullptr;  // null: the model is not loaded
  size_t model = 0;            // its index

  explicit operator bool() const { return service != nullptr; }
  Service* operator->() const { return service; }
};

}  // namespace quire

// The adapters of a model, by name, and the requests that use them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "model/adapter/adapter.h"
#include "quire/engine.h"

namespace quire {

struct LoadedAdapter {
  std::string name, path;
  size_t bytes;                  // that its matrices take, at most
  std::vector<Adapter> by_rank;  // one; or one for each rank with memory of its own
  int number = -1;               // Span::adapter; no other adapter has it while this one lives
};
// A request holds one until its last sequence has ended. So an adapter that is removed stays for those that run.
using AdapterLease = std::shared_ptr<const LoadedAdapter>;

// Thread-safe. The model and its backend must outlive all leases.
class Adapters {
 public:
  // bytes: of all adapters together, with those that were removed and are still in use.
  void set_limits(size_t bytes, int max_rank);

  // Throws Error: the name is empty, too long or taken, the rank is beyond the limit, or the memory is used up.
  void check(std::string_view name, const AdapterFacts& facts) const;
  // Gives it a number. What check() says must still hold.
  AdapterLease add(LoadedAdapter adapter);
  // Later requests do not find it. Throws Error (kNotFound).
  void remove(std::string_view name);
  // Throws Error (kNotFound) that lists the names.
  AdapterLease find(std::string_view name) const;
  std::vector<AdapterInfo> list() const;  // in the order in which they were added

 private:
  size_t bytes_in_use() const;

  mutable std::mutex mutex_;
  size_t most_bytes_ = 0;
  int max_rank_ = 0;
  std::vector<AdapterLease> named_;
  std::vector<std::weak_ptr<const LoadedAdapter>> numbers_;  // expired: free
};

}  // namespace quire

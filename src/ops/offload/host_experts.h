// A device that computes a model but for the experts of some layers: these stay in the host's memory, and the host's backend
// computes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/forwarding.h"

namespace quire {

// Its memory is the device's, and so are all operations but route() and run_experts() with on_host: the router's scores and
// the experts' inputs come to the host, and their weighted sums go back. The matrices and biases of those experts, and the
// vectors that choose them, are in the memory of the host's backend; all other addresses are the device's.
class HostExpertsBackend final : public ForwardingBackend {
 public:
  // Both backends must outlive it. activations: the form of those experts' inputs. all: the device has no experts at all, and
  // needs no memory to compute any.
  HostExpertsBackend(Backend& device, Backend& host, Activations activations, bool all)
      : ForwardingBackend(device), host_(host), activations_(activations), all_(all) {}

  // No ExpertSource, on either side.
  bool reads_experts() const override { return false; }
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override;
  // What they allocate of the device's memory, and of the host's.
  size_t operations_bytes(const OperationLimits& limits) const override {
    return inner().operations_bytes(on_device(limits, all_));
  }
  static OperationLimits on_device(OperationLimits limits, bool all);
  static size_t host_bytes(const OperationLimits& limits, const OperationsBytes& host);
  // That all operations have brought to the host and back.
  uint64_t moved_bytes() const { return moved_bytes_; }

 private:
  Backend& host_;
  const Activations activations_;
  const bool all_;
  std::atomic<uint64_t> moved_bytes_{0};
};

}  // namespace quire
